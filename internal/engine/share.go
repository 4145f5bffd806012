package engine

import (
	"errors"
	"time"

	"github.com/redlatch/redlatch/internal/held"
	"github.com/redlatch/redlatch/internal/observe"
	"github.com/redlatch/redlatch/lock"
)

// mayShare reports whether the acquisition may share a hold with other readers of this
// process at all, as far as its options tell.
func (a *acquisition) mayShare() bool {
	m := &a.members[0]
	return len(a.members) == 1 && m.lock.of.Kind.Traits().Shares != "" && a.lease == 0 && !a.asksServer && a.core.cfg.Tenure > 0
}

// share is a reader's way into a hold of another reader of this process, before it asks
// the server: it joins the hold (held.Joined), or waits for the one that is being asked for
// (held.Follows; follow is next, without the gate). Else the server must be asked; with
// lead set, for those who come meanwhile as well. The gate is the caller's.
func (a *acquisition) share(fresh int) (*held.Share, held.Part) {
	m := &a.members[0]
	if fresh != 1 || a.leads != nil || !a.mayShare() || m.attempt.Other != "" { // it reads under its own write lock
		return nil, held.Alone
	}
	if a.shareSince.IsZero() {
		a.shareSince = time.Now()
	}
	spec, _ := m.lock.of.Kind.Wait(&m.attempt)
	x := &held.Share{
		To: held.Receiver{Claim: m.claim, Ctx: a.ctx}, Tenure: a.core.cfg.Tenure, Came: a.shareSince, Stays: !a.once,
		Behind: !m.lock.of.Kind.Traits().Overtakes && a.core.hub.Waiting(spec.ID), // a writer of this process
	}
	if o := a.core.cfg.Observer; o != nil {
		x.To.Link, x.To.Count = a.linkOf(m), o.Counting()
		x.Tell = a.obs != nil
	}
	part := a.core.reg.Share(x, &m.lock.of, !a.asked)
	if part == held.Joined {
		m.hold = a.core.reg.Unshare(x)
	}
	if part == held.Leads {
		a.leads = x
		a.listenEarly()
	}
	return x, part
}

// follow waits until the one that asks for this acquisition, too, has brought it in (won),
// or there is something else for it to do: errLookAgain.
func (a *acquisition) follow(x *held.Share) (won bool, err error) {
	m := &a.members[0]
	m.claim.Watch(x)
	follows := true
	defer func() {
		m.claim.Unwatch(x)
		if follows { // an observer panicked
			if _, h, _ := a.core.reg.Follow(x, true); h != nil {
				h.Drop()
			}
		}
		x.Done = nil
	}()
	var tick <-chan time.Time
	if !a.until.IsZero() {
		t := time.NewTimer(time.Until(a.until))
		defer t.Stop()
		tick = t.C
	}
	for over := false; ; {
		select {
		case <-x.Done:
		case <-tick:
			over = true
		case <-a.ctx.Done():
			over = true
		case <-a.core.closing:
			over = true
		}
		ended := a.ctx.Err() != nil || a.core.isClosed()
		part, h, lost := a.core.reg.Follow(x, over || ended)
		if follows = part == held.Follows; part == held.Leads {
			a.leads = x
		}
		if h != nil && !lost && !ended {
			m.hold = h
			return true, nil
		}
		if h != nil {
			held.Release(a.values, []*held.Hold{h}, nil)
		}
		a.noteSeen(x.Seen)
		switch {
		case over || ended:
			return false, stop(a.ended())
		case part == held.Leads:
			a.listenEarly()
			return false, errLookAgain
		case part == held.Alone:
			a.asked = true // it shares no more
			return false, errLookAgain
		case part != held.Follows:
			return false, errLookAgain
		}
	}
}

// noteSeen takes over what the reader that asks has been told.
func (a *acquisition) noteSeen(seen held.Seen) {
	if seen.Until.IsZero() {
		return
	}
	if a.obs != nil && !a.waitTold {
		a.waitTold = true
		a.obs.Wait()
	}
	if seen.Owner == "" {
		return
	}
	a.seenAt = time.Now()
	a.busy.Holder, a.busy.Trace, a.busy.Remaining = seen.Owner, seen.Trace, seen.Until.Sub(a.seenAt)
	if a.obs != nil {
		a.obs.Busy(seen.Owner, seen.Trace, 0)
	}
}

// unlead lets the next of those who follow ask, once the acquisition has ended with err.
// What the server refuses for good each of them asks for by itself.
func (a *acquisition) unlead(err error) {
	if a.leads == nil {
		return
	}
	a.leads.Failed = err != nil && !observe.Waited(err) && !errors.Is(err, lock.ErrClosed)
	a.core.reg.Unshare(a.leads)
	a.leads = nil
}
