package redlatchtest

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/lease"
	"github.com/redlatch/redlatch/lock"
)

// hold implements redlatch.Hold for a Locker.
type hold struct {
	l     *Locker
	owner *owner
	ctx   context.Context
	end   context.CancelCauseFunc
	began time.Time

	done    func()      // guarded by l.mu; the owner lives by its holds
	kept    bool        // guarded by l.mu; the watchdog renews it
	until   time.Time   // guarded by l.mu; the local deadline; of one that is kept, what Extend made of it
	timer   *time.Timer // guarded by l.mu; ends a fixed lease
	leaving bool        // guarded by l.mu; was unlocked while the server was away: it goes when that is back
	over    bool        // guarded by l.mu
	err     error       // guarded by l.mu; what Unlock returns when it is over
}

// newHold is called under l.mu.
func newHold(who *asker, l *Locker, o *owner) *hold {
	h := &hold{l: l, owner: o, done: who.done, began: time.Now(), kept: who.lease == 0}
	h.ctx, h.end = context.WithCancelCause(who.ctx)
	if !h.kept {
		h.until = lease.LocalDeadline(h.began, who.lease)
		h.timer = time.AfterFunc(h.until.Sub(h.began), h.expire) // stopped when the hold ends
	}
	return h
}

// expire ends a hold whose fixed lease is over.
func (h *hold) expire() {
	lost := &redlatch.LeaseLostError{Name: h.l.name, Owner: us, Reason: lock.LossExpired, At: time.Now()}
	h.l.mu.Lock()
	defer h.l.mu.Unlock()
	switch {
	case time.Now().Before(h.until): // extended
		return
	case h.leaving: // the lease came first
		h.dropLocked(lost, h.l.unavailable("release"))
	default:
		h.dropLocked(lost, lost)
	}
	h.l.wakeLocked()
}

// dropLocked ends the hold's context with cause and takes the hold away from its owner,
// and the lock when it was the last one; err is what Unlock says from now on. The context
// ends first, so that no two sections are ever inside. It does nothing if the hold has
// ended already.
func (h *hold) dropLocked(cause, err error) {
	if h.over {
		return
	}
	h.stopLocked(cause)
	h.over, h.err = true, err
	h.owner.holds = slices.DeleteFunc(h.owner.holds, func(one *hold) bool { return one == h })
	if len(h.owner.holds) == 0 && h.l.holder == h.owner {
		h.l.holder = nil
	}
	if h.timer != nil {
		h.timer.Stop()
	}
}

// stopLocked ends the hold's context, once. Its owner lives by it no longer, and nothing
// renews it.
func (h *hold) stopLocked(cause error) {
	if h.done == nil {
		return
	}
	h.end(cause) // runs nothing of others: context.AfterFunc has goroutines of its own
	h.done()
	h.until, h.kept, h.done = h.untilLocked(), false, nil
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
	case h.over:
		err := h.err
		if !errors.Is(err, redlatch.ErrClosed) {
			h.err = redlatch.ErrNotHeld // it has been told
		}
		return err
	case h.l.broken:
		h.stopLocked(redlatch.ErrUnlocked)
		h.leaving = true // and Unlock may be called again, to learn what came of it
		return h.l.unavailable("release")
	}
	h.dropLocked(redlatch.ErrUnlocked, redlatch.ErrNotHeld)
	h.l.wakeLocked()
	return nil
}

// Extend implements redlatch.Hold. It never blocks.
func (h *hold) Extend(ctx context.Context, length time.Duration) error {
	if length <= 0 {
		return &redlatch.InvalidOptionError{Option: "lease", Reason: "it is not positive"}
	}
	if err := lease.Check(length); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	h.l.mu.Lock()
	defer h.l.mu.Unlock()
	switch {
	case h.over && h.leaving:
		return redlatch.ErrNotHeld
	case h.over:
		return h.err
	case h.l.broken:
		return h.l.unavailable("extend")
	}
	now := time.Now()
	if until := lease.LocalDeadline(now, length); until.After(h.until) {
		h.until = until
		if h.timer != nil {
			h.timer.Reset(until.Sub(now))
		}
	}
	return nil
}

// Token implements redlatch.Hold.
func (h *hold) Token() uint64 { return h.owner.token }

// Owner implements redlatch.Hold.
func (h *hold) Owner() redlatch.OwnerID { return usID }

// ValidUntil implements redlatch.Hold.
func (h *hold) ValidUntil() time.Time {
	h.l.mu.Lock()
	defer h.l.mu.Unlock()
	return h.untilLocked()
}

func (h *hold) untilLocked() time.Time {
	if !h.kept {
		return h.until
	}
	renewed := h.began.Add(time.Since(h.began).Truncate(redlatch.DefaultLeaseTime / 3))
	if until := lease.LocalDeadline(renewed, redlatch.DefaultLeaseTime); until.After(h.until) {
		return until
	}
	return h.until
}
