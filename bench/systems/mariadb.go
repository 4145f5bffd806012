package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/redlatch/redlatch/bench/internal/work"
)

// mariadb is a pool of connections to the database of the measurement.
type mariadb struct {
	db    *sql.DB
	lease time.Duration
	way   mariadbWay
	next  atomic.Int64
}

// A mariadbWay makes what one goroutine locks with.
type mariadbWay func(c *mariadb, key string) work.Locker

func openMariadb(e work.Env, way mariadbWay) (work.Contender, error) {
	conf := mysql.NewConfig()
	conf.Net, conf.Addr, conf.User, conf.DBName = "tcp", e.Addr(), "bench", "bench"
	conf.InterpolateParams = true // one round trip for a statement, not two
	conf.Logger = &mysql.NopLogger{}
	connector, err := mysql.NewConnector(conf)
	if err != nil {
		return nil, err
	}
	db := sql.OpenDB(connector)
	db.SetMaxIdleConns(1000) // otherwise each turn of many goroutines opens connections anew
	return &mariadb{db: db, lease: e.Lease, way: way}, nil
}

func (c *mariadb) Locker(key string) work.Locker { return c.way(c, key) }

func (c *mariadb) Close() { _ = c.db.Close() }

// getLock is a lock that a connection holds: each goroutine keeps one.
func getLock(c *mariadb, key string) work.Locker { return &getLocker{mariadb: c, key: key} }

type getLocker struct {
	*mariadb
	key  string
	conn *sql.Conn
}

func (l *getLocker) Lock(ctx context.Context) (work.Hold, error) {
	if l.conn == nil {
		conn, err := l.db.Conn(ctx)
		if err != nil {
			return nil, err
		}
		l.conn = conn
	}
	// A day: the server knows no wait without an end but this.
	return l, l.ask(ctx, "SELECT GET_LOCK(?, 86400)")
}

func (l *getLocker) Unlock(ctx context.Context) error { return l.ask(ctx, "SELECT RELEASE_LOCK(?)") }

func (l *getLocker) ask(ctx context.Context, question string) error {
	var answer sql.NullInt64
	if err := l.conn.QueryRowContext(ctx, question, l.key).Scan(&answer); err != nil {
		return err
	}
	if answer.Int64 != 1 {
		return fmt.Errorf("%s of %s: %+v", question, l.key, answer)
	}
	return nil
}

// uniqueKey is the lock that needs nothing but a table: whoever inserts the row has it.
func uniqueKey(c *mariadb, key string) work.Locker {
	return &uniqueLocker{mariadb: c, key: key, owner: fmt.Sprintf("%d:%d", os.Getpid(), c.next.Add(1))}
}

type uniqueLocker struct {
	*mariadb
	key, owner string
}

// What the server says about a row that is there, and about two that wait for each other.
const (
	duplicateEntry = 1062
	deadlock       = 1213
)

func (l *uniqueLocker) Lock(ctx context.Context) (work.Hold, error) {
	for {
		_, err := l.db.ExecContext(ctx, "INSERT INTO locks (name, owner, ends) VALUES (?, ?, NOW(3) + INTERVAL ? MICROSECOND)",
			l.key, l.owner, l.lease.Microseconds())
		if err == nil {
			return l, nil
		}
		if !isServerError(err, duplicateEntry, deadlock) {
			return nil, err
		}
		select {
		case <-time.After(work.PollEvery):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (l *uniqueLocker) Unlock(ctx context.Context) error {
	for {
		r, err := l.db.ExecContext(ctx, "DELETE FROM locks WHERE name = ? AND owner = ?", l.key, l.owner)
		if isServerError(err, deadlock) {
			continue // it was rolled back, and the row is still there
		}
		if err != nil {
			return err
		}
		if n, err := r.RowsAffected(); err != nil || n != 1 {
			return errors.Join(err, fmt.Errorf("%s was not held", l.key))
		}
		return nil
	}
}

func isServerError(err error, numbers ...uint16) bool {
	var e *mysql.MySQLError
	if !errors.As(err, &e) {
		return false
	}
	for _, n := range numbers {
		if e.Number == n {
			return true
		}
	}
	return false
}
