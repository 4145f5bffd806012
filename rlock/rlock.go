// Package rlock is the re-entrant lock: exclusive, not fair across processes,
// the fastest kind. Its format on the server is that of Redisson's RLock.
package rlock

import (
	"context"
	"time"

	"github.com/redlatch/redlatch/internal/engine"
	"github.com/redlatch/redlatch/internal/kind"
	"github.com/redlatch/redlatch/lock"
)

// RLock is a re-entrant lock by name: R as in Redisson, where it stands for re-entrant.
// The read lock is ReadLock of a ReadWriteLock. An RLock has no state of its own: any number of
// them may exist for one name, and one may be used by any number of goroutines,
// each Lock being an acquisition by the owner in its context, or by a new owner.
// After an unlock the waiters of one process are served in their order; between
// processes there is no order.
//
// The zero value is not usable; get one from Client.RLock.
type RLock struct {
	l *engine.Lock
}

var _ lock.Locker = (*RLock)(nil)

// New makes the lock object; programs call Client.RLock.
func New(c *engine.Core, name string, opts ...lock.Option) *RLock {
	set := lock.Apply(opts)
	return &RLock{c.NewLock(name, func(key string) (kind.Kind, error) {
		return newKind(c, key, set)
	})}
}

// Name is the name as the caller gave it.
func (r *RLock) Name() string { return r.l.Name() }

// Lock blocks until the lock is acquired or ctx ends. Without [lock.WithLease]
// the watchdog keeps it until Unlock.
//
// Errors: [lock.ErrNotAcquired] together with ctx.Err() when ctx ended first,
// [lock.ErrInvalidName], [lock.ErrInvalidOption], [lock.ErrClosed],
// [lock.ErrReplicaAcks], and a [*lock.ServerError] when the server refuses for
// good. While the server can't be reached Lock keeps trying. After an error
// nothing is held, and nothing stays on the server once it answers.
func (r *RLock) Lock(ctx context.Context, opts ...lock.AcquireOption) (lock.Hold, error) {
	return r.l.Lock(ctx, opts...)
}

// TryLock blocks for at most wait; see [lock.Locker]. Besides the errors of Lock
// it returns [lock.ErrUnavailable] when the server could not be asked to the
// end of the wait.
func (r *RLock) TryLock(ctx context.Context, wait, lease time.Duration) (lock.Hold, error) {
	return r.l.TryLock(ctx, wait, lease)
}

// Do runs fn while holding the lock; see [lock.Do].
func (r *RLock) Do(ctx context.Context, fn func(ctx context.Context) error, opts ...lock.AcquireOption) error {
	return lock.Do(ctx, r, fn, opts...)
}

// State asks the server who holds the lock. It blocks until the server answers,
// ctx ends or the Client's UnlockTimeout has passed ([lock.ErrUnavailable]). A
// key of this name that is no lock is an [lock.ErrInvalidName].
func (r *RLock) State(ctx context.Context) (lock.State, error) { return r.l.State(ctx) }

// ForceUnlock takes the lock away from whoever holds it and wakes a waiter. It
// is for operators: the holder learns of it at its next check only, up to a
// third of LeaseTime later. It reports whether the lock was held. A key of this
// name that is no lock is not touched and an [lock.ErrInvalidName]. It blocks as
// State does.
func (r *RLock) ForceUnlock(ctx context.Context) (bool, error) {
	return r.l.ForceUnlock(ctx)
}

// Engine is the lock inside, for MultiLock.
func (r *RLock) Engine() *engine.Lock { return r.l }
