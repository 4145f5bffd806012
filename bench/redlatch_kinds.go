package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/redlatch/redlatch"
)

// otherKinds are redlatch's locks besides the plain one, and arrangements of plain ones that they are compared with.
var otherKinds = []entry{
	{
		name: "redlatch-fair",
		what: "client.FairLock",
		role: own,
		open: openRedlatch(func(c *redlatchClients, key string) locker {
			return anyLock{c.first().FairLock(key)}
		}),
	},
	{
		name: "redlatch-rw",
		what: "client.ReadWriteLock; where a row does not read, its write lock",
		role: own,
		open: func(e env) (contender, error) {
			c, err := openRedlatch(func(c *redlatchClients, key string) locker {
				return anyLock{c.first().ReadWriteLock(key).WriteLock()}
			})(e)
			if err != nil {
				return nil, err
			}
			return readersAndWriters{c.(*redlatchClients)}, nil
		},
	},
	{
		name: "redlatch-own-keys",
		what: "client.RLock, each goroutine with a key of its own where the others share one",
		role: own,
		open: openRedlatch(func(c *redlatchClients, key string) locker {
			return anyLock{c.first().RLock(fmt.Sprintf("%s:%d:%d", key, os.Getpid(), c.keys.Add(1)))}
		}),
	},
	{
		name: "redlatch-multi",
		what: "redlatch.MultiLock of five RLocks: of one node, or of one on each of five",
		role: own,
		open: openRedlatch(func(c *redlatchClients, key string) locker {
			return anyLock{redlatch.MultiLock(c.five(key)...)}
		}),
	},
	{
		name: "redlatch-5-locks",
		what: "five RLocks, one after the other",
		role: own,
		open: openRedlatch(func(c *redlatchClients, key string) locker { return inTurn(c.five(key)) }),
	},
	{
		name: "redlatch-quorum",
		what: "redlatch.QuorumLock over five independent servers",
		role: own,
		open: openRedlatch(func(c *redlatchClients, key string) locker {
			var copies []redlatch.Locker
			for _, client := range c.clients {
				copies = append(copies, client.RLock(key))
			}
			return anyLock{redlatch.QuorumLock(copies...)}
		}),
	},
}

type readersAndWriters struct{ *redlatchClients }

func (c readersAndWriters) ReadLocker(key string) locker {
	return anyLock{c.first().ReadWriteLock(key).ReadLock()}
}

// five are five locks: in one slot of the only server, or one on each server.
func (c *redlatchClients) five(key string) []redlatch.Locker {
	var locks []redlatch.Locker
	for i := range 5 {
		client := c.clients[i%len(c.clients)]
		locks = append(locks, client.RLock(fmt.Sprintf("{%s}:%d", key, i)))
	}
	return locks
}

// inTurn locks several locks one after the other.
type inTurn []redlatch.Locker

type inTurnHold []redlatch.Hold

func (l inTurn) Lock(ctx context.Context) (hold, error) {
	holds := make(inTurnHold, 0, len(l))
	for _, one := range l {
		h, err := one.Lock(ctx)
		if err != nil {
			return nil, errors.Join(err, holds.Unlock(context.WithoutCancel(ctx)))
		}
		holds = append(holds, h)
	}
	return holds, nil
}

func (h inTurnHold) Unlock(ctx context.Context) error {
	var errs []error
	for _, one := range h {
		errs = append(errs, one.Unlock(ctx))
	}
	return errors.Join(errs...)
}
