package main

import (
	"context"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/redlatch/redlatch/bench/internal/work"
)

// zookeeper is one session for all goroutines of the process, as its users have it.
type zookeeper struct {
	conn  *zk.Conn
	close func()
}

func openZookeeper(e work.Env) (work.Contender, error) {
	conn, events, err := zk.Connect(e.Addrs, e.Lease, zk.WithLogger(silent{}))
	if err != nil {
		return nil, err
	}
	// Events that nobody reads are dropped by the client once the channel is full.
	c := &zookeeper{conn: conn, close: sync.OnceFunc(conn.Close)}
	deadline := time.After(10 * time.Second)
	for {
		select {
		case ev := <-events:
			if ev.State == zk.StateHasSession {
				return c, nil
			}
		case <-deadline:
			c.close()
			return nil, context.DeadlineExceeded
		}
	}
}

type silent struct{}

func (silent) Printf(string, ...any) {}

func (c *zookeeper) Locker(key string) work.Locker {
	return &zookeeperLocker{c, zk.NewLock(c.conn, "/"+key, zk.WorldACL(zk.PermAll))}
}

func (c *zookeeper) Close() { c.close() }

type zookeeperLocker struct {
	*zookeeper
	lock *zk.Lock
}

// Lock of the client can't be interrupted: the end of ctx, which is the end of the measurement, ends the session.
func (l *zookeeperLocker) Lock(ctx context.Context) (work.Hold, error) {
	defer context.AfterFunc(ctx, l.close)()
	if err := l.lock.Lock(); err != nil {
		return nil, err
	}
	return l, nil
}

func (l *zookeeperLocker) Unlock(context.Context) error { return l.lock.Unlock() }
