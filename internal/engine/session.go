package engine

import (
	"context"
	"time"

	"github.com/redlatch/redlatch/lock"
)

// Session is one 0→1 acquisition with its re-entries: a field in the lock's
// hash. Its commands pass the slot's gate.
type Session struct {
	Lock   *Lock
	Field  string
	Token  uint64
	Traced bool // it left its trace context beside the lock
	Data   any  // the kind's own

	// Ends is when the lease ends on the server's clock, ms: the one that a partial
	// release means to lower; 0: none. Guarded by the slot's gate.
	Ends   int64
	lowers int // tries so far; guarded by the gate

	slot  *slot
	link  any // the observer's, of the acquisition
	limbo int // acquire commands that may still arrive

	// guarded by core.mu
	holds     []*Hold
	until     time.Time     // the watchdog holds' local deadline
	renewAt   time.Time     // next renewal or check
	confirm   time.Duration // a grant: what was asked for, until it is confirmed
	granted   time.Time     // when the grant was received
	confirmAt time.Time     // when to confirm it
	nextAt    time.Time     // when the watchdog must look
	index     int           // in its heap, -1: not there
	renewed   bool          // or checked, at least once
	lastErr   error
	dead      bool
}

// session is the name inside the package.
type session = Session

type holdState int

const (
	stateHeld holdState = iota
	stateReleasing
	stateReleased
	stateLost
	stateClosed
)

// Hold implements lock.Hold.
type Hold struct {
	s      *session
	ctx    context.Context
	cancel context.CancelCauseFunc
	began  time.Time
	lease  time.Duration // fixed; 0: the watchdog's
	again  bool          // a re-entry

	counted bool // an observer counts it as held

	// guarded by core.mu
	until  time.Time     // a fixed lease's local deadline, or what Extend promised
	lasts  time.Duration // the lease that until comes from
	state  holdState
	alive  bool  // counts in owner.live
	late   bool  // an Unlock gave up waiting; what it began went on
	result error // what came of it
	lost   *lock.LeaseLostError
}

// holdContext carries the hold's owner. It embeds the cancel context itself, so
// that contexts derived from it need no goroutine.
type holdContext struct {
	context.Context
	carries carried
}

// Value implements context.Context.
func (c *holdContext) Value(key any) any {
	if _, ok := key.(ownerKey); ok {
		return c.carries
	}
	return c.Context.Value(key)
}

// drift is what is taken off a lease for clocks that run at different rates and
// for rounding, as the Redlock description has it.
// https://redis.io/docs/latest/develop/use/patterns/distributed-locks/
func drift(lease time.Duration) time.Duration {
	return min(lease/100+2*time.Millisecond, lease/2)
}

// passed reports whether an instant has passed on the monotonic or on the wall
// clock: the former stands still while a machine sleeps.
func passed(now, at time.Time) bool {
	return !now.Before(at) || !now.Round(0).Before(at.Round(0))
}

// deadlineLocked is the hold's local deadline.
func (h *Hold) deadlineLocked() time.Time {
	if h.lease == 0 {
		return h.s.until
	}
	return h.until
}

// grant is a session with its first hold, in one piece of memory: most sessions
// have no other.
type grant struct {
	session session
	hold    holdMemory
	list    [1]*Hold
}

// holdMemory is a hold with its context.
type holdMemory struct {
	hold Hold
	ctx  holdContext
}

// newHoldLocked adds a hold to a session.
func (s *session) newHoldLocked(ctx context.Context, m *holdMemory, lease time.Duration, sent time.Time) *Hold {
	h := &m.hold
	h.s, h.lease, h.alive, h.began = s, lease, true, sent
	if obs := s.slot.core.cfg.Observer; obs != nil {
		h.counted = obs.Counting()
	}
	o := s.slot.owner
	carries := carried{owner: o}
	if o.core != nil {
		carries = carried{explicit: true, id: o.id}
	}
	inner, cancel := context.WithCancelCause(ctx)
	m.ctx = holdContext{inner, carries}
	h.ctx, h.cancel = &m.ctx, cancel
	if lease > 0 {
		h.until, h.lasts = sent.Add(lease-drift(lease)), lease
	}
	s.holds = append(s.holds, h)
	o.live.Add(1)
	s.slot.core.held++
	return h
}

// retireLocked makes a hold no longer one that its owner lives by.
func (h *Hold) retireLocked() {
	if h.alive {
		h.alive = false
		h.s.slot.owner.live.Add(-1)
	}
}

// endLocked takes a hold out of the counts. finish must follow, once, without
// the mutex.
func (h *Hold) endLocked(state holdState) {
	h.state = state
	h.retireLocked()
	c := h.s.slot.core
	if c.held--; c.held == 0 {
		close(c.idle)
		c.idle = make(chan struct{})
	}
}

// finish ends the context of a hold that endLocked took out, and drops its
// reference to the slot.
func (h *Hold) finish(cause error) {
	h.cancel(cause)
	if o := h.s.slot.core.cfg.Observer; o != nil {
		o.Ended(h.s.Lock.observed(), h.s.link, h.counted, endedHow(cause), time.Since(h.began))
	}
	h.s.slot.release()
}

// removeLocked takes a hold out of its session.
func (s *session) removeLocked(h *Hold) {
	for i, x := range s.holds {
		if x == h {
			s.holds = append(s.holds[:i], s.holds[i+1:]...)
			return
		}
	}
}

// dropSessionLocked ends a session: the owner no longer holds the lock as far as
// we know.
func (c *Core) dropSessionLocked(s *session) {
	if s.dead {
		return
	}
	s.dead = true
	c.dog.removeLocked(s)
	i := modeIndex(s.Lock.kind.Mode())
	if s.slot.sessions[i] == s {
		s.slot.sessions[i] = nil
	}
}

// loseLocked takes all of a session's holds away; the caller calls tell with
// the result once it has let go of the mutex.
func (c *Core) loseLocked(s *session, reason lock.LossReason, err error) []*Hold {
	lost := append([]*Hold(nil), s.holds...)
	for _, h := range lost {
		c.loseHoldLocked(h, reason, err)
	}
	c.dropSessionLocked(s)
	return lost
}

func (c *Core) loseHoldLocked(h *Hold, reason lock.LossReason, err error) {
	h.s.removeLocked(h)
	h.lost = &lock.LeaseLostError{Name: h.s.Lock.name, Owner: h.s.Field, Reason: reason, At: time.Now(), Err: err}
	h.endLocked(stateLost)
}

// expireLocked takes away the holds whose local deadline has passed.
func (c *Core) expireLocked(s *session, now time.Time) []*Hold {
	var lost []*Hold
	for _, h := range s.holds {
		if h.state == stateHeld && passed(now, h.deadlineLocked()) {
			lost = append(lost, h)
		}
	}
	for _, h := range lost {
		c.loseHoldLocked(h, lock.LossExpired, s.lastErr)
	}
	if len(s.holds) == 0 {
		c.dropSessionLocked(s)
	}
	return lost
}

// tell ends the contexts of lost holds and logs the losses.
func (c *Core) tell(lost []*Hold) {
	c.finish(lost)
	c.logLost(lost)
}

// finish ends the contexts of lost holds, all before anything is logged: a log
// handler may be slow.
func (c *Core) finish(lost []*Hold) {
	for _, h := range lost {
		h.finish(h.lost)
	}
}

func (c *Core) logLost(lost []*Hold) {
	for _, h := range lost {
		c.cfg.Log.WarnContext(h.ctx, "redlatch: lease lost", c.tracedArgs(h.ctx, h.s.link, "lock", h.s.Lock.name,
			"owner", h.s.Field, "type", h.s.Lock.kind.Type(), "reason", string(h.lost.Reason), "error", h.lost.Err)...)
	}
}

// latestLocked is the latest local deadline of a session's holds.
func (s *session) latestLocked() time.Time {
	var at time.Time
	for _, h := range s.holds {
		at = later(at, h.deadlineLocked())
	}
	return at
}

// remainLocked is how many holds a session has besides one, and how long the
// latest-ending of them still needs the key. Holds that are being released count
// until that is done: each release takes its own off, in the gate's order. Those
// whose lease has ended meanwhile do not: for a lease of nothing the server would
// delete the key, and tell nobody.
func (s *session) remainLocked(besides *Hold, now time.Time) (count int, lease time.Duration) {
	for _, h := range s.holds {
		if h == besides {
			continue
		}
		var need time.Duration
		if h.lease == 0 {
			need = s.slot.core.cfg.LeaseTime
		}
		if !h.until.IsZero() {
			need = max(need, h.until.Sub(now)+drift(h.lasts))
		}
		if need > 0 {
			count, lease = count+1, max(lease, need)
		}
	}
	return count, lease
}
