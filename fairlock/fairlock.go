package fairlock

import (
	"context"
	"time"

	"github.com/redlatch/redlatch/internal/engine"
	"github.com/redlatch/redlatch/internal/kind"
	"github.com/redlatch/redlatch/internal/settings"
	"github.com/redlatch/redlatch/lock"
)

// FairLock is a named re-entrant lock that serves the waiters of all processes in the
// order in which they arrived at the server. It has no state: any number of them may
// exist for one name, and any number of goroutines may use one. Each Lock is an
// acquisition by the owner in its context, or by a new owner. A re-entry bypasses the
// queue; two waits of one owner have two places in it.
//
// The zero value is not usable; get one from Client.FairLock.
type FairLock struct{ handle }

type handle = engine.Handle[builder]

type builder struct{}

// Kind implements engine.Builder.
func (builder) Kind(c *engine.Core, key string, set settings.Lock) (kind.Kind, error) {
	return newKind(c, key, set)
}

var _ lock.Locker = (*FairLock)(nil)

const (
	// DefaultSkipAfter is [lock.DefaultSkipAfter].
	DefaultSkipAfter = lock.DefaultSkipAfter
	// MinSkipAfter is [lock.MinSkipAfter].
	MinSkipAfter = lock.MinSkipAfter
	// MaxSkipAfter is [lock.MaxSkipAfter].
	MaxSkipAfter = lock.MaxSkipAfter
)

// WithSkipAfter is [lock.WithSkipAfter].
func WithSkipAfter(d time.Duration) lock.Option { return lock.WithSkipAfter(d) }

// Name returns the name as the caller gave it.
func (f *FairLock) Name() string { return engine.Of(&f.handle).Name() }

// Lock blocks until the lock is acquired or ctx ends. Without [lock.WithLease]
// the watchdog keeps it until Unlock.
//
// The order is that of arrival at the server. If the wait ends early, the place in the
// queue is given up at once. If the lock was handed over at that moment, it goes to the
// next waiter.
//
// Errors: [lock.ErrNotAcquired] together with ctx.Err() if ctx ended first, or
// [lock.ErrUnavailable] instead if the server failed or was silent; [lock.ErrInvalidName],
// [lock.ErrInvalidOption], [lock.ErrClosed], [lock.ErrReplicaAcks], and a
// [*lock.ServerError] if the server refuses permanently. While the server can't be
// reached Lock keeps trying. After an error nothing is held, and nothing stays on the
// server, as soon as it answers.
func (f *FairLock) Lock(ctx context.Context, opts ...lock.AcquireOption) (lock.Hold, error) {
	return engine.Of(&f.handle).Lock(ctx, opts...)
}

// TryLock blocks for at most wait. With a wait of 0 it neither enters nor bypasses the queue: it acquires only a free
// lock without waiters. The watchdog renews a lease of 0 until Unlock; any other lease is fixed.
//
// If the lock stays busy it returns [lock.ErrNotAcquired], or [lock.ErrUnavailable] instead if the server failed or was
// silent. The other errors are those of Lock; [lock.Locker] says more.
func (f *FairLock) TryLock(ctx context.Context, wait, lease time.Duration) (lock.Hold, error) {
	return engine.Of(&f.handle).TryLock(ctx, wait, lease)
}

// Do runs fn while holding the lock; see [lock.Do].
func (f *FairLock) Do(ctx context.Context, fn func(ctx context.Context) error, opts ...lock.AcquireOption) error {
	return lock.Do(ctx, f, fn, opts...)
}

// TryDo runs fn while holding the lock, if it gets it within wait; see [lock.TryDo].
func (f *FairLock) TryDo(ctx context.Context, wait, lease time.Duration, fn func(ctx context.Context) error) error {
	return lock.TryDo(ctx, f, wait, lease, fn)
}

// State asks the server who holds the lock and who waits for it, in which order.
// It blocks until the server answers, ctx ends (ctx.Err()) or the Client's UnlockTimeout
// has passed ([lock.ErrUnavailable]). If the key is a read-write lock, or no lock, it
// returns [lock.ErrInvalidName].
func (f *FairLock) State(ctx context.Context) (lock.State, error) {
	return engine.Of(&f.handle).State(ctx)
}

// ForceUnlock takes the lock away from its holder and hands it to the first waiter in
// the queue. It is for operators: the holder learns of the loss only at its next check,
// up to a third of LeaseTime later, or a round trip later if it is a hold of this Client.
// It reports whether the lock was held. If the key is a read-write lock, or no lock, it
// returns [lock.ErrInvalidName] and changes nothing. It blocks as State does; after
// [lock.ErrUnavailable] or ctx.Err() it is not known whether the lock was taken away. If it returns
// true together with a [*lock.ServerError], that was done, and nobody was woken: waiters look by
// themselves within seconds.
func (f *FairLock) ForceUnlock(ctx context.Context) (bool, error) {
	return engine.Of(&f.handle).ForceUnlock(ctx)
}
