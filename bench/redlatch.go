package main

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch"
)

// ours is redlatch with its default configuration, but for the lease that all contenders share. Here stands no name
// that an older checkout lacks: -against builds this file with it.
var ours = []entry{
	ownLock("redlatch", "client.RLock", func(c clients, key string) locker { return anyLock{c[0].RLock(key)} }),
	ownLock("redlatch-fenced", "client.RLock, fenced", func(c clients, key string) locker {
		return anyLock{c[0].RLock(key, redlatch.Fenced())}
	}),
	ownLock("redlatch-reentry", "client.RLock, locked again by an owner that holds it", func(c clients, key string) locker {
		return &reentry{lock: c[0].RLock(key)}
	}),
	ownLock("redlatch-fair", "client.FairLock", func(c clients, key string) locker { return anyLock{c[0].FairLock(key)} }),
	ownReadWrite("redlatch-rw", "client.ReadWriteLock; where a row does not read, its write lock"),
	ownReadWrite("redlatch-rw-shared", "the same with ShareReads: readers of a process share a hold on the server", redlatch.ShareReads()),
	ownLock("redlatch-multi", "redlatch.MultiLock of five RLocks: of one node, or of one on each of five",
		func(c clients, key string) locker {
			l := five(c, key, (*redlatch.Client).RLock)
			return anyLock{redlatch.MultiLock(l[0], l[1], l[2], l[3], l[4])}
		}),
	ownLock("redlatch-quorum", "redlatch.QuorumLock over five independent servers", func(c clients, key string) locker {
		l := five(c, key, (*redlatch.Client).RLock)
		return anyLock{redlatch.QuorumLock(l[0], l[1], l[2], l[3], l[4])}
	}),
}

func ownLock(name, what string, lock func(c clients, key string) locker) entry {
	return entry{name: name, what: what, role: own, open: func(e env) (contender, error) {
		c, err := openClients(e)
		return ownContender{c, lock}, err
	}}
}

func ownReadWrite(name, what string, opts ...redlatch.Option) entry {
	write := func(c clients, key string) locker { return anyLock{c[0].ReadWriteLock(key, opts...).WriteLock()} }
	read := func(c clients, key string) locker { return anyLock{c[0].ReadWriteLock(key, opts...).ReadLock()} }
	return entry{name: name, what: what, role: own, open: func(e env) (contender, error) {
		c, err := openClients(e)
		return readersAndWriters{ownContender{c, write}, read}, err
	}}
}

// clients are one for each server of the row, nearly always one.
type clients []*redlatch.Client

func openClients(e env) (clients, error) {
	var c clients
	for _, addr := range e.Addrs {
		client, err := redlatch.New(redlatch.Config{
			Redis:     rueidis.ClientOption{InitAddress: []string{addr}},
			LeaseTime: e.Lease,
			// The end of a round interrupts waits, and each grant that comes too late would be told.
			Logger: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			c.Close()
			return nil, err
		}
		c = append(c, client)
	}
	return c, nil
}

// Close ends the clients. What the end of a measurement leaves behind goes with the server's data.
func (c clients) Close() {
	for _, client := range c {
		client.Close()
	}
}

type ownContender struct {
	clients
	lock func(c clients, key string) locker
}

func (c ownContender) Locker(key string) locker { return c.lock(c.clients, key) }

type readersAndWriters struct {
	ownContender
	read func(c clients, key string) locker
}

func (c readersAndWriters) ReadLocker(key string) locker { return c.read(c.clients, key) }

// five are five locks: in one slot of the only server, or one of the same name on each server.
func five[L any](c clients, key string, lock func(c *redlatch.Client, name string, opts ...redlatch.Option) L) []L {
	var locks []L
	for i := range 5 {
		name := key
		if len(c) == 1 {
			name = fmt.Sprintf("{%s}:%d", key, i)
		}
		locks = append(locks, lock(c[i%len(c)], name))
	}
	return locks
}

// anyLock uses a lock of any kind as its users do.
type anyLock struct{ redlatch.Locker }

func (l anyLock) Lock(ctx context.Context) (hold, error) { return l.Locker.Lock(ctx) }

// reentry holds its lock from its first turn on and locks it again at each.
type reentry struct {
	lock  redlatch.Locker
	outer redlatch.Hold
}

func (l *reentry) Lock(ctx context.Context) (hold, error) {
	if l.outer == nil {
		var err error
		// It outlives the pair that it comes with.
		if l.outer, err = l.lock.Lock(context.WithoutCancel(ctx)); err != nil {
			return nil, err
		}
	}
	return l.lock.Lock(l.outer.Context())
}
