package main

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/go-sql-driver/mysql"

	"github.com/redlatch/redlatch/bench/internal/work"
)

type mariadb struct{ db *sql.DB }

func openMariadb(e work.Env) (work.Contender, error) {
	conf := mysql.NewConfig()
	conf.Net, conf.Addr, conf.User = "tcp", e.Addr(), "bench"
	conf.InterpolateParams = true // one round trip for a statement, not two
	conf.Logger = &mysql.NopLogger{}
	connector, err := mysql.NewConnector(conf)
	if err != nil {
		return nil, err
	}
	return mariadb{sql.OpenDB(connector)}, nil
}

func (c mariadb) Locker(key string) work.Locker { return &getLocker{mariadb: c, key: key} }

func (c mariadb) Close() { _ = c.db.Close() }

// getLocker keeps a connection: it, not a name, is the owner of the lock.
type getLocker struct {
	mariadb
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
