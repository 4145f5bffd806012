package redlatchtest

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/engine"
	"github.com/redlatch/redlatch/internal/lease"
	"github.com/redlatch/redlatch/internal/settings"
	"github.com/redlatch/redlatch/lock"
)

// errBroken is the failure of a Locker that was made unavailable.
var errBroken = errors.New("made unavailable")

// Locker is a lock without a server, for tests of code that takes a [redlatch.Locker].
// It behaves like an RLock: it excludes, serves waiters in order, re-enters (with a hold's
// context, also that of another lock's hold, and with [redlatch.WithOwner]), and returns
// errors of the same types. And it fails on demand: busy, lost, unavailable, closed, or
// with any error. It is safe for concurrent use and works in bubbles of testing/synctest.
type Locker struct {
	name   string
	fenced bool

	mu       sync.Mutex
	holder   *owner          // guarded by mu; nil: free
	foreign  string          // guarded by mu; who holds it, if that is not one of ours
	queue    []chan struct{} // guarded by mu; told of every change; the first in it may take a free lock
	token    uint64          // guarded by mu
	broken   bool            // guarded by mu
	failing  error           // guarded by mu
	closed   bool            // guarded by mu
	acquired int             // guarded by mu
}

// NewLocker returns a free lock. It ignores all options except [redlatch.Fenced], so that it can
// stand for a lock of any kind.
func NewLocker(name string, opts ...redlatch.Option) *Locker {
	return &Locker{name: name, fenced: settings.Of[settings.Lock](opts).Fenced}
}

var _ redlatch.Locker = (*Locker)(nil)

// us is the owner of all holds.
var (
	usID = redlatch.OwnerID{Client: "redlatchtest", Owner: "code under test"}
	us   = usID.String()
)

// owner is who holds a Locker.
type owner struct {
	id    any     // as engine.OwnerOf tells owners apart
	holds []*hold // guarded by Locker.mu
	token uint64
}

// Name returns the name as the caller gave it.
func (l *Locker) Name() string { return l.name }

// change does something to the lock and lets waiters look at it.
func (l *Locker) change(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f()
	l.wakeLocked()
}

func (l *Locker) wakeLocked() {
	for _, waiter := range l.queue {
		select {
		case waiter <- struct{}{}:
		default: // it has been told
		}
	}
}

// Busy makes another holder, who has this name in errors, hold the lock until free is
// called. The code under test loses its holds, as if their lease had ended unnoticed.
func (l *Locker) Busy(holder string) (free func()) {
	l.lose(func() { l.foreign = holder })
	return func() {
		l.change(func() {
			if l.foreign == holder {
				l.foreign = ""
			}
		})
	}
}

// Lose takes the lock away from the code under test: the contexts of its holds end with
// cause ErrLeaseLost, and Unlock returns it. Then the lock is free. Lose reports whether
// it was held.
func (l *Locker) Lose() bool { return l.lose(func() {}) }

// SetUnavailable simulates that the server is away, or back. While it is away, Lock waits
// until its ctx ends and TryLock until its wait is over; both errors match
// ErrUnavailable. Unlock and Extend return ErrUnavailable at once. When the server is
// back, the holds whose Unlock failed are freed, as a Client does in the background, and
// another Unlock of them returns nil, once. However long the server is away, no other hold
// is lost but one whose fixed lease ends: see [Locker.Lose].
func (l *Locker) SetUnavailable(away bool) {
	l.change(func() {
		l.broken = away
		if away || l.holder == nil {
			return
		}
		for _, h := range slices.Clone(l.holder.holds) {
			if h.leaving {
				h.dropLocked(redlatch.ErrUnlocked, nil)
			}
		}
	})
}

// SetError makes acquisitions fail at once with err, for instance a
// [redlatch.ReplicaAcksError] or a [redlatch.ServerError]; nil stops it.
func (l *Locker) SetError(err error) { l.change(func() { l.failing = err }) }

// Close simulates closing the Client: all calls return ErrClosed, and the contexts of
// holds end with that cause.
func (l *Locker) Close() {
	l.end(redlatch.ErrClosed, func() { l.closed = true })
}

// Holds returns the holds that the code under test has not unlocked. An Unlock counts also if it
// failed because the server was away.
func (l *Locker) Holds() []redlatch.Hold {
	l.mu.Lock()
	defer l.mu.Unlock()
	var all []redlatch.Hold
	if l.holder != nil {
		for _, h := range l.holder.holds {
			if !h.leaving {
				all = append(all, h)
			}
		}
	}
	return all
}

// Waiting returns the number of acquisitions that wait.
func (l *Locker) Waiting() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.queue)
}

// Acquired returns the number of successful acquisitions, re-entries included.
func (l *Locker) Acquired() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.acquired
}

func (l *Locker) lose(change func()) bool {
	return l.end(&redlatch.LeaseLostError{Name: l.name, Owner: us, Reason: lock.LossGone, At: time.Now()}, change)
}

// end frees the lock, changes something and ends the holds that there were.
func (l *Locker) end(cause error, change func()) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	var ended []*hold
	if l.holder != nil {
		ended = slices.Clone(l.holder.holds)
	}
	for _, h := range ended {
		h.dropLocked(cause, cause)
	}
	change()
	l.wakeLocked()
	return len(ended) > 0
}

// Lock implements [redlatch.Locker]: it blocks until the lock is acquired, ctx ends or an
// error was set.
func (l *Locker) Lock(ctx context.Context, opts ...redlatch.AcquireOption) (redlatch.Hold, error) {
	return l.acquire(ctx, nil, false, lock.SettingsOf(opts).Lease)
}

// TryLock implements [redlatch.Locker]: it blocks for at most wait.
func (l *Locker) TryLock(ctx context.Context, wait, lease time.Duration) (redlatch.Hold, error) {
	switch {
	case wait < 0:
		return nil, &redlatch.InvalidOptionError{Option: "wait", Reason: "it is negative"}
	case wait == 0:
		return l.acquire(ctx, nil, true, lease)
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	return l.acquire(ctx, timer.C, false, lease)
}

// acquire tries and waits until expiry fires, if it is not nil, or only tries.
func (l *Locker) acquire(ctx context.Context, expiry <-chan time.Time, only bool, length time.Duration) (redlatch.Hold, error) {
	if err := lease.Check(length); err != nil {
		return nil, err
	}
	who := &asker{lease: length}
	who.ctx, _, who.done = engine.OneOwner(ctx, ctx)
	var err error
	if who.id, err = engine.OwnerOf(who.ctx); err == nil {
		var h *hold
		if h, err = l.wait(who, expiry, only); err == nil {
			return h, nil
		}
	}
	who.done()
	return nil, err
}

// asker is who acquires.
type asker struct {
	ctx   context.Context // carries the owner
	id    any             // the owner
	done  func()          // when the hold has ended, or there is none: the owner lives by its holds
	lease time.Duration
}

func (l *Locker) wait(who *asker, expiry <-chan time.Time, only bool) (*hold, error) {
	ctx := who.ctx
	wake := make(chan struct{}, 1)
	defer l.leave(wake)
	for {
		if ctx.Err() != nil {
			return nil, l.refuse(engine.CtxError(ctx))
		}
		h, err := l.try(who, wake, !only)
		if h != nil {
			return h, nil
		}
		if err != nil {
			return nil, err
		}
		if only {
			return nil, l.refuse(nil)
		}
		select {
		case <-wake:
		case <-expiry:
			return nil, l.refuse(nil)
		case <-ctx.Done():
			return nil, l.refuse(engine.CtxError(ctx))
		}
	}
}

// try makes one attempt: a hold, an error that no waiting changes, or neither.
func (l *Locker) try(who *asker, wake chan struct{}, queue bool) (*hold, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.closed:
		return nil, redlatch.ErrClosed
	case l.failing != nil:
		return nil, l.failing
	}
	inside := l.holder != nil && l.holder.id == who.id
	at := slices.Index(l.queue, wake)
	first := at == 0 || len(l.queue) == 0
	if l.broken || !inside && (l.holder != nil || l.foreign != "" || !first) {
		if queue && at < 0 {
			l.queue = append(l.queue, wake)
		}
		return nil, nil
	}
	if !inside {
		l.holder = &owner{id: who.id}
		if l.fenced {
			l.token++
			l.holder.token = l.token
		}
	}
	h := newHold(who, l, l.holder)
	l.holder.holds = append(l.holder.holds, h)
	l.acquired++
	return h, nil
}

// leave takes a waiter out of the queue and wakes the next one.
func (l *Locker) leave(wake chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if at := slices.Index(l.queue, wake); at >= 0 {
		l.queue = slices.Delete(l.queue, at, at+1)
		l.wakeLocked()
	}
}

// refuse is the error of an acquisition whose wait or ctx is over.
func (l *Locker) refuse(cause error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := &redlatch.NotAcquiredError{Name: l.name, Holder: l.foreign, Err: cause}
	if l.foreign != "" {
		e.Remaining = redlatch.DefaultLeaseTime
	}
	if l.holder != nil {
		e.Holder, e.Own = us, true
		for _, h := range l.holder.holds {
			e.Remaining = max(e.Remaining, time.Until(h.untilLocked()))
		}
	}
	if l.broken {
		e.Err = lock.Join(cause, l.unavailable("acquire"))
	}
	return e
}

func (l *Locker) unavailable(op string) error {
	return &redlatch.UnavailableError{Name: l.name, Op: op, Nodes: []redlatch.NodeError{{Node: "redlatchtest", Err: errBroken}}}
}
