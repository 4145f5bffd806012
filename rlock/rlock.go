// Package rlock provides the re-entrant lock: exclusive, not fair across processes, the
// fastest kind. Its format on the server is that of Redisson's RLock. Programs get an RLock
// from Client.RLock and need not import this package.
package rlock

import (
	"context"
	"time"

	"github.com/redlatch/redlatch/internal/engine"
	"github.com/redlatch/redlatch/internal/kind"
	"github.com/redlatch/redlatch/internal/settings"
	"github.com/redlatch/redlatch/lock"
)

// RLock is a named re-entrant lock: R as in Redisson, where it stands for re-entrant.
// The read lock is ReadLock of a ReadWriteLock. An RLock has no state: any number of them
// may exist for one name, and any number of goroutines may use one. Each Lock is an
// acquisition by the owner in its context, or by a new owner. The waiters of one process
// are served in order; between processes there is no order.
//
// The zero value is not usable; get one from Client.RLock.
type RLock struct{ handle }

type handle = engine.Handle[builder]

type builder struct{}

// Kind implements engine.Builder.
func (builder) Kind(c *engine.Core, key string, set settings.Lock) (kind.Kind, error) {
	return newKind(c, key, set)
}

var _ lock.Locker = (*RLock)(nil)

// Name returns the name as the caller gave it.
func (r *RLock) Name() string { return engine.Of(&r.handle).Name() }

// Lock blocks until the lock is acquired or ctx ends. Without [lock.WithLease]
// the watchdog keeps it until Unlock.
//
// Errors: [lock.ErrNotAcquired] together with ctx.Err() if ctx ended first, or
// [lock.ErrUnavailable] instead if the server failed or was silent; [lock.ErrInvalidName],
// [lock.ErrInvalidOption], [lock.ErrClosed], [lock.ErrReplicaAcks], and a
// [*lock.ServerError] if the server refuses permanently. While the server can't be
// reached Lock keeps trying. After an error nothing is held, and nothing stays on the
// server, as soon as it answers.
func (r *RLock) Lock(ctx context.Context, opts ...lock.AcquireOption) (lock.Hold, error) {
	return engine.Of(&r.handle).Lock(ctx, opts...)
}

// TryLock blocks for at most wait; a wait of 0 is one attempt. The watchdog renews a lease of 0 until Unlock; any
// other lease is fixed.
//
// If the lock stays busy it returns [lock.ErrNotAcquired], or [lock.ErrUnavailable] instead if the server failed or was
// silent. The other errors are those of Lock; [lock.Locker] says more.
func (r *RLock) TryLock(ctx context.Context, wait, lease time.Duration) (lock.Hold, error) {
	return engine.Of(&r.handle).TryLock(ctx, wait, lease)
}

// Do runs fn while holding the lock; see [lock.Do].
func (r *RLock) Do(ctx context.Context, fn func(ctx context.Context) error, opts ...lock.AcquireOption) error {
	return lock.Do(ctx, r, fn, opts...)
}

// TryDo runs fn while holding the lock, if it gets it within wait; see [lock.TryDo].
func (r *RLock) TryDo(ctx context.Context, wait, lease time.Duration, fn func(ctx context.Context) error) error {
	return lock.TryDo(ctx, r, wait, lease, fn)
}

// State asks the server who holds the lock. It blocks until the server answers, ctx
// ends (ctx.Err()) or the Client's UnlockTimeout has passed ([lock.ErrUnavailable]). If
// the key is a read-write lock, or no lock, it returns [lock.ErrInvalidName].
func (r *RLock) State(ctx context.Context) (lock.State, error) {
	return engine.Of(&r.handle).State(ctx)
}

// ForceUnlock takes the lock away from its holder and wakes a waiter. It is for
// operators: the holder learns of the loss only at its next check, up to a third of
// LeaseTime later, or a round trip later if it is a hold of this Client. It reports whether
// the lock was held. If the key is a read-write lock, or no lock, it returns
// [lock.ErrInvalidName] and changes nothing. It blocks as State does; after
// [lock.ErrUnavailable] or ctx.Err() it is not known whether the lock was taken away. If it returns
// true together with a [*lock.ServerError], that was done, and nobody was woken: waiters look by
// themselves within seconds.
func (r *RLock) ForceUnlock(ctx context.Context) (bool, error) {
	return engine.Of(&r.handle).ForceUnlock(ctx)
}
