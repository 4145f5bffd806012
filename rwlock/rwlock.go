package rwlock

import (
	"context"
	"time"

	"github.com/redlatch/redlatch/internal/engine"
	"github.com/redlatch/redlatch/internal/inspect"
	"github.com/redlatch/redlatch/internal/kind"
	"github.com/redlatch/redlatch/internal/settings"
	"github.com/redlatch/redlatch/lock"
)

// PreferReaders lets readers in while writers wait, as Redisson does: readers
// that come without a pause keep writers out for ever. It acts on the read locks
// of the object that it is given to; readers of another object of the same name still
// stand back. Without it, readers that arrive after a waiting writer stand back until
// that writer has had its turn, has given up or has died.
func PreferReaders() lock.Option {
	return settings.Func[settings.Lock](func(s *settings.Lock) { s.PreferReaders = true })
}

// ShareReads lets the readers of one process share a hold on the server: a reader
// that comes while another one of the process is inside enters without a command, and
// readers that come at the same time send one for all. Use it for locks that a process
// reads far more often than it could ask the server. It acts on the read locks of the
// object that it is given to.
//
// The process can't see writers of other processes. So a shared hold admits readers only
// for the Client's Tenure (6 ms by default), counted from when it was asked for. While a
// writer of this process waits, it admits none, unless with [PreferReaders]. Readers that
// come later ask the server and stand back as usual. With a negative Tenure nothing is
// shared.
//
// Each reader has its own hold and context. The Unlock of the last one gives the shared
// hold back; the others' send nothing. If the shared hold is lost, all contexts end with
// [lock.ErrLeaseLost]. On the server, in State and in ForceUnlock they are one reader: the
// one who came first.
//
// Readers that wait for a writer stand in line behind the first of them, who asks the server
// for all. They enter together, as if each had asked, and the writer's end costs one command.
// If the first gives up just when the writer leaves, the others may wait for one writer more.
//
// A re-entry with a lease of its own raises the lease of the shared hold. If the process
// dies, writers wait for that lease.
//
// Some readers have holds of their own all the same: those with a fixed lease, those who read
// under their own write lock, and members of a QuorumLock. For other kinds of lock the option
// is a [lock.ErrInvalidOption].
func ShareReads() lock.Option {
	return settings.Func[settings.Lock](func(s *settings.Lock) { s.ShareReads = true })
}

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

// ReadWriteLock is two locks with one name: any number of owners hold the read lock, or
// one owner holds the write lock. It has no state: any number of them may exist for one
// name, and any number of goroutines may use one.
//
// The zero value is not usable; get one from Client.ReadWriteLock.
type ReadWriteLock struct {
	read  ReadLock
	write WriteLock
}

// Name returns the name as the caller gave it.
func (l *ReadWriteLock) Name() string { return l.read.Name() }

// ReadLock returns the lock that readers share.
func (l *ReadWriteLock) ReadLock() *ReadLock { return &l.read }

// WriteLock returns the exclusive lock.
func (l *ReadWriteLock) WriteLock() *WriteLock { return &l.write }

// State asks the server who holds the lock in which mode; see [ReadLock.State].
func (l *ReadWriteLock) State(ctx context.Context) (lock.State, error) { return l.read.State(ctx) }

// ForceUnlock ends all holds of all owners, in whatever mode, and wakes waiting readers and
// writers as an unlock does. It reports whether there was a hold. The rest is as with
// [ReadLock.ForceUnlock].
func (l *ReadWriteLock) ForceUnlock(ctx context.Context) (bool, error) {
	return engine.Of(&l.read.reads).ForceUnlockOf(ctx, inspect.ReadWrite)
}

// ReadLock is the shared mode of a [ReadWriteLock]. It is safe for concurrent
// use.
type ReadLock struct{ reads }

type reads = engine.Handle[readBuilder]

type readBuilder struct{}

// Kind implements engine.Builder.
func (readBuilder) Kind(c *engine.Core, key string, set settings.Lock) (kind.Kind, error) {
	k, err := newKeys(c, key, set)
	if err != nil {
		return nil, err
	}
	return readKind{k}, nil
}

var _ lock.Locker = (*ReadLock)(nil)

// Name returns the name as the caller gave it.
func (r *ReadLock) Name() string { return engine.Of(&r.reads).Name() }

// Lock blocks while a writer holds the lock, or has been waiting for it since before
// this call (docs/SAFETY.md). An owner that already holds the read lock or the
// write lock re-enters at once. When a write lock is unlocked or downgraded, all waiting
// readers enter together.
//
// Each hold has its own lease. With [lock.Fenced], Token is that of the last writer; 0 if
// there was none, or if nobody, reader or writer, acquired the lock fenced for the Client's
// FenceTTL.
//
// Errors: [lock.ErrNotAcquired] together with ctx.Err() if ctx ended first, or
// [lock.ErrUnavailable] instead if the server failed or was silent; [lock.ErrInvalidName],
// [lock.ErrInvalidOption], [lock.ErrClosed], [lock.ErrReplicaAcks], and a
// [*lock.ServerError] if the server refuses permanently. While the server can't be
// reached Lock keeps trying. After an error nothing is held, and nothing stays on the
// server, as soon as it answers.
func (r *ReadLock) Lock(ctx context.Context, opts ...lock.AcquireOption) (lock.Hold, error) {
	return engine.Of(&r.reads).Lock(ctx, opts...)
}

// TryLock blocks for at most wait. With a wait of 0 it is one attempt: it fails while a writer waits, even if readers
// are inside. The watchdog renews a lease of 0 until Unlock; any other lease is fixed.
//
// If the lock stays busy it returns [lock.ErrNotAcquired], or [lock.ErrUnavailable] instead if the server failed or was
// silent. The other errors are those of Lock; [lock.Locker] says more.
func (r *ReadLock) TryLock(ctx context.Context, wait, lease time.Duration) (lock.Hold, error) {
	return engine.Of(&r.reads).TryLock(ctx, wait, lease)
}

// Do runs fn while holding the read lock; see [lock.Do].
func (r *ReadLock) Do(ctx context.Context, fn func(ctx context.Context) error, opts ...lock.AcquireOption) error {
	return lock.Do(ctx, r, fn, opts...)
}

// TryDo runs fn while holding the read lock, if it gets it within wait; see [lock.TryDo].
func (r *ReadLock) TryDo(ctx context.Context, wait, lease time.Duration, fn func(ctx context.Context) error) error {
	return lock.TryDo(ctx, r, wait, lease, fn)
}

// State asks the server who holds the lock, in either mode, with each owner's count and
// remaining lease. QueueLength counts those that [lock.State] says. Queue lists the
// writers alone, the first of each process, in the order in which readers stand back for
// them. It blocks until the server answers, ctx ends (ctx.Err()) or the Client's
// UnlockTimeout has passed ([lock.ErrUnavailable]). If the key is not a read-write lock, it
// returns [lock.ErrInvalidName].
func (r *ReadLock) State(ctx context.Context) (lock.State, error) {
	return engine.Of(&r.reads).State(ctx)
}

// ForceUnlock ends all read holds of all owners; the write lock of an owner that also
// reads stays. It is for operators: the holders learn of the loss only at their next
// check, up to a third of LeaseTime later; holds of this Client are checked at once. It
// reports whether there was a read hold. If the key is not a read-write lock, it returns
// [lock.ErrInvalidName] and changes nothing. It blocks as State does; after
// [lock.ErrUnavailable] or ctx.Err() it is not known whether the holds were ended. If it returns
// true together with a [*lock.ServerError], that was done, and nobody was woken: waiters look by
// themselves within seconds.
func (r *ReadLock) ForceUnlock(ctx context.Context) (bool, error) {
	return engine.Of(&r.reads).ForceUnlock(ctx)
}

// WriteLock is the exclusive mode of a [ReadWriteLock]. It is safe for
// concurrent use.
type WriteLock struct{ writes }

type writes = engine.Handle[writeBuilder]

type writeBuilder struct{}

// Kind implements engine.Builder.
func (writeBuilder) Kind(c *engine.Core, key string, set settings.Lock) (kind.Kind, error) {
	k, err := newKeys(c, key, set)
	if err != nil {
		return nil, err
	}
	return writeKind{k}, nil
}

var _ lock.Locker = (*WriteLock)(nil)

// Name returns the name as the caller gave it.
func (w *WriteLock) Name() string { return engine.Of(&w.writes).Name() }

// Lock blocks until the owner has the lock alone or ctx ends: the readers inside must
// have left, and so must those whose turn began with the last write unlock. Writers enter in
// the order in which they came, in a process and between processes; one whose turn it is and
// that does not come (its process stands still) holds up the others for 1.25 s at most.
//
// An owner that holds the write lock re-enters, and may take the read lock, too. If it
// then unlocks the write lock first, the lock is downgraded, and other readers enter at
// that moment. Take the read lock with [context.WithoutCancel] of the write hold's context
// then: the write hold's own context ends with its Unlock, and so would the reader's.
//
// An owner that holds only the read lock gets [lock.ErrUpgrade] at once: two such owners
// would wait for each other for ever. It must unlock its read holds first, and read again
// what it read under them.
//
// The other errors are those of [ReadLock.Lock].
func (w *WriteLock) Lock(ctx context.Context, opts ...lock.AcquireOption) (lock.Hold, error) {
	return engine.Of(&w.writes).Lock(ctx, opts...)
}

// TryLock blocks for at most wait. With a wait of 0 it is one attempt, which fails while a writer that came before, or
// readers, have their turn, though the lock is free by then. Readers that arrived meanwhile and stood back enter when
// it gives up. The watchdog renews a lease of 0 until Unlock; any other lease is fixed.
//
// If the lock stays busy it returns [lock.ErrNotAcquired], or [lock.ErrUnavailable] instead if the server failed or was
// silent. The other errors are those of [WriteLock.Lock]; [lock.Locker] says more.
func (w *WriteLock) TryLock(ctx context.Context, wait, lease time.Duration) (lock.Hold, error) {
	return engine.Of(&w.writes).TryLock(ctx, wait, lease)
}

// Do runs fn while holding the write lock; see [lock.Do].
func (w *WriteLock) Do(ctx context.Context, fn func(ctx context.Context) error, opts ...lock.AcquireOption) error {
	return lock.Do(ctx, w, fn, opts...)
}

// TryDo runs fn while holding the write lock, if it gets it within wait; see [lock.TryDo].
func (w *WriteLock) TryDo(ctx context.Context, wait, lease time.Duration, fn func(ctx context.Context) error) error {
	return lock.TryDo(ctx, w, wait, lease, fn)
}

// State is the same as [ReadLock.State]: there is one state for both modes.
func (w *WriteLock) State(ctx context.Context) (lock.State, error) {
	return engine.Of(&w.writes).State(ctx)
}

// ForceUnlock takes the write lock away from its holder, and wakes waiting readers and
// writers as an unlock does. Read holds of that holder stay. The rest is as with
// [ReadLock.ForceUnlock].
func (w *WriteLock) ForceUnlock(ctx context.Context) (bool, error) {
	return engine.Of(&w.writes).ForceUnlock(ctx)
}
