package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redlatch/redlatch/internal/conn"
	"github.com/redlatch/redlatch/internal/held"
	"github.com/redlatch/redlatch/internal/kind"
	"github.com/redlatch/redlatch/internal/lease"
	"github.com/redlatch/redlatch/lock"
)

// read interprets an answer. part is the member that it is about. a.mu is the
// caller's.
func (a *acquisition) read(r conn.Reply) (out kind.Outcome, part int, tokens []uint64) {
	m := &a.members[0]
	switch {
	case len(a.members) > 1:
		group, _ := m.lock.of.Kind.(kind.Group)
		return group.AcquiredAll(a.parts(), r)
	case m.session != nil:
		return kind.Outcome{Acquired: r.Code == 1, Gone: r.Code == 0}, 0, nil
	}
	return m.lock.of.Kind.Acquired(&m.attempt, r), 0, nil
}

// take takes the answer to an attempt. The gates are ours.
func (a *acquisition) take(fresh int) (won bool, err error) {
	c := &a.call
	a.heard()
	if c.Err != nil {
		if fresh > 0 {
			a.leftover.failed(c.Err)
		}
		return false, a.classify(c.Err)
	}
	a.serverReply, a.serverAnswered = c.Reply, true
	a.mu.Lock()
	for i := range a.members {
		a.members[i].attempt.Sent = c.Sent
	}
	out, part, tokens := a.read(c.Reply)
	a.mu.Unlock()
	if fresh > 0 && !out.NoLock { // else it says nothing of a place
		a.leftover.queued = out.Queued
	}
	if out.Renewed && a.leftover.lost > 0 {
		a.leftover.lost-- // one of the lost replies was this acquisition's
	}
	switch {
	case out.Gone:
		a.members[part].session.Gone()
		return false, errSessionGone
	case out.NoLock:
		return false, stop(noLock(a.members[part].lock.of.Name))
	case out.Void:
		a.newID()
		return false, errVoid
	case !out.Acquired:
		a.refused(out, part)
		return false, nil
	}
	return a.won(out, tokens, fresh)
}

// noLock is the error for a key that holds something else: a bad name, and an
// answer that no retry changes.
func noLock(name string) error {
	return &lock.InvalidNameError{
		Name: name, Reason: "its key holds no lock of this kind (WRONGTYPE) and was not touched",
		Err: &lock.ServerError{Name: name, Op: "acquire", Err: conn.Refusal("WRONGTYPE the key holds no lock of this kind")},
	}
}

// refused notes who holds the lock and when to look again.
func (a *acquisition) refused(out kind.Outcome, part int) {
	a.focus(part)
	a.busy, a.seenAt = out, time.Now()
	look := out.LookIn
	if look == 0 {
		look = out.Remaining + 2*time.Millisecond
	}
	switch {
	case out.Remaining == 0 && out.LookIn == 0:
		look = a.core.cfg.LeaseTime // a key without a lease: nobody knows
	case out.Holder == "" && !a.until.IsZero(): // free, and left to whom the release called: that one may stand still
		look = min(look, max(time.Until(a.until)/2, time.Millisecond))
	}
	a.look = time.Now().Add(look)
	if a.leads != nil {
		a.core.reg.Refused(a.leads, held.Seen{Owner: out.Holder, Trace: out.Trace, Until: time.Now().Add(out.Remaining)})
	}
	if a.obs != nil {
		a.obs.Busy(out.Holder, out.Trace, out.Position)
	}
	if !a.once {
		a.tellOfOwn()
	}
	if a.leftover.lost > 0 && !a.once && a.about().lock.queue == nil {
		// An earlier try without an answer may still run, and take the lock for one who stands
		// behind others of the process, where nobody looks for it; of several locks it may have
		// taken all, and some were lost since. So nothing may be kept while we wait.
		a.restart()
	}
}

// focus makes a member the one that the acquisition is about. A waiter that stands
// in another member's line leaves it: that member is free, so the next in its line
// must try.
func (a *acquisition) focus(part int) {
	if a.at == part {
		return
	}
	if a.waiter != nil {
		a.stopListening()
	}
	a.mu.Lock() // a log line of the subscription's may be reading
	a.at = part
	a.mu.Unlock()
}

// won makes holds of a grant, unless it came too late or too few replicas have
// it. The gates are ours.
func (a *acquisition) won(out kind.Outcome, tokens []uint64, fresh int) (bool, error) {
	c, length := &a.call, a.about().attempt.Lease
	sent, lasts := c.Sent, length
	handed := !out.Granted.IsZero()
	if handed {
		sent, lasts = out.Granted, out.Lease
	}
	if lease.Passed(time.Now(), lease.LocalDeadline(sent, lasts)) {
		if fresh > 0 {
			a.givenBack("grant given back: its answer came after the lease had run out")
			a.restart()
		}
		return false, errTooLate
	}
	if want := a.core.cfg.ReplicaAcks; want > 0 && fresh > 0 && !handed && c.Reply.Acked < want {
		a.givenBack("grant given back: too few replicas acknowledged it")
		a.leftover.queued = true // giving up undoes it
		return false, stop(&lock.ReplicaAcksError{Name: a.about().lock.of.Name, Want: want, Got: c.Reply.Acked, Err: c.Reply.Waits})
	}
	largest := out.Token
	for _, token := range tokens {
		largest = max(largest, token)
	}
	if largest > conn.LastToken {
		a.givenBack("grant given back: its fencing token is none")
		a.leftover.queued = true // giving up undoes it
		return false, stop(badToken(a.about().lock.of.Name, largest))
	}
	if fresh > 0 && a.core.owns(a.busy.Holder) {
		a.suspectHolder()
	}
	for i := range a.members {
		token := out.Token
		if tokens != nil {
			token = tokens[i]
		}
		if err := a.hold(&a.members[i], &out, token, sent, length, handed, lasts); err != nil {
			if errors.Is(err, held.ErrMoved) && fresh > 0 && !handed {
				a.leftover.lost++ // its answer is worth no more than none
			}
			return false, a.tooLateFor(i, err)
		}
	}
	return true, nil
}

// fewHeld is among how many sessions each turn may look for the holder's.
const fewHeld = 512

// suspectHolder has the hold that was in the way, and is one of this client, checked at once if it is still counted as
// held: it is gone, by hand or with the server. A client that holds more locks hears of that at the next check.
func (a *acquisition) suspectHolder() {
	l, but := &a.about().lock.of, lock.ModeNone
	if l.Kind.Traits().Mode == lock.ModeRead {
		but = lock.ModeRead
	}
	a.core.reg.Suspect(l.Key, but, fewHeld)
}

// badToken is the error for a fencing token that is none, or that nobody could follow.
func badToken(name string, token uint64) error {
	return &lock.ServerError{Name: name, Op: "acquire", Err: fmt.Errorf("its fencing token %d is not within 1 and 2^53-1", token)}
}

// hold makes a member's hold. It returns an error when its session was lost, when the client
// takes no more, and held.ErrMoved when the answer does not count.
func (a *acquisition) hold(m *member, out *kind.Outcome, token uint64, sent time.Time, lease time.Duration, handed bool, lasts time.Duration) (err error) {
	var link any
	if a.obs != nil && m.session == nil {
		link = a.linkOf(m) // before anything is counted: it may panic
	}
	m.claim.Retain()
	if m.session != nil {
		m.hold, err = m.session.Reenter(a.ctx, m.claim, a.lease, lease, sent)
	} else {
		g := held.Grant{
			Lock: &m.lock.of, Claim: m.claim, Ctx: a.ctx, Field: m.attempt.Named(), Token: token, MayArrive: a.leftover.lost,
			Fixed: a.lease, Lease: lease, Sent: sent, Handed: handed, Lasts: lasts, Within: m.attempt.Other != "",
			Share: a.leads, Along: out.Along, Open: out.Open, Link: link,
		}
		m.hold, err = a.core.reg.Take(&g)
	}
	if err != nil {
		m.claim.Release()
	}
	return err
}

// tooLateFor gives back what member i came too late for: Close or Shutdown came
// while the answer was on its way, a session was lost, or the keys moved to another server.
func (a *acquisition) tooLateFor(i int, why error) error {
	for j := range i {
		m := &a.members[j]
		hold := m.hold
		m.hold = nil
		if m.session != nil {
			held.Release(context.WithoutCancel(a.ctx), []*held.Hold{hold}, nil)
		} else {
			hold.Discard()
		}
	}
	if a.core.isDraining() && a.members[i].session == nil || a.core.isClosed() {
		a.leftover.queued = true // giving up undoes it
		return stop(lock.ErrClosed)
	}
	if errors.Is(why, held.ErrMoved) {
		return why // the new server is asked under the same id: if it has the grant, it knows that
	}
	a.restart()
	return errSessionGone
}

// granted reads messages for this waiter alone. won and try are neither when the
// messages say nothing.
func (a *acquisition) granted(payloads []string) (won, try bool, err error) {
	m := a.about()
	if m.lock.queue == nil {
		return false, true, nil
	}
	if !a.enterGates() {
		return false, false, a.ended()
	}
	defer a.leaveGates()
	a.mu.Lock()
	out, mine := m.lock.queue.Granted(&m.attempt, payloads)
	a.mu.Unlock()
	if !mine {
		return false, true, nil
	}
	a.leftover.queued = true // until there is a hold, giving up must undo the grant
	if a.obs != nil && out.Holder != "" {
		a.obs.Busy(out.Holder, out.Trace, 0) // who gave it to us
	}
	if a.core.cfg.ReplicaAcks > 0 || time.Until(lease.LocalDeadline(out.Granted, out.Lease)) < out.Lease/2 ||
		!a.core.reg.Fresh(m.lock.of.Key, out.Granted) { // the server may have come back with an older life of the place
		// Acquire recognises the grant and sets the whole lease.
		return false, true, nil
	}
	m.session = nil
	won, err = a.won(out, nil, 1)
	if won {
		return true, false, nil
	}
	if ended, ok := errors.AsType[*stopError](err); ok {
		return false, false, ended.err
	}
	return false, true, nil
}

// classify turns a failed command into what run does next.
func (a *acquisition) classify(err error) error {
	switch {
	case a.core.isClosed():
		return stop(lock.ErrClosed)
	case conn.IsPermanent(err):
		return stop(&lock.ServerError{Name: a.about().lock.of.Name, Op: "acquire", Err: err})
	}
	return err
}
