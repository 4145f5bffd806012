package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redlatch/redlatch/internal/conn"
	"github.com/redlatch/redlatch/internal/observe"
	"github.com/redlatch/redlatch/lock"
)

// Releasing is an unlock under way.
type Releasing struct {
	holds []*Hold
	errs  []error       // per hold
	done  chan struct{} // closed when all have an answer
	ends  []func(error) // of the observations; nil: nobody looks
}

// Release begins to unlock holds that belong to one Group (or a single hold) by
// one command, and returns at once: their contexts have ended then. It goes on in
// the background until the server has answered or the leases have run out, and
// then tells notify (with room for it), unless that is nil.
func Release(ctx context.Context, holds []*Hold, notify chan<- *Releasing) *Releasing {
	c := holds[0].s.slot.core
	r := &Releasing{holds: holds, errs: make([]error, len(holds)), done: make(chan struct{})}
	if c.cfg.Observer != nil {
		ctx = r.observe(ctx)
	}
	if err := c.begin(); err != nil {
		c.mu.Lock()
		for i, h := range holds {
			if r.errs[i] = err; h.state == stateLost {
				r.errs[i] = h.lost // Close does not make it good
			}
		}
		c.mu.Unlock()
		r.end(notify)
		return r
	}
	var lost []*Hold
	todo := make([]int, 0, len(holds))
	c.mu.Lock()
	for i, h := range holds {
		lost = append(lost, c.expireLocked(h.s, time.Now())...)
		if res := h.releasingLocked(); res != nil {
			r.errs[i] = res.err
		} else {
			todo = append(todo, i)
		}
	}
	c.mu.Unlock()
	c.tell(lost)
	for _, i := range todo {
		holds[i].cancel(nil)
	}
	if len(todo) == 0 {
		c.wg.Done()
		r.end(notify)
		return r
	}
	ctx = context.WithoutCancel(ctx)
	go func() { // ends with the answer, or when the leases have run out by themselves
		defer c.wg.Done()
		defer r.end(notify)
		if len(todo) > 1 {
			todo = r.together(ctx, c, todo)
		}
		for _, i := range todo {
			r.errs[i] = holds[i].release(ctx)
		}
	}()
	return r
}

// observe begins the observations; a command for several holds belongs to none of
// them, but to what the caller's ctx carries.
func (r *Releasing) observe(ctx context.Context) context.Context {
	r.ends = make([]func(error), len(r.holds))
	one := ctx
	for i, h := range r.holds {
		one, r.ends[i] = h.s.Lock.operation(ctx, observe.Release, h.s.Field)
	}
	if len(r.holds) == 1 {
		return one
	}
	return ctx
}

func (r *Releasing) end(notify chan<- *Releasing) {
	for i, end := range r.ends {
		end(r.errs[i])
	}
	close(r.done)
	if notify != nil {
		notify <- r
	}
}

// Errs are the results, nil or one per hold, of a Releasing that was notified of.
func (r *Releasing) Errs() []error { return r.errs }

// Wait blocks until the answer is there, but no longer than the client's
// UnlockTimeout, and returns one error, or nil, per hold; those without an answer
// get lock.ErrUnavailable.
func (r *Releasing) Wait() []error {
	c := r.holds[0].s.slot.core
	limit := time.NewTimer(c.cfg.UnlockTimeout)
	defer limit.Stop()
	select {
	case <-r.done:
		return r.errs
	case <-limit.C:
		return r.GiveUp()
	case <-c.closing:
		// Shutdown closes as soon as the last hold is released; see Hold.unlock.
		c.mu.Lock()
		over := true
		for _, h := range r.holds {
			over = over && (h.state == stateReleased || h.state == stateLost)
		}
		c.mu.Unlock()
		if over {
			<-r.done
			return r.errs
		}
		out := make([]error, len(r.holds))
		for i := range out {
			out[i] = lock.ErrClosed
		}
		return out
	}
}

// GiveUp stops waiting for the answer: another Release of the holds gets what came of
// this one.
func (r *Releasing) GiveUp() []error {
	c := r.holds[0].s.slot.core
	out := make([]error, len(r.holds))
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, h := range r.holds {
		h.late = true
		out[i] = h.unavailable("release", fmt.Errorf("%w of %v", errNoAnswer, c.cfg.UnlockTimeout))
	}
	return out
}

// together releases the holds todo, which have been marked, by one command. It
// returns those that must be released one by one: where the lease must be lowered
// for the holds that stay, and while a cluster moves their slot, when it refuses
// commands with keys of which only some have moved.
func (r *Releasing) together(ctx context.Context, c *Core, todo []int) (left []int) {
	entered := todo[:0:0]
	for _, i := range todo {
		if !r.holds[i].s.slot.gate.enter(ctx, c.closedLate) {
			r.errs[i] = lock.ErrClosed
			continue
		}
		entered = append(entered, i)
	}
	defer func() {
		for _, i := range entered {
			r.holds[i].s.slot.gate.leave()
		}
	}()
	type part struct {
		i, count int
		lease    time.Duration
	}
	var parts []part
	var items []conn.Command
	var deadline time.Time
	var lost []*Hold
	c.mu.Lock()
	now := time.Now()
	for _, i := range entered {
		h := r.holds[i]
		if h.state != stateReleasing { // another Unlock, a loss or Close came first
			r.errs[i] = h.releasingLocked().err
			continue
		}
		s := h.s
		lost = append(lost, c.expireLocked(s, now)...) // waiting for the gates may have taken long
		count, lease := s.remainLocked(h, now)
		var void time.Duration
		if s.limbo > 0 && count == 0 {
			void = limboTTL
		}
		deadline = later(deadline, h.deadlineLocked())
		parts = append(parts, part{i, count, lease})
		items = append(items, s.Lock.kind.Release(s, count, lease, void))
	}
	c.mu.Unlock()
	c.tell(lost)
	if len(parts) == 0 {
		return nil
	}
	cmd := groupRelease(items)
	ambiguous := false
	retry := newRetry()
	for {
		sent := time.Now()
		reply, err := c.run.Run(ctx, cmd)
		if err == nil && len(reply.Vals) < len(parts) {
			err = errShortReply
		}
		if err == nil {
			for k, p := range parts {
				h := r.holds[p.i]
				code := reply.Int(k)
				switch {
				case code == 0 && (!ambiguous || p.count > 0):
					r.errs[p.i] = h.releaseLost()
					continue
				case code < 0:
					r.errs[p.i] = h.abandoned(&lock.ServerError{Name: h.s.Lock.name, Op: "release", Err: errors.New(reply.Str(len(parts)))})
					continue
				case code == 3:
					left = append(left, p.i) // to lower the lease takes a command of its own
					continue
				case code == 2:
					c.cfg.Log.WarnContext(ctx, "redlatch: released, but the unlock message was refused: waiters go on when the lease would have ended",
						"lock", h.s.Lock.name, "owner", h.s.Field, "error", reply.Str(len(parts)))
				}
				h.released(sent, p.count, p.lease)
			}
			return left
		}
		if conn.IsTryAgain(err) {
			for _, p := range parts {
				left = append(left, p.i)
			}
			return left
		}
		permanent := conn.IsPermanent(err)
		ambiguous = ambiguous || conn.Classify(err) == conn.Ambiguous
		if !permanent && sleep(ctx, c.closedLate, deadline, retry.NextBackOff()) {
			continue
		}
		for _, p := range parts {
			h := r.holds[p.i]
			if permanent {
				r.errs[p.i] = h.abandoned(&lock.ServerError{Name: h.s.Lock.name, Op: "release", Err: err})
			} else {
				r.errs[p.i] = h.abandoned(h.unavailable("release", err))
			}
		}
		return nil
	}
}
