package engine

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/redlatch/redlatch/internal/conn"
	"github.com/redlatch/redlatch/internal/observe"
	"github.com/redlatch/redlatch/lock"
)

// Name implements lock.Hold.
func (h *Hold) Name() string { return h.s.Lock.name }

// Context implements lock.Hold.
func (h *Hold) Context() context.Context { return h.ctx }

// Token implements lock.Hold.
func (h *Hold) Token() uint64 {
	c := h.s.slot.core
	c.mu.Lock()
	defer c.mu.Unlock()
	return h.s.Token
}

// Reentry reports whether the owner held the lock already.
func (h *Hold) Reentry() bool { return h.again }

// Lock is the lock that is held.
func (h *Hold) Lock() *Lock { return h.s.Lock }

// ValidUntil implements lock.Hold.
func (h *Hold) ValidUntil() time.Time {
	c := h.s.slot.core
	c.mu.Lock()
	defer c.mu.Unlock()
	return h.deadlineLocked()
}

// Unlock implements lock.Hold.
func (h *Hold) Unlock(ctx context.Context) error {
	ctx, end := h.s.Lock.operation(ctx, observe.Release, h.s.Field)
	err := h.unlock(ctx)
	end(err)
	return err
}

func (h *Hold) unlock(ctx context.Context) error {
	s, c := h.s, h.s.slot.core
	if err := c.begin(); err != nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		if h.state == stateLost {
			return h.lost // Close does not make it good
		}
		return err
	}
	defer c.wg.Done()

	c.mu.Lock()
	lost := c.expireLocked(s, time.Now())
	err := h.releasingLocked()
	c.mu.Unlock()
	c.tell(lost)
	if err != nil {
		return err.err
	}
	h.cancel(nil)

	r := &release{h: h, values: detached{ctx}, done: c.pools.newSignal()}
	c.wg.Add(1)
	go r.run()
	limit := c.pools.startTimer(c.cfg.UnlockTimeout)
	defer c.pools.stopTimer(limit)
	select {
	case <-r.done:
		c.pools.dropSignal(r.done)
		return r.err
	case <-limit.C:
	case <-c.closing:
		// Shutdown closes as soon as the last hold is released: this one's Unlock,
		// which has worked, must not say otherwise.
		c.mu.Lock()
		over := h.state == stateReleased || h.state == stateLost
		c.mu.Unlock()
		if !over {
			return lock.ErrClosed
		}
		<-r.done
		return r.err
	}
	c.mu.Lock()
	h.late = true
	c.mu.Unlock()
	return h.unavailable("release", fmt.Errorf("%w of %v", errNoAnswer, c.cfg.UnlockTimeout))
}

// release is an Unlock under way.
type release struct {
	h      *Hold
	values detached
	done   chan struct{}
	err    error
}

// run is its goroutine. It ends with the answer, or when the lease has run out by
// itself.
func (r *release) run() {
	defer r.h.s.slot.core.wg.Done()
	r.err = r.h.release(&r.values)
	r.done <- struct{}{}
}

func (h *Hold) unavailable(op string, err error) error {
	return &lock.UnavailableError{Name: h.s.Lock.name, Op: op, Nodes: []lock.NodeError{{Node: h.s.slot.core.cfg.Addr, Err: err}}}
}

// unlockResult says that there is nothing to release.
type unlockResult struct{ err error }

// releasingLocked marks the hold as being released; a result says that there is
// nothing to do.
func (h *Hold) releasingLocked() *unlockResult {
	switch h.state {
	case stateHeld:
		h.state = stateReleasing
		h.retireLocked()
		h.s.slot.core.dog.scheduleLocked(h.s, time.Time{})
		return nil
	case stateReleasing:
		return nil // another Unlock is at it: wait behind it
	case stateLost:
		h.state = stateReleased
		return &unlockResult{h.lost}
	case stateClosed:
		return &unlockResult{lock.ErrClosed}
	default:
		return &unlockResult{h.releasedLocked()}
	}
}

// releasedLocked is what an Unlock of a released hold returns: once, if an
// earlier one gave up waiting, what came of what it had begun.
func (h *Hold) releasedLocked() error {
	if h.late {
		h.late = false
		return h.result
	}
	return lock.ErrNotHeld
}

// release gives the hold back, however often it takes, until the lease has run
// out by itself.
func (h *Hold) release(ctx context.Context) error {
	s, c := h.s, h.s.slot.core
	if !s.slot.gate.enter(ctx, c.closedLate) {
		return lock.ErrClosed
	}
	defer s.slot.gate.leave()

	c.mu.Lock()
	if h.state != stateReleasing {
		// another Unlock, a loss or Close came first
		defer c.mu.Unlock()
		return h.releasingLocked().err
	}
	now := time.Now()
	lost := c.expireLocked(s, now) // waiting for the gate may have taken long
	count, lease := s.remainLocked(h, now)
	deadline := h.deadlineLocked()
	if count > 0 {
		// Not given up while the session lives: a command without an answer may come
		// late, and lower the lease of the holds that are to follow.
		deadline = s.latestLocked()
	}
	c.mu.Unlock()
	c.tell(lost)
	defer s.lowered()

	var void time.Duration
	if s.limbo > 0 && count == 0 {
		void = limboTTL
	}
	ambiguous := false
	var retry *backoff.ExponentialBackOff
	for {
		sent := time.Now()
		r, err := c.run.Run(ctx, s.Lock.kind.Release(s, count, lease, void))
		switch {
		case err == nil && r.Code == 0 && (!ambiguous || count > 0):
			// An earlier try may have ended the session, but only if it was to.
			return h.releaseLost()
		case err == nil && s.lowersMore(r):
			continue
		case err == nil:
			if r.Code == 2 {
				c.cfg.Log.WarnContext(ctx, "redlatch: released, but the unlock message was refused: waiters go on when the lease would have ended",
					"lock", s.Lock.name, "owner", s.Field, "error", r.Str(1))
			}
			if r.Vals != nil && r.Code == 1 {
				spec, _ := s.Lock.spec(&Attempt{Lock: s.Lock, Field: s.Field})
				c.hub.Heard(spec.ID, r.Int(1))
			}
			h.released(sent, count, lease)
			return nil
		case conn.IsPermanent(err):
			return h.abandoned(&lock.ServerError{Name: s.Lock.name, Op: "release", Err: err})
		}
		ambiguous = ambiguous || conn.Classify(err) == conn.Ambiguous
		if retry == nil {
			retry = newRetry()
		}
		if !sleep(ctx, c.closedLate, deadline, retry.NextBackOff()) {
			return h.abandoned(h.unavailable("release", err))
		}
	}
}

// Lowering adds to a partial release which end of the lease it may lower.
func Lowering(cmd conn.Command, s *Session, count int) conn.Command {
	if count > 0 && s.Ends > 0 {
		cmd.Args = append(cmd.Args, strconv.FormatInt(s.Ends, 10))
	}
	return cmd
}

// maxLower bounds the tries to lower a lease whose end is another one each time.
const maxLower = 5

// lowersMore reports whether a partial release is to be repeated, to lower the
// lease whose end it has been told. The gate is the caller's.
func (s *session) lowersMore(r conn.Reply) bool {
	if r.Code != 3 || s.lowers == maxLower {
		return false
	}
	s.Ends = r.Int(1)
	s.lowers++
	return true
}

// lowered ends what lowersMore began.
func (s *session) lowered() { s.Ends, s.lowers = 0, 0 }

// released ends the hold after a release that worked.
func (h *Hold) released(sent time.Time, count int, lease time.Duration) {
	s, c := h.s, h.s.slot.core
	c.mu.Lock()
	ended := h.state == stateReleasing
	if ended {
		s.removeLocked(h)
		h.endLocked(stateReleased)
	}
	switch {
	case count == 0:
		c.dropSessionLocked(s)
	case !s.dead:
		// the key lasts as long as the remaining holds need it
		s.until = sent.Add(lease - drift(lease))
		c.dog.scheduleLocked(s, time.Time{})
	}
	c.mu.Unlock()
	if ended {
		h.finish(nil)
	}
}

// releaseLost ends the session of a hold whose release found it gone.
func (h *Hold) releaseLost() error {
	c := h.s.slot.core
	c.mu.Lock()
	lost := c.loseLocked(h.s, lock.LossGone, nil)
	err := h.releasingLocked()
	c.mu.Unlock()
	c.tell(lost)
	return err.err
}

// abandoned ends a hold that could not be released: the key stays until its
// lease ends, and nothing renews it.
func (h *Hold) abandoned(err error) error {
	s, c := h.s, h.s.slot.core
	c.mu.Lock()
	h.result = err
	ended := h.state == stateReleasing
	if ended {
		s.removeLocked(h)
		h.endLocked(stateReleased)
		if len(s.holds) == 0 {
			c.dropSessionLocked(s)
		}
	}
	c.mu.Unlock()
	if ended {
		h.finish(nil)
	}
	return err
}

// Extend implements lock.Hold.
func (h *Hold) Extend(ctx context.Context, lease time.Duration) error {
	ctx, end := h.s.Lock.operation(ctx, observe.Extend, h.s.Field)
	err := h.extend(ctx, lease)
	end(err)
	return err
}

func (h *Hold) extend(ctx context.Context, lease time.Duration) error {
	if lease <= 0 {
		return &lock.InvalidOptionError{Option: "lease", Reason: "it is not positive"}
	}
	if err := CheckLease(lease); err != nil {
		return err
	}
	c := h.s.slot.core
	if err := c.begin(); err != nil {
		return err
	}
	defer c.wg.Done()
	if err := ctx.Err(); err != nil {
		return err
	}
	deadline := time.Now().Add(c.cfg.UnlockTimeout)
	retry := newRetry()
	unsettled := false // a try without an answer may have raised the lease
	defer func() {
		if unsettled {
			c.settleApart(h.s)
		}
	}()
	for {
		again, err := h.extendOnce(ctx, deadline, lease)
		unsettled = err != nil && (unsettled || again && conn.Classify(err) == conn.Ambiguous)
		switch {
		case err == nil || !again:
			return err
		case sleep(ctx, c.closing, deadline, retry.NextBackOff()):
			continue
		case ctx.Err() != nil:
			return ctx.Err()
		case c.isClosed():
			return lock.ErrClosed
		}
		return h.unavailable("extend", err)
	}
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

// extendOnce makes one attempt; again says whether another one makes sense.
func (h *Hold) extendOnce(ctx context.Context, deadline time.Time, lease time.Duration) (again bool, err error) {
	s, c := h.s, h.s.slot.core
	lctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	if !s.slot.gate.enter(lctx, c.closing) {
		return true, errNoAnswer
	}
	c.mu.Lock()
	lost := c.expireLocked(s, time.Now())
	err = h.overLocked()
	count, _ := s.remainLocked(nil, time.Now())
	c.mu.Unlock()
	c.tell(lost)
	if err != nil {
		s.slot.gate.leave()
		return false, err
	}
	f, ok := c.fly(ctx, ctx, deadline, s.Lock.kind.Reenter(s, count, lease), reentry{s})
	if !ok {
		return true, errNoAnswer
	}
	defer s.slot.gate.leave()
	switch {
	case f.err != nil && conn.IsPermanent(f.err):
		return false, &lock.ServerError{Name: s.Lock.name, Op: "extend", Err: f.err}
	case f.err != nil:
		return true, f.err
	case f.reply.Code == 0:
		c.mu.Lock()
		lost = c.loseLocked(s, lock.LossGone, nil)
		err := h.overLocked()
		c.mu.Unlock()
		c.tell(lost)
		return false, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := h.overLocked(); err != nil {
		return false, err
	}
	until := f.sent.Add(lease - drift(lease))
	if h.lease == 0 {
		s.until = later(s.until, until)
	}
	if until.After(h.until) {
		h.until, h.lasts = until, lease
	}
	c.dog.scheduleLocked(s, time.Time{})
	return false, nil
}
