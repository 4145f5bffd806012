package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redlatch/redlatch/internal/conn"
	"github.com/redlatch/redlatch/internal/held"
	"github.com/redlatch/redlatch/internal/kind"
	"github.com/redlatch/redlatch/internal/sender"
	"github.com/redlatch/redlatch/lock"
)

var (
	errVoid        = errors.New("the server had marked this acquisition as given up")
	errTooLate     = errors.New("the answer came after the lease had run out")
	errSessionGone = errors.New("the hold to re-enter was lost")
	errLookAgain   = errors.New("what other readers of the process have has changed")
)

// try makes one attempt: what the owner holds is re-entered, the rest is acquired.
// Neither won nor an error means busy.
func (a *acquisition) try() (won bool, err error) {
	if !a.enterGates() {
		return false, stop(a.ended()) // another command of the owner's gets no answer
	}
	if won, over := a.receive(); won || over { // just before the gate was ours
		a.leaveGates()
		if won {
			return true, nil
		}
		return false, errSessionGone
	}
	fresh, err := a.plan()
	if err != nil {
		a.leaveGates()
		return false, err
	}
	x, part := a.share(fresh)
	if part == held.Joined || part == held.Follows {
		a.leaveGates()
		if part == held.Joined {
			return true, nil
		}
		return a.follow(x)
	}
	if a.members[0].attempt.Field == "" {
		a.newID()
	}
	a.stamp()
	a.asked = true
	a.call = sender.Call{Cmd: a.command(), Class: sender.Ask, Ctx: a.core.send.Values(a.values), Signal: a.call.Signal}
	if fresh == 0 {
		a.call.Class = sender.Keep // what is held comes first
	} else if a.core.cfg.ReplicaAcks > 0 {
		a.call.Class, a.call.Cmd.Acks, a.call.Cmd.AckTimeout = sender.Acked, a.core.cfg.ReplicaAcks, a.core.cfg.AckTimeout
	}
	a.call.Cmd.Tell = a.asksServer
	if a.obs != nil {
		a.obs.Attempt()
	}
	a.acquires = fresh
	a.core.send.Start(&a.call)
	a.inFlight = true
	if !a.call.Wait(a.ctx.Done(), a.until) && !a.leaveCommand(fresh) {
		return false, stop(a.ended())
	}
	a.inFlight = false
	defer a.call.Done() // last: an observer is told
	defer a.leaveGates()
	return a.take(fresh)
}

// leaveCommand reports whether the answer came after all. If not, a command that was sent
// is somebody else's now, with the gates.
func (a *acquisition) leaveCommand(fresh int) bool {
	for i := range a.members {
		a.members[i].claim.Retain()
	}
	void, undo := a.leftover, make(chan struct{})
	a.core.reg.More()
	a.inFlight, a.inGates = false, false // from Leave on it may be somebody else's
	left := a.call.Leave(func(c *sender.Call) { a.takeLate(c, fresh, void, undo) })
	if left == sender.Away {
		a.leftover, a.undone = leftover{handedOver: true}, undo
		return false
	}
	a.inGates = true
	a.core.reg.End()
	for i := range a.members {
		a.members[i].claim.Release()
	}
	if left == sender.Withdrawn {
		a.leaveGates()
		return false
	}
	return true
}

// takeLate takes the answer of an attempt whose caller has gone: a grant is given
// back, a place in the queue left, and undo closed. The caller tells of its end meanwhile, so
// nothing here touches what it reads.
func (a *acquisition) takeLate(c *sender.Call, fresh int, left leftover, undo chan<- struct{}) {
	defer a.core.reg.End()
	granted, stays := false, false
	a.heard()
	switch {
	case fresh == 0: // what a re-entry raised ends with the session
	case c.Err != nil:
		left.failed(c.Err)
	default:
		a.mu.Lock()
		for i := range a.members {
			a.members[i].attempt.Sent = c.Sent
		}
		out, part, _ := a.read(c.Reply)
		a.mu.Unlock()
		granted = out.Acquired
		left.queued = left.queued || out.Queued || granted
		stays = left.lost == 0 && a.keepLate(&out)
		if !granted {
			a.unlist(part)
		}
	}
	if !stays && a.bid != nil && a.place != nil {
		a.core.places.remove(a.place)
		a.place = nil
	}
	if !stays && left.any() {
		a.core.reg.Undo(a.values, a.leftovers(), left.void(), true, func() { close(undo) })
		if granted {
			a.givenBack("late grant given back")
		}
	} else {
		a.freeGates()
		close(undo)
	}
	a.releaseClaims()
}

// heard notes that a command has its answer, or an error, with the sessions that it re-entered.
func (a *acquisition) heard() {
	for i := range a.members {
		if m := &a.members[i]; m.session != nil {
			m.session.Heard(m.attempt.Lease)
		}
	}
}

func (a *acquisition) releaseClaims() {
	for i := range a.members {
		a.members[i].claim.Release()
	}
}

// enterGates waits for the owner's other commands of all members.
func (a *acquisition) enterGates() bool {
	for i := range a.members {
		gate := &a.members[i].claim.Gate
		if gate.TryEnter() {
			continue
		}
		a.waited = true
		ctx := a.ctx
		if !a.until.IsZero() {
			var cancel context.CancelFunc
			ctx, cancel = context.WithDeadline(ctx, a.until)
			defer cancel()
		}
		if !gate.Enter(ctx, a.core.closing) {
			for j := range i {
				a.members[j].claim.Gate.Leave()
			}
			return false
		}
	}
	a.inGates = true
	return true
}

func (a *acquisition) leaveGates() {
	a.inGates = false
	a.freeGates()
}

// freeGates is leaveGates for whoever got the gates with an answer.
func (a *acquisition) freeGates() {
	for i := range a.members {
		a.members[i].claim.Gate.Leave()
	}
}

// plan finds out what the owner holds already. fresh is how many members are to
// be acquired. The gates are ours.
func (a *acquisition) plan() (fresh int, err error) {
	drains := false
	for i := range a.members {
		m := &a.members[i]
		mode := m.lock.of.Kind.Traits().Mode
		look := m.claim.Look(mode)
		m.session = look.Session
		if m.session != nil {
			var ok bool
			if m.count, ok = m.session.Asking(m.attempt.Lease); ok {
				if err := a.mayReenter(m); err != nil {
					return 0, stop(err)
				}
				continue
			}
			if m.session = nil; a.ctx.Err() != nil { // it was asked for with the lost hold's context
				return 0, stop(a.ended())
			}
		}
		if mode == lock.ModeWrite && look.Reads {
			return 0, stop(lock.ErrUpgrade)
		}
		fresh++
		other := ""
		if mode == lock.ModeRead {
			other = look.Writes // a writer that also reads
		}
		drains = drains || look.Drains && other == ""
		a.mu.Lock()
		m.attempt.Other = other
		a.mu.Unlock()
	}
	a.reenters = fresh == 0 || !drains && a.core.isDraining()
	if drains {
		return 0, stop(lock.ErrClosed)
	}
	return fresh, nil
}

// mayReenter refuses what a re-entry can't be. Through a fenced object it would have no token, and 0 would not
// tell. Together with others it would be released by one command, which only some kinds have.
func (a *acquisition) mayReenter(m *member) error {
	name, by := m.lock.of.Name, m.session.Lock.Kind
	if m.lock.of.Kind.Traits().Fenced && !by.Traits().Fenced {
		return &lock.InvalidOptionError{Option: "Fenced", Reason: fmt.Sprintf(
			"the owner holds lock %q without a fencing token, which a re-entry does not get: acquire it with Fenced", name)}
	}
	if _, ok := by.(kind.Group); !ok && len(a.members) > 1 {
		return &lock.InvalidOptionError{Option: "MultiLock", Reason: fmt.Sprintf(
			"the owner holds lock %q as a %s lock, which is not re-entered together with others: lock it alone", name, by.Traits().Type)}
	}
	return nil
}

// command builds the attempt's command.
func (a *acquisition) command() conn.Command {
	a.mu.Lock()
	defer a.mu.Unlock()
	m := &a.members[0]
	if len(a.members) == 1 {
		if m.session != nil {
			return m.lock.of.Kind.Reenter(m.session.Field, m.count, m.attempt.Lease)
		}
		m.attempt.Wait = a.waitLeft()
		m.attempt.Place = a.askAs(m)
		return m.lock.of.Kind.Acquire(&m.attempt)
	}
	for i := range a.members {
		a.members[i].attempt.Place = a.askAs(&a.members[i])
	}
	group, _ := m.lock.of.Kind.(kind.Group) // see Lock.Group
	return group.AcquireAll(m.attempt.Lease, a.parts())
}

// askAs is what the attempt tells the server of this client's place on the list of those that wait.
func (a *acquisition) askAs(m *member) string {
	if m.lock.of.Calls == "" || a.once && (a.bid == nil || a.bid.once) { // a copy of a quorum is waited for after it was asked
		return ""
	}
	return a.core.hub.Asks(m.lock.of.Calls)
}

// parts are the members as their kind sees them.
func (a *acquisition) parts() []kind.Part {
	parts := make([]kind.Part, len(a.members))
	for i := range a.members {
		m := &a.members[i]
		parts[i] = kind.Part{Kind: m.lock.of.Kind, Attempt: &m.attempt}
		if m.session != nil {
			parts[i].Field, parts[i].Count = m.session.Field, m.count
		}
	}
	return parts
}

func (a *acquisition) waitLeft() time.Duration {
	switch {
	case a.bid != nil:
		return forever
	case a.once:
		return 0
	case a.until.IsZero():
		return forever
	}
	return max(time.Until(a.until), time.Millisecond)
}
