package engine

import (
	"context"
	"errors"
	"time"

	"github.com/redlatch/redlatch/internal/held"
	"github.com/redlatch/redlatch/internal/lease"
	"github.com/redlatch/redlatch/lock"
)

// Acquire takes the lock for the owner in ctx. A negative wait has no limit.
func (l *Lock) Acquire(ctx context.Context, wait, lease time.Duration) (*held.Hold, error) {
	a := l.core.newAcquisition()
	a.members = a.one[:]
	a.members[0].lock = l
	if err := a.open(ctx, wait, lease); err != nil {
		return nil, l.refused(ctx, wait, lease, err)
	}
	defer a.closeAndRecycle()
	if err := a.finish(); err != nil {
		return nil, err
	}
	return a.members[0].hold, nil
}

// AcquireAll takes several locks of one client and slot by one command, all or
// none. They have distinct keys, are sorted by them, and are of kinds that can be
// taken together; see [Lock.Group]. The holds are in the order of the locks. As a part of
// a longer wait, which began then, it ends at until, if that is not zero, however long an answer takes.
func AcquireAll(ctx context.Context, locks []*Lock, wait, length time.Duration, began, until time.Time) ([]*held.Hold, error) {
	a := &acquisition{request: request{began: began}, progress: progress{members: make([]member, len(locks)), waited: true}}
	for i, l := range locks {
		a.members[i].lock = l
	}
	if err := a.open(ctx, wait, length); err != nil {
		return nil, locks[0].refused(ctx, wait, length, err)
	}
	defer a.close()
	a.until = lease.Earlier(a.until, until)
	if err := a.finish(); err != nil {
		return nil, err
	}
	holds := make([]*held.Hold, len(locks))
	for i := range a.members {
		holds[i] = a.members[i].hold
	}
	return holds, nil
}

// open begins an acquisition; close ends it.
func (a *acquisition) open(ctx context.Context, wait, length time.Duration) error {
	for i := range a.members {
		if err := a.members[i].lock.err; err != nil {
			return err
		}
	}
	if err := lease.Check(length); err != nil {
		return err
	}
	c := a.members[0].lock.core
	if ctx.Err() != nil {
		return &lock.NotAcquiredError{Name: a.members[0].lock.of.Name, Err: CtxError(ctx)}
	}
	o, fresh, err := c.reg.Owner(ctx) // first: the ctx may be a type of the user's, and panic
	if err != nil {
		return err
	}
	if err := c.reg.Begin(); err != nil {
		o.Unpin()
		return err
	}
	a.core, a.ctx, a.wait, a.lease, a.once, a.owner = c, ctx, wait, length, wait == 0, o
	a.fresh = fresh
	a.values = ctx
	for i := range a.members {
		m := &a.members[i]
		m.claim = o.Claim(c.reg, m.lock.of.Key)
	}
	switch {
	case wait == 0:
		// One attempt; a server that is silent must not keep it. An answer may wait for replicas.
		a.patient = c.patience()
		a.until = a.patient
	case wait > 0:
		a.until = time.Now().Add(wait)
	}
	if a.began.IsZero() {
		a.began = time.Now()
	}
	return nil
}

func (a *acquisition) close() {
	for i := range a.members {
		a.members[i].claim.Release()
	}
	a.owner.Unpin()
	a.core.reg.End()
}

// about is the member that the acquisition is about at the moment.
func (a *acquisition) about() *member { return &a.members[a.at] }

// finishUnguarded is finish without its guard.
func (a *acquisition) finishUnguarded() error {
	a.observe()
	behind := a.standsBehind()
	a.waited = a.waited || behind
	if a.obs != nil || !a.mayShare() && (!behind || a.about().lock.of.Line == "") {
		if a.bid == nil || a.members[0].attempt.Field == "" {
			a.newID() // else when it asks: most are handed the lock by others of this process
		}
	} else if a.mayShare() {
		a.members[0].attempt.Lease = a.core.cfg.LeaseTime // a re-entry's
	}
	err := a.run(!behind)
	a.unlead(err)
	a.observed(err)
	if err != nil {
		if a.park(err) {
			return err
		}
		a.giveUp()
		if errors.Is(err, lock.ErrReplicaAcks) {
			a.awaitUndone()
		}
		return err
	}
	a.endWaiting()
	return nil
}

// run is the one loop of all kinds: try, and while the lock is busy sleep until
// something may have changed.
func (a *acquisition) run(try bool) error {
	if try && !a.mayShare() { // else when it asks
		a.listenEarly()
	}
	for {
		if try {
			if a.members[0].attempt.Field == "" && !a.mayShare() {
				a.newID()
			}
			won, err := a.try()
			if won {
				return nil
			}
			a.waited = true
			if err != nil {
				if try, err = a.failed(err); err != nil {
					return err
				}
				continue
			}
			if a.once {
				return a.notAcquired(nil)
			}
			a.lastErr = nil
			if a.retry != nil {
				a.retry.Reset()
			}
		}
		if a.waiter == nil {
			a.join(a.about().lock.of.Kind.Wait(&a.about().attempt))
		} else if try {
			a.waiter.Expect(a.look, a.seen())
		}
		a.waiter.Listen(a.busy.Channels, a.busy.Patterns)
		if a.busy.Foreign {
			a.waiter.HearOthers()
		}
		if a.obs != nil && !a.waitTold {
			a.waitTold = true
			a.obs.Wait()
		}
		won, again, err := a.sleep()
		if won || err != nil {
			return err
		}
		try = again
	}
}

// failed handles the error of an attempt. It returns whether to try at once, or why the acquisition ends.
func (a *acquisition) failed(err error) (try bool, end error) {
	var stop *stopError
	switch {
	case errors.As(err, &stop):
		return false, stop.err
	case errors.Is(err, errSessionGone), errors.Is(err, errLookAgain), errors.Is(err, held.ErrMoved):
		// There is nothing to re-enter any more: acquire, unless it was asked
		// for with the lost hold's context. Or another server is to be asked.
		if a.ctx.Err() != nil {
			return false, a.ended()
		}
		return true, nil
	}
	first := a.lastErr == nil
	a.lastErr = err
	if a.leads != nil { // those who can't wait hear by themselves what is wrong
		a.core.reg.Refused(a.leads, held.Seen{})
	}
	if a.once {
		return false, a.notAcquired(nil)
	}
	if a.retry == nil {
		a.retry = held.NewRetry()
	} else if first {
		a.retry.Reset()
	}
	late := errors.Is(err, errTooLate)
	if late {
		a.look = time.Time{}
		if a.waiter != nil {
			a.stopListening() // what it can't have, those behind it in the line can
		}
	} else {
		a.tellOfOutage(err)
	}
	if !a.pause(a.retry.NextBackOff()) {
		return false, a.ended()
	}
	return !late || !a.standsBehind(), nil
}

// stop is closed when the acquisition must end: a re-entry works until Close.
func (a *acquisition) stop() <-chan struct{} {
	if a.reenters {
		return a.core.closing
	}
	return a.core.draining
}

// endWaiting ends the waiting of an acquisition that got its holds.
func (a *acquisition) endWaiting() {
	m := a.about()
	if a.place != nil {
		a.core.places.remove(a.place)
	}
	if a.waiter != nil {
		a.unwatch()
		a.waiter.Leave(false, m.hold.ValidUntil(), a.holder())
	}
	if a.reentered() {
		a.takeBack() // what it had left when it tried by itself
	}
}

// reentered reports whether nothing of what the acquisition got is its own.
func (a *acquisition) reentered() bool {
	for i := range a.members {
		if m := &a.members[i]; m.hold.Field().Name == m.attempt.Field {
			return false
		}
	}
	return true
}

// giveUp ends the waiting of an acquisition without a hold. What it may have
// left on the server is undone in the background.
func (a *acquisition) giveUp() {
	if a.place != nil {
		a.core.places.remove(a.place)
	}
	if a.waiter != nil {
		a.unwatch()
		a.leaveLine()
		switch h, _ := a.core.reg.TakePassed(&a.passed); { // passed on just before it left
		case h == nil:
		case a.panicked:
			h.Drop()
		default:
			held.Release(a.values, []*held.Hold{h}, nil)
		}
	} else if a.serverAnswered {
		a.unlist(a.at)
	}
	a.takeBack()
}

// unlist leaves the list of those that wait on which a refusal has put this client, if nobody of
// the process waits there: the caller has gone before it began to. part is the member that was
// refused. A quorum's copies may be watched afterwards: its bid's end does it.
func (a *acquisition) unlist(part int) {
	m := &a.members[part]
	if m.attempt.Place == "" {
		return
	}
	if a.bid != nil {
		a.bid.listed.Store(true)
		if !a.bid.over.Load() {
			return
		}
	}
	if !a.core.hub.Wanted(m.lock.of.Calls) {
		a.core.deserted(&m.lock.of, true)
	}
}

// takeBack undoes, in the background, what the acquisition may have left. Nothing
// is to be undone of a re-entry, but of tries before it: what a re-entry raised ends
// with the session.
func (a *acquisition) takeBack() {
	if !a.leftover.any() {
		return
	}
	done := make(chan struct{})
	a.undone = done
	a.core.reg.Undo(a.values, a.leftovers(), a.leftover.void(), false, func() { close(done) })
	a.leftover = leftover{}
}

// leftovers are what an attempt may have left, for whoever undoes it: copies,
// since the acquisition may go on under a new id.
func (a *acquisition) leftovers() []held.Leftover {
	a.mu.Lock()
	defer a.mu.Unlock()
	out := make([]held.Leftover, 0, len(a.members))
	for i := range a.members {
		m := &a.members[i]
		attempt := m.attempt
		m.claim.Retain()
		out = append(out, held.Leftover{Lock: &m.lock.of, Claim: m.claim, Attempt: &attempt})
	}
	return out
}

// restart undoes a grant that is of no use, in the background, while the acquisition
// goes on under a new id.
func (a *acquisition) restart() {
	a.leftover.queued = true
	if a.place != nil {
		a.core.places.remove(a.place)
		a.place = nil // the new id gets a place of its own
	}
	a.takeBack()
	a.newID()
}

// awaitUndone blocks until what was given up is undone, as long as the caller
// would have waited.
func (a *acquisition) awaitUndone() {
	if a.undone == nil {
		return
	}
	limit := time.Hour
	if !a.until.IsZero() {
		limit = time.Until(a.until)
	}
	t := time.NewTimer(limit)
	defer t.Stop()
	select {
	case <-a.undone:
	case <-a.ctx.Done():
	case <-t.C:
	case <-a.core.closing:
	}
}
