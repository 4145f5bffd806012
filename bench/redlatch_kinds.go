package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"reflect"
	"sync"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/lock"
)

// otherKinds are redlatch's locks besides the plain one, and arrangements of plain ones that they are compared with.
var otherKinds = []entry{
	{
		name:    "redlatch-fair",
		what:    "client.FairLock",
		role:    own,
		promise: promiseOurs,
		open: openRedlatch(func(c *redlatchClients, key string) locker {
			return anyLock{c.first().FairLock(key)}
		}),
	},
	{
		name:    "redlatch-rw",
		what:    "client.ReadWriteLock; where a row does not read, its write lock",
		role:    own,
		promise: promiseOurs,
		open:    openReadWrite(),
	},
	{
		name:    "redlatch-rw-shared",
		what:    "the same with ShareReads: readers of a process share a hold on the server",
		role:    own,
		promise: promiseOurs,
		open:    openReadWrite(shareReads),
	},
	{
		name:    "redlatch-own-keys",
		what:    "client.RLock, each goroutine with a key of its own where the others share one",
		role:    own,
		promise: promiseOurs,
		open: openRedlatch(func(c *redlatchClients, key string) locker {
			return anyLock{c.first().RLock(fmt.Sprintf("%s:%d:%d", key, os.Getpid(), c.keys.Add(1)))}
		}),
	},
	{
		name:    "redlatch-multi",
		what:    "redlatch.MultiLock of five RLocks: of one node, or of one on each of five",
		role:    own,
		promise: promiseOurs,
		open: openRedlatch(func(c *redlatchClients, key string) locker {
			return anyLock{redlatch.MultiLock(c.five(key)...)}
		}),
	},
	{
		name:    "redlatch-5-locks",
		what:    "five RLocks, one after the other",
		role:    own,
		promise: promiseOurs,
		open:    openRedlatch(func(c *redlatchClients, key string) locker { return inTurn(c.five(key)) }),
	},
	{
		name:    "redlatch-slowest",
		what:    "one RLock on each of five masters, one after the other; its time is the slowest one's",
		role:    own,
		promise: promiseOurs,
		open:    openRedlatch(func(c *redlatchClients, key string) locker { return slowest{inTurn(c.five(key))} }),
	},
	{
		name:    "redlatch-owner",
		what:    "client.RLock, by an owner that holds many other locks",
		role:    own,
		promise: promiseOurs,
		open: openRedlatch(func(c *redlatchClients, key string) locker {
			return &owned{client: c.first(), key: key, others: c.holds}
		}),
	},
	{
		name:    "redlatch-quorum",
		what:    "redlatch.QuorumLock over five independent servers",
		role:    own,
		promise: promiseOurs,
		open: openRedlatch(func(c *redlatchClients, key string) locker {
			var copies []redlatch.Member
			for _, client := range c.clients {
				copies = append(copies, client.RLock(key))
			}
			return anyLock{redlatch.QuorumLock(copies...)}
		}),
	},
}

type readersAndWriters struct {
	*redlatchClients
	opts []redlatch.Option
}

func (c readersAndWriters) ReadLocker(key string) locker {
	return anyLock{c.first().ReadWriteLock(key, c.opts...).ReadLock()}
}

// shareReads is redlatch.ShareReads, and nothing in a checkout that has no such option.
func shareReads(s *lock.Settings) {
	if f := reflect.ValueOf(s).Elem().FieldByName("ShareReads"); f.IsValid() {
		f.SetBool(true)
	}
}

func openReadWrite(opts ...redlatch.Option) func(env) (contender, error) {
	return func(e env) (contender, error) {
		c, err := openRedlatch(func(c *redlatchClients, key string) locker {
			return anyLock{c.first().ReadWriteLock(key, opts...).WriteLock()}
		})(e)
		if err != nil {
			return nil, err
		}
		return readersAndWriters{c.(*redlatchClients), opts}, nil
	}
}

// five are five locks: in one slot of the only server, or one on each server.
func (c *redlatchClients) five(key string) []redlatch.Member {
	var locks []redlatch.Member
	for i := range 5 {
		client := c.clients[i%len(c.clients)]
		locks = append(locks, client.RLock(fmt.Sprintf("{%s}:%d", key, i)))
	}
	return locks
}

// inTurn locks several locks one after the other.
type inTurn []redlatch.Member

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

// slowest locks as inTurn does and knows how long the slowest of its locks took.
type slowest struct{ inTurn }

type slowestHold struct {
	inTurnHold
	took time.Duration
}

func (l slowest) Lock(ctx context.Context) (hold, error) {
	h := slowestHold{}
	for _, one := range l.inTurn {
		start := time.Now()
		held, err := one.Lock(ctx)
		if err != nil {
			return nil, errors.Join(err, h.Unlock(context.WithoutCancel(ctx)))
		}
		h.took = max(h.took, time.Since(start))
		h.inTurnHold = append(h.inTurnHold, held)
	}
	return h, nil
}

// Took is the time of the slowest lock.
func (h slowestHold) Took() time.Duration { return h.took }

// owned locks its key for an owner that holds others.
type owned struct {
	client *redlatch.Client
	key    string
	others int
	ctx    context.Context // of the owner's first hold; nil before
}

// ownedWorkers acquire the others: enough for pipelining to work.
const ownedWorkers = 64

func (l *owned) Lock(ctx context.Context) (hold, error) {
	if l.ctx == nil {
		// It outlives the pair that it comes with.
		first, err := l.client.RLock(l.key + ":first").Lock(context.WithoutCancel(ctx))
		if err != nil {
			return nil, err
		}
		errs := make([]error, ownedWorkers)
		var wg sync.WaitGroup
		for w := range errs {
			wg.Go(func() {
				for i := w; i < l.others && errs[w] == nil; i += ownedWorkers {
					_, errs[w] = l.client.RLock(fmt.Sprintf("%s:other:%d", l.key, i)).Lock(first.Context())
				}
			})
		}
		wg.Wait()
		if err := errors.Join(errs...); err != nil {
			return nil, err
		}
		l.ctx = first.Context()
	}
	return l.client.RLock(l.key).Lock(l.ctx)
}
