package held

import (
	"context"
	"time"

	"github.com/redlatch/redlatch/internal/kind"
	"github.com/redlatch/redlatch/internal/lease"
	"github.com/redlatch/redlatch/lock"
)

type holdState uint8

const (
	stateHeld holdState = iota
	stateReleasing
	stateReleased
	stateLost
	stateClosed
)

// Hold implements lock.Hold. Its session says what the server knows of it.
type Hold struct {
	session *Session
	claim   *Claim          // retained until the hold has ended
	parent  context.Context // what the acquisition was made with
	began   time.Duration   // when the command that got it was sent, on the registry's clock
	lease   time.Duration   // fixed; 0: the watchdog's
	link    any             // the observer's, of the acquisition
	reentry bool
	counted bool // an observer counts it as held

	// guarded by reg.mu
	alive          bool // counts in Owner.live
	kept           bool // the watchdog keeps the session for it
	own            bool // it has a deadline of its own: until
	state          holdState
	unlockLeft     bool          // an Unlock gave up waiting; what it began went on
	endedAsPlanned bool          // its fixed lease ended when it was to end
	wholeLost      bool          // what it is a part of was lost: it is renewed no more
	leavesBehind   bool          // more than its lease was asked of the server, or a late command may still come
	index          int32         // in the session's list
	passes         int32         // of a lost one: how often its session had been passed on
	until          time.Time     // a fixed lease's local deadline, or what Extend promised
	untilLease     time.Duration // the lease that until comes from
	fullUntil      *time.Time    // of a quorum's copy: the local deadline that renewals lead until to; nil: until is all
	ctx            *holdContext  // nil: nobody has asked for it
	ended          func()        // see OnEnd
	cause          error         // why it ended
	result         error         // what came of an Unlock that gave up waiting
	lost           *lock.LeaseLostError
}

// holdContext carries the hold's owner. It embeds the cancel context itself, so
// that contexts derived from it need no goroutine.
type holdContext struct {
	context.Context
	cancel  context.CancelCauseFunc // calls no code of the user's
	forget  func()                  // lets go of the parent, which may be a type of the user's; after cancel
	carries carried
}

// Value implements context.Context.
func (c *holdContext) Value(key any) any {
	if _, ok := key.(ownerKey); ok {
		return c.carries
	}
	return c.Context.Value(key)
}

// Name implements lock.Hold.
func (h *Hold) Name() string { return h.session.Lock.Name }

// Lock is the lock that is held.
func (h *Hold) Lock() *Lock { return h.session.Lock }

// Field is the owner as on the wire.
func (h *Hold) Field() kind.Field { return h.session.Field }

// Owner implements lock.Hold.
func (h *Hold) Owner() lock.OwnerID {
	id, _ := lock.ParseOwner(h.session.Name)
	return id
}

// Fenced reports whether the hold was acquired with a fencing token, which a reader gets from a writer.
func (h *Hold) Fenced() bool { return h.session.Lock.Kind.Traits().Fenced }

// Reentry reports whether the owner held the lock already.
func (h *Hold) Reentry() bool { return h.reentry }

// Counted reports whether an observer counts the hold.
func (h *Hold) Counted() bool { return h.counted }

// Context implements lock.Hold.
func (h *Hold) Context() context.Context {
	r := h.session.reg
	r.mu.Lock()
	ctx := h.ctx
	r.mu.Unlock()
	if ctx != nil {
		return ctx
	}
	// The parent may be a type of the user's: it is not called under the mutex.
	below, forget := context.WithCancel(h.parent)
	inner, cancel := context.WithCancelCause(below)
	fresh := &holdContext{Context: inner, cancel: cancel, forget: forget, carries: h.claim.Owner.carries()}
	r.mu.Lock()
	ctx = h.ctx
	if ctx == nil {
		h.ctx = fresh
	}
	over, cause := h.state != stateHeld, h.cause
	r.mu.Unlock()
	switch {
	case ctx != nil:
		forget()
		return ctx
	case over:
		cancel(cause)
		forget()
	}
	return fresh
}

// end ends the hold's context, which nobody may have asked for, and that of what the hold is a part of.
func (h *Hold) end() {
	r := h.session.reg
	r.mu.Lock()
	ctx, cause, ended := h.ctx, h.cause, h.ended
	h.ended = nil
	r.mu.Unlock()
	if ctx != nil {
		ctx.cancel(cause)
		r.cfg.News.Tell(ctx.forget)
	}
	if ended != nil {
		ended()
	}
}

// OnEnd has f called once, when the hold is lost or its client is closed, by whoever ends it: so
// the client's Close waits for that, as for the end itself. If it has ended so already, f is called
// at once. f must not block, and calls no code of the user's.
func (h *Hold) OnEnd(f func()) {
	r := h.session.reg
	r.mu.Lock()
	over := h.state == stateLost || h.state == stateClosed
	if !over {
		h.ended = f
	}
	r.mu.Unlock()
	if over {
		f()
	}
}

// Tell has an observer told in the background of what the hold's end brought about; the client's
// Close waits for that.
func (h *Hold) Tell(tell func()) { h.session.reg.cfg.News.Tell(tell) }

// Token implements lock.Hold.
func (h *Hold) Token() uint64 {
	r := h.session.reg
	r.mu.Lock()
	defer r.mu.Unlock()
	return h.session.token
}

// ValidUntil implements lock.Hold.
func (h *Hold) ValidUntil() time.Time {
	r := h.session.reg
	r.mu.Lock()
	defer r.mu.Unlock()
	return h.deadlineLocked()
}

// Count is how many holds the owner has.
func (h *Hold) Count() int {
	r := h.session.reg
	r.mu.Lock()
	defer r.mu.Unlock()
	if h.session.joined != nil {
		return int(h.session.joined[h.claim])
	}
	return len(h.session.holds)
}

// deadlineLocked is the hold's local deadline.
func (h *Hold) deadlineLocked() time.Time {
	if h.lease == 0 {
		return lease.Later(h.session.until, h.until)
	}
	return h.until
}

// Planned reports whether the hold ended as it was to end: a fixed lease whose full
// length passed.
func (h *Hold) Planned() bool {
	h.session.reg.mu.Lock()
	defer h.session.reg.mu.Unlock()
	return h.endedAsPlanned
}

// Ended is why the hold ended; nil while it is held, though the context that it was acquired with
// may have ended.
func (h *Hold) Ended() error {
	h.session.reg.mu.Lock()
	defer h.session.reg.mu.Unlock()
	if h.state == stateHeld {
		return nil
	}
	return h.cause
}

// retireLocked makes a hold no longer one that its owner lives by.
func (h *Hold) retireLocked() {
	if h.alive {
		h.alive = false
		h.claim.Owner.live.Add(-1)
	}
}

// endLocked takes a hold out of the counts. finish must follow, once, without
// the mutex.
func (h *Hold) endLocked(state holdState, cause error) {
	h.state = state
	if h.cause == nil {
		h.cause = cause
	}
	h.retireLocked()
	r := h.session.reg
	if r.held--; r.held == 0 && r.idle != nil {
		close(r.idle)
		r.idle = nil
	}
}

// since is when the hold began, by the wall clock of now.
func (h *Hold) since(now time.Time) time.Time { return now.Add(h.began - now.Sub(h.session.reg.epoch)) }

// loseLocked takes a hold away.
func (h *Hold) loseLocked(reason lock.LossReason, err error) {
	h.session.removeLocked(h)
	if reason == lock.LossGone && h.lease > 0 && lease.Passed(time.Now(), h.until) {
		reason = lock.LossExpired // nobody took it away
	}
	h.endedAsPlanned = reason == lock.LossExpired && h.lease > 0 && (h.reentry || h.session.grant == nil) &&
		(h.fullUntil == nil || lease.Passed(time.Now(), *h.fullUntil))
	h.lost = &lock.LeaseLostError{Name: h.session.Lock.Name, Owner: h.session.Name, Reason: reason, At: time.Now(), Err: err}
	h.passes = h.session.passes
	h.endLocked(stateLost, h.lost)
}

// Forsake has the hold renewed no more, since the whole that it is a part of was lost. It stays until Unlock, or
// to the latest end that the server was asked for: nothing is freed under a section that still runs.
func (h *Hold) Forsake() {
	r := h.session.reg
	r.mu.Lock()
	defer r.mu.Unlock()
	if h.state != stateHeld || h.wholeLost {
		return
	}
	s, length := h.session, r.cfg.LeaseTime
	h.wholeLost, h.fullUntil = true, nil
	h.until = lease.Later(h.deadlineLocked(), s.askedUntilLocked().Add(-lease.Drift(length)))
	if h.lease == 0 {
		s.unkeepLocked(h)
		h.countsOwnLocked()
		h.lease, h.untilLease = length, length
	}
	r.dog.scheduleLocked(s, time.Time{})
}

// finish ends the context of a hold that endLocked took out, drops its reference to the
// claim, and has its end told in the background.
func (h *Hold) finish(how string) {
	h.end()
	h.claim.Release()
	if r := h.session.reg; r.cfg.Observer != nil {
		lasted := h.lasted()
		r.cfg.News.Tell(func() { h.tellEnd(how, lasted) })
	}
}

// lasted is for how long the hold has been one.
func (h *Hold) lasted() time.Duration { return time.Since(h.session.reg.epoch) - h.began }

// tellEnd tells an observer that the hold has ended: in the background, or in the Unlock
// that ended it.
func (h *Hold) tellEnd(how string, lasted time.Duration) {
	if o := h.session.reg.cfg.Observer; o != nil {
		o.Ended(h.session.Lock.Observed(), h.link, h.counted, how, lasted)
	}
}

func (r *Registry) unavailable(name, op string, err error) error {
	return &lock.UnavailableError{Name: name, Op: op, Nodes: []lock.NodeError{{Node: r.cfg.Addr, Err: err}}}
}

// overLocked is why the hold can't be extended: nil while it is held.
func (h *Hold) overLocked() error {
	switch h.state {
	case stateHeld:
		return nil
	case stateLost:
		return h.lost
	case stateClosed:
		return lock.ErrClosed
	case stateReleasing, stateReleased:
	}
	return lock.ErrNotHeld
}
