package main

import (
	"context"
	"errors"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"

	"github.com/redlatch/redlatch/bench/internal/work"
)

type etcd struct {
	client *clientv3.Client
	ttl    int // seconds
}

func openEtcd(e work.Env) (work.Contender, error) {
	client, err := clientv3.New(clientv3.Config{
		Endpoints:   e.Addrs,
		DialTimeout: 10 * time.Second,
		Logger:      zap.NewNop(), // the end of a round interrupts waits, and each would be told
	})
	if err != nil {
		return nil, err
	}
	return &etcd{client, int(e.Lease / time.Second)}, nil
}

func (c *etcd) Locker(key string) work.Locker { return &etcdLocker{etcd: c, key: "/" + key} }

func (c *etcd) Close() { _ = c.client.Close() }

// etcdLocker has a session of its own: in etcd a session, not a mutex object, is the owner, so goroutines that compete
// with each other can't share one. It is opened by the first Lock, since Locker can't fail, and kept.
type etcdLocker struct {
	*etcd
	key     string
	session *concurrency.Session
	mutex   *concurrency.Mutex
}

func (l *etcdLocker) Lock(ctx context.Context) (work.Hold, error) {
	if l.session == nil {
		session, err := concurrency.NewSession(l.client, concurrency.WithTTL(max(l.ttl, 1)))
		if err != nil {
			return nil, err
		}
		l.session, l.mutex = session, concurrency.NewMutex(session, l.key)
	}
	if err := l.mutex.Lock(ctx); err != nil {
		// The server keeps what an interrupted Lock has left in its queue until the session ends.
		return nil, errors.Join(err, l.session.Close())
	}
	return l, nil
}

func (l *etcdLocker) Unlock(ctx context.Context) error { return l.mutex.Unlock(ctx) }
