package held

import (
	"context"
	"strconv"
	"time"

	"github.com/redlatch/redlatch/internal/conn"
	"github.com/redlatch/redlatch/internal/kind"
	"github.com/redlatch/redlatch/internal/lease"
	"github.com/redlatch/redlatch/internal/luascript"
	"github.com/redlatch/redlatch/internal/observe"
	"github.com/redlatch/redlatch/internal/sender"
	"github.com/redlatch/redlatch/lock"
)

// Extend implements lock.Hold.
func (h *Hold) Extend(ctx context.Context, lease time.Duration) error {
	return h.extendBy(ctx, lease, lease)
}

// Prolong is Extend for a copy of a quorum: no more than LeaseTime is asked for, and renewals lead to the rest.
func (h *Hold) Prolong(ctx context.Context, lease time.Duration) error {
	return h.extendBy(ctx, lease, min(lease, h.session.reg.cfg.LeaseTime))
}

func (h *Hold) extendBy(ctx context.Context, lease, asked time.Duration) (err error) {
	ctx, end := observe.Operation(ctx, h.session.reg.cfg.Observer, h.session.Lock.Observed(), observe.Extend, h.session.Name)
	err = observe.ErrPanic
	defer func() { end(err, observe.Note{Lease: lease}) }()
	return h.extend(ctx, lease, asked)
}

func (h *Hold) extend(ctx context.Context, length, asked time.Duration) error {
	if length <= 0 {
		return &lock.InvalidOptionError{Option: "lease", Reason: "it is not positive"}
	}
	if err := lease.Check(length); err != nil {
		return err
	}
	r := h.session.reg
	if err := r.Begin(); err != nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		if over := h.overLocked(); over != nil { // as of an Unlock: what ended before Close did not end by it
			return over
		}
		return err
	}
	defer r.End()
	if err := ctx.Err(); err != nil {
		return err
	}
	deadline := time.Now().Add(r.cfg.UnlockTimeout)
	retry := NewRetry()
	for {
		again, err := h.extendOnce(ctx, deadline, length, asked)
		switch {
		case err == nil || !again:
			return err
		case Sleep(ctx, r.closedLate, deadline, retry.NextBackOff()):
			continue
		case ctx.Err() != nil:
			return ctx.Err()
		case r.Closed():
			return lock.ErrClosed
		}
		return r.unavailable(h.session.Lock.Name, "extend", err)
	}
}

// extendOnce makes one attempt; again says whether another one makes sense. What
// it raised although nobody waits for the answer any more is given back with the
// session at the latest.
func (h *Hold) extendOnce(ctx context.Context, deadline time.Time, length, asked time.Duration) (again bool, err error) {
	s, r := h.session, h.session.reg
	gate := &h.claim.Gate
	lctx, cancel := context.WithDeadline(ctx, deadline) // ctx may be the user's, and panic: it is not asked in the gate
	defer cancel()
	if !gate.Enter(lctx, r.closedLate) {
		return true, ErrNoAnswer
	}
	count, err := h.asking(asked)
	if err != nil {
		gate.Leave()
		return false, err
	}
	c := &sender.Call{Cmd: s.Lock.Kind.Reenter(s.Field, count, asked), Class: sender.Keep, Ctx: context.WithoutCancel(ctx)}
	gate.start(r.send, c)
	if !c.Wait(lctx.Done(), time.Time{}) {
		claim := h.claim
		claim.Retain()
		switch c.Leave(func(*sender.Call) { s.Heard(asked); claim.Gate.Leave(); claim.Release() }) {
		case sender.Away:
			return true, ErrNoAnswer
		case sender.Withdrawn:
			claim.Release()
			gate.Leave()
			return true, ErrNoAnswer
		case sender.Answered:
			claim.Release()
		}
	}
	defer c.Done() // last: an observer is told
	defer gate.Leave()
	s.Heard(asked)
	switch {
	case c.Err != nil && conn.IsPermanent(c.Err):
		return false, &lock.ServerError{Name: s.Lock.Name, Op: "extend", Err: c.Err}
	case c.Err != nil:
		return true, c.Err
	case c.Reply.Code == 0:
		s.Gone()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := h.overLocked(); err != nil {
		return false, err
	}
	if c.Sent.Before(r.dog.movedAt) {
		return true, ErrMoved
	}
	until := lease.LocalDeadline(c.Sent, asked)
	if h.lease == 0 { // what is more is this hold's alone: another one may be a quorum's copy
		s.until = lease.Later(s.until, lease.LocalDeadline(c.Sent, min(asked, r.cfg.LeaseTime)))
		if asked > r.cfg.LeaseTime {
			h.countsOwnLocked()
		}
	}
	if h.own && until.After(h.until) {
		h.until, h.untilLease = until, asked
	}
	if full := lease.LocalDeadline(c.Sent, length); asked < length && h.lease > 0 && !h.wholeLost && (h.fullUntil == nil || full.After(*h.fullUntil)) {
		h.fullUntil = &full
	}
	s.answeredAt = lease.Later(s.answeredAt, c.Sent)
	r.dog.scheduleLocked(s, time.Time{})
	return false, nil
}

// asking is [Session.Asking] for a hold that is extended: the count stays. One that is over asks for nothing: its
// session may be the hold of somebody else by now, who would leave that behind.
func (h *Hold) asking(lease time.Duration) (count int, err error) {
	s, r := h.session, h.session.reg
	r.mu.Lock()
	now := time.Now()
	lost := r.expireLocked(s, now)
	switch err = h.overLocked(); {
	case err != nil:
	case s.over || s.releaseSent:
		err = lock.ErrNotHeld
	default:
		count = s.askingLocked(now, lease)
	}
	r.mu.Unlock()
	r.tell(lost)
	return count, err
}

// LowerToken makes the token of the hold, and of those that re-enter it, at most token: that of
// the quorum whose copy it is. The server's counter stays ahead, so that whoever comes next gets
// a newer token. It reports false, and does nothing, if others that hold the lock have the
// larger token already.
func (h *Hold) LowerToken(token uint64) bool {
	r := h.session.reg
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case h.session.token <= token:
	case len(h.session.holds) > 1:
		return false
	default:
		h.session.token = token
	}
	return true
}

// RaiseToken makes the lock's fencing counter, and the token of the hold and of
// those that re-enter it, at least token. It blocks until the server answers, but
// no longer than limit.
func (h *Hold) RaiseToken(ctx context.Context, token uint64, limit time.Duration) error {
	l, r := h.session.Lock, h.session.reg
	if err := r.Begin(); err != nil {
		return err
	}
	defer r.End()
	ended, deadline := ctx.Done(), time.Now().Add(limit) // ctx is not asked beside a command: it may panic
	c := &sender.Call{Class: sender.Keep, Ctx: context.WithoutCancel(ctx), Cmd: conn.Command{
		Script: luascript.RaiseToken, Keys: []string{luascript.TokenKey(l.Key)},
		Args: []string{strconv.FormatUint(token, 10), kind.FenceArg(r.cfg.FenceTTL)},
	}}
	r.send.Start(c)
	if !c.Wait(ended, deadline) && c.Leave(nil) != sender.Answered {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return r.unavailable(h.session.Lock.Name, "acquire", ErrNoAnswer)
	}
	c.Done()
	if c.Err != nil {
		return r.unavailable(h.session.Lock.Name, "acquire", c.Err)
	}
	r.mu.Lock()
	h.session.token = max(h.session.token, token)
	r.mu.Unlock()
	return nil
}
