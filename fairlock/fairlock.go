package fairlock

import (
	"context"
	"time"

	"github.com/redlatch/redlatch/internal/engine"
	"github.com/redlatch/redlatch/internal/kind"
	"github.com/redlatch/redlatch/lock"
)

// FairLock is a re-entrant lock by name that serves all waiters, of all
// processes, in the order in which the server saw them arrive. It has no state
// of its own: any number of them may exist for one name, and one may be used by
// any number of goroutines, each Lock being an acquisition by the owner in its
// context, or by a new owner. A re-entry passes the queue; two waits of one owner
// are two places in it.
//
// The zero value is not usable; get one from Client.FairLock.
type FairLock struct {
	l *engine.Lock
}

var _ lock.Locker = (*FairLock)(nil)

// New makes the lock object; programs call Client.FairLock.
func New(c *engine.Core, name string, opts ...lock.Option) *FairLock {
	set := lock.Apply(opts)
	return &FairLock{c.NewLock(name, func(key string) (kind.Kind, error) {
		return newKind(c, key, set)
	})}
}

const (
	// DefaultSkipAfter is [lock.DefaultSkipAfter].
	DefaultSkipAfter = lock.DefaultSkipAfter
	// MinSkipAfter is [lock.MinSkipAfter].
	MinSkipAfter = lock.MinSkipAfter
)

// WithSkipAfter is [lock.WithSkipAfter].
func WithSkipAfter(d time.Duration) lock.Option { return lock.WithSkipAfter(d) }

// Name is the name as the caller gave it.
func (f *FairLock) Name() string { return f.l.Name() }

// Lock blocks until the lock is acquired or ctx ends. Without [lock.WithLease]
// the watchdog keeps it until Unlock.
//
// The order is that of arrival at the server. When the wait ends early the place
// in the queue is given up at once, and if the lock was handed over in that
// moment it is handed on.
//
// Errors: [lock.ErrNotAcquired] together with ctx.Err() when ctx ended first,
// [lock.ErrInvalidName], [lock.ErrInvalidOption], [lock.ErrClosed],
// [lock.ErrReplicaAcks], and a [*lock.ServerError] when the server refuses for
// good. While the server can't be reached Lock keeps trying. After an error
// nothing is held, and nothing stays on the server once it answers.
func (f *FairLock) Lock(ctx context.Context, opts ...lock.AcquireOption) (lock.Hold, error) {
	return f.l.Lock(ctx, opts...)
}

// TryLock blocks for at most wait; see [lock.Locker]. With wait 0 it neither
// enters the queue nor passes it: it acquires only a lock that is free and that
// nobody waits for. Besides the errors of Lock it returns [lock.ErrUnavailable]
// when the server could not be asked to the end of the wait.
func (f *FairLock) TryLock(ctx context.Context, wait, lease time.Duration) (lock.Hold, error) {
	return f.l.TryLock(ctx, wait, lease)
}

// Do runs fn while holding the lock; see [lock.Do].
func (f *FairLock) Do(ctx context.Context, fn func(ctx context.Context) error, opts ...lock.AcquireOption) error {
	return lock.Do(ctx, f, fn, opts...)
}

// State asks the server who holds the lock and who waits for it, in which order.
// It blocks until the server answers, ctx ends or the Client's UnlockTimeout has
// passed ([lock.ErrUnavailable]). A key of this name that is no lock is an
// [lock.ErrInvalidName].
func (f *FairLock) State(ctx context.Context) (lock.State, error) { return f.l.State(ctx) }

// ForceUnlock takes the lock away from whoever holds it and gives it to the first
// in the queue. It is for operators: the holder learns of it at its next check
// only, up to a third of LeaseTime later. It reports whether the lock was held.
// A key of this name that is no lock is not touched and an [lock.ErrInvalidName].
// It blocks as State does.
func (f *FairLock) ForceUnlock(ctx context.Context) (bool, error) {
	return f.l.ForceUnlock(ctx)
}

// Engine is the lock inside, for MultiLock.
func (f *FairLock) Engine() *engine.Lock { return f.l }
