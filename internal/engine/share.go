package engine

import (
	"time"

	"github.com/redlatch/redlatch/internal/held"
)

// share is a reader's way into a hold of another reader of this process, before it asks
// the server: it joins the hold, or waits for the one that is being asked for. The gate
// is the caller's. Neither won nor an error means that the server must be asked; with
// lead set, for those who come meanwhile as well.
func (a *acquisition) share(fresh int) (won bool, err error) {
	m := &a.members[0]
	switch {
	case m.lock.of.Kind.Traits().Shares == "", fresh != 1 || len(a.members) != 1, a.lease != 0 || a.tell, a.core.cfg.Tenure <= 0,
		m.attempt.Other != "": // it reads under its own write lock
		return false, nil
	}
	spec, _ := m.lock.of.Kind.Wait(&m.attempt)
	if a.core.hub.Waiting(spec.ID) { // a writer of this process
		return false, nil
	}
	to := held.Receiver{Claim: m.claim, Ctx: a.ctx}
	if o := a.core.cfg.Observer; o != nil {
		to.Link, to.Count = a.linkOf(m), o.Counting()
	}
	for followed := false; ; followed = true {
		x := &held.Share{To: to, Tenure: a.core.cfg.Tenure}
		switch a.core.reg.Share(x, &m.lock.of, !a.sent) {
		case held.Leads:
			a.lead = x
			return false, nil
		case held.Follows:
			if !a.follow(x) {
				return false, stop(a.ended())
			}
		case held.Joined, held.Alone:
		}
		if m.hold = a.core.reg.Unshare(x); m.hold != nil {
			return true, nil
		}
		// Once more if the one that it followed left: but not behind one after the other.
		if !x.Again || followed {
			return false, nil
		}
	}
}

// follow waits for the answer to another reader's command. false: the wait is over,
// and what it got just before has been given back.
func (a *acquisition) follow(x *held.Share) bool {
	var tick <-chan time.Time
	if !a.until.IsZero() {
		t := a.core.send.StartTimer(time.Until(a.until))
		defer a.core.send.StopTimer(t)
		tick = t.C
	}
	select {
	case <-x.Done:
		a.core.send.DropSignal(x.Done)
		if a.ctx.Err() == nil {
			return true
		}
	case <-tick:
	case <-a.ctx.Done():
	case <-a.core.closing:
	}
	if h := a.core.reg.Unshare(x); h != nil {
		held.Release(a.values, []*held.Hold{h}, nil)
	}
	return false
}

// unlead ends the wait of those who follow: they have holds by now, or go on by
// themselves.
func (a *acquisition) unlead() {
	if a.lead != nil {
		a.core.reg.Unshare(a.lead)
		a.lead = nil
	}
}
