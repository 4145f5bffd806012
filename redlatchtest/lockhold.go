package redlatchtest

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/held"
	"github.com/redlatch/redlatch/lock"
)

// hold implements redlatch.Hold for a Locker.
type hold struct {
	l     *Locker
	owner *owner
	ctx   context.Context
	end   context.CancelCauseFunc
	done  func() // the owner lives by its holds

	until time.Time   // guarded by l.mu; of a fixed lease; zero: the watchdog's
	timer *time.Timer // guarded by l.mu; ends a fixed lease
	err   error       // guarded by l.mu; what Unlock returns after the hold has ended
}

// newHold is called under l.mu.
func newHold(who *asker, l *Locker, o *owner) *hold {
	h := &hold{l: l, owner: o, done: who.done}
	h.ctx, h.end = context.WithCancelCause(who.ctx)
	if lease := who.lease; lease > 0 {
		h.until = time.Now().Add(lease)
		h.timer = time.AfterFunc(lease, h.expire) // stopped when the hold ends
	}
	return h
}

// expire ends a hold whose fixed lease is over.
func (h *hold) expire() {
	lost := &redlatch.LeaseLostError{Name: h.l.name, Owner: us, Reason: lock.LossExpired, At: time.Now()}
	h.l.mu.Lock()
	defer h.l.mu.Unlock()
	if !time.Now().Before(h.until) { // not extended
		h.dropLocked(lost, lost)
		h.l.wakeLocked()
	}
}

// dropLocked ends the hold's context with cause and takes the hold away from its owner,
// and the lock when it was the last one; err is what Unlock says from now on. The context
// ends first, so that no two sections are ever inside. It does nothing if the hold has
// ended already.
func (h *hold) dropLocked(cause, err error) {
	at := slices.Index(h.owner.holds, h)
	if at < 0 {
		return
	}
	h.end(cause) // runs nothing of others: context.AfterFunc has goroutines of its own
	h.owner.holds = slices.Delete(h.owner.holds, at, at+1)
	if len(h.owner.holds) == 0 && h.l.holder == h.owner {
		h.l.holder = nil
	}
	h.err = err
	h.done()
	if h.timer != nil {
		h.timer.Stop()
	}
}

// Name implements redlatch.Hold.
func (h *hold) Name() string { return h.l.name }

// Context implements redlatch.Hold.
func (h *hold) Context() context.Context { return h.ctx }

// Unlock implements redlatch.Hold. It never blocks.
func (h *hold) Unlock(context.Context) error {
	h.l.mu.Lock()
	defer h.l.mu.Unlock()
	switch {
	case errors.Is(h.err, redlatch.ErrLeaseLost):
		err := h.err
		h.err = redlatch.ErrNotHeld // it has been told
		return err
	case h.err != nil:
		return h.err
	case h.l.broken:
		h.end(redlatch.ErrUnlocked)       // the section is over
		return h.l.unavailable("release") // but held: Unlock may be called again
	}
	h.dropLocked(redlatch.ErrUnlocked, redlatch.ErrNotHeld)
	h.l.wakeLocked()
	return nil
}

// Extend implements redlatch.Hold. It never blocks.
func (h *hold) Extend(ctx context.Context, lease time.Duration) error {
	if lease <= 0 {
		return &redlatch.InvalidOptionError{Option: "lease", Reason: "it is not positive"}
	}
	if err := held.CheckLease(lease); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	h.l.mu.Lock()
	defer h.l.mu.Unlock()
	switch {
	case h.err != nil:
		return h.err
	case h.l.broken:
		return h.l.unavailable("extend")
	}
	if until := time.Now().Add(lease); h.timer != nil && until.After(h.until) {
		h.until = until
		h.timer.Reset(lease)
	}
	return nil
}

// Token implements redlatch.Hold.
func (h *hold) Token() uint64 { return h.owner.token }

// ValidUntil implements redlatch.Hold.
func (h *hold) ValidUntil() time.Time {
	h.l.mu.Lock()
	defer h.l.mu.Unlock()
	return h.untilLocked()
}

func (h *hold) untilLocked() time.Time {
	if h.timer == nil {
		return time.Now().Add(redlatch.DefaultLeaseTime)
	}
	return h.until
}
