package main

import (
	"context"
	"log/slog"
	"sync/atomic"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch"
)

// ours is redlatch with its default configuration, but for the lease that all contenders share.
var ours = []entry{
	{
		name:    "redlatch",
		what:    "client.RLock",
		role:    own,
		promise: promiseOurs,
		open: openRedlatch(func(c *redlatchClients, key string) locker {
			return anyLock{c.first().RLock(key)}
		}),
	},
	{
		name:    "redlatch-fenced",
		what:    "client.RLock, fenced",
		role:    own,
		promise: promiseOurs,
		open: openRedlatch(func(c *redlatchClients, key string) locker {
			return anyLock{c.first().RLock(key, redlatch.Fenced())}
		}),
	},
	{
		name:    "redlatch-reentry",
		what:    "client.RLock, locked again by an owner that holds it",
		role:    own,
		promise: promiseOurs,
		open: openRedlatch(func(c *redlatchClients, key string) locker {
			return &reentry{lock: c.first().RLock(key)}
		}),
	},
}

// redlatchClients is one client for each server of the row, nearly always one.
type redlatchClients struct {
	clients []*redlatch.Client
	make    func(c *redlatchClients, key string) locker
	keys    atomic.Int64 // given out to lockers that want one of their own
	holds   int          // that an owner has beside the one it takes
	pushed  atomic.Uint64
}

func openRedlatch(locker func(c *redlatchClients, key string) locker) func(env) (contender, error) {
	return func(e env) (contender, error) {
		c := &redlatchClients{make: locker, holds: e.Holds}
		for _, addr := range e.Addrs {
			option := rueidis.ClientOption{InitAddress: []string{addr}}
			if e.CountMessages {
				option.DialCtxFn = countingDialer(&c.pushed)
			}
			client, err := redlatch.New(redlatch.Config{
				Redis:     option,
				LeaseTime: e.Lease,
				// The end of a round interrupts waits, and each grant that comes too late would be told.
				Logger: slog.New(slog.DiscardHandler),
			})
			if err != nil {
				c.Close()
				return nil, err
			}
			c.clients = append(c.clients, client)
		}
		return c, nil
	}
}

func (c *redlatchClients) first() *redlatch.Client { return c.clients[0] }

func (c *redlatchClients) Locker(key string) locker { return c.make(c, key) }

// Messages is how many pub/sub messages have come, if they were to be counted.
func (c *redlatchClients) Messages() uint64 { return c.pushed.Load() }

func (c *redlatchClients) Close() {
	for _, client := range c.clients {
		// The measurement is over: what its end leaves behind goes with the server's data.
		client.Close()
	}
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
