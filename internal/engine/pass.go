package engine

import (
	"context"

	"github.com/redlatch/redlatch/internal/conn"
	"github.com/redlatch/redlatch/internal/held"
	"github.com/redlatch/redlatch/internal/kind"
	"github.com/redlatch/redlatch/internal/pubsub"
	"github.com/redlatch/redlatch/internal/sender"
)

// nobody's attempt is for questions about a lock alone; kinds only read it then.
var nobody kind.Attempt

// passOn gives a lock that is being unlocked to the first of this process who
// waits for it, without a command.
func (c *Core) passOn(h *held.Hold) bool {
	line := h.Lock().Line
	if c.cfg.Tenure <= 0 || line == "" || !c.hub.Waiting(line) {
		return false
	}
	passed, late := c.reg.Pass(h, c.cfg.Tenure, func(give held.Giver) bool {
		return c.hub.TakeHead(line, func(v any) (pubsub.Holder, bool) {
			a, ok := v.(*acquisition)
			if !ok || !a.accept(give) {
				return pubsub.Holder{}, false
			}
			return a.inside(), true
		})
	})
	if late {
		c.hub.TenureEnds(line) // the others come first now
	}
	return passed
}

// accept makes the hold of a waiting acquisition, under the mutexes of the registry
// and the hub: the giver makes it, or sees that the receiver has left. A waiter with
// other wishes is not skipped: the lock is released for it.
func (a *acquisition) accept(give held.Giver) bool {
	if len(a.members) != 1 || a.lease != 0 || a.asksServer || !a.asleep.Load() {
		return false
	}
	m := &a.members[0]
	if m.lock.of.Line == "" {
		return false
	}
	a.passed = give.To(held.Receiver{Claim: m.claim, Ctx: a.ctx, Link: a.passLink, Count: a.passCounts})
	return a.passed != nil
}

// inside is the receiver of a lock that is passed on, for those in line behind it. On
// the server the field names the one who took it.
func (a *acquisition) inside() pubsub.Holder {
	who := pubsub.Holder{Owner: a.passed.Field().Name}
	if len(a.passTrace) > 1 { // the attempt may be getting its id
		who.Trace = who.Owner + " " + a.passTrace
	}
	return who
}

// receive takes the hold that was passed on to this acquisition, if one was: won,
// unless it is over already.
func (a *acquisition) receive() (won, over bool) {
	h, lost := a.core.reg.TakePassed(&a.passed)
	switch {
	case h == nil:
		return false, false
	case lost || a.ctx.Err() != nil:
		held.Release(a.values, []*held.Hold{h}, nil) // passes it on, or frees it
		if a.waiter != nil {
			a.stopListening() // it has no place in the line any more
		}
		return false, true
	}
	a.about().hold = h
	if a.obs != nil {
		a.tellHolders(a.waiter.Take().Passed)
	}
	return true, false
}

// tellHolders tells the observer who has had the lock meanwhile.
func (a *acquisition) tellHolders(holders []pubsub.Holder) {
	if a.obs == nil {
		return
	}
	for _, who := range holders {
		a.obs.Busy(who.Owner, who.Trace, 0)
	}
}

// topic is what the lock's waiters listen to.
func topic(l *held.Lock) (id string) {
	if l.Line != "" {
		return l.Line
	}
	spec, _ := l.Kind.Wait(&nobody)
	return spec.ID
}

// gone wakes the waiters of this process: a lock that it held is gone, and they would sleep until
// the lease that they know of ends.
func (c *Core) gone(l *held.Lock) { c.hub.Missed(topic(l)) }

// listed says what a release does with this client's place on the list.
func (c *Core) listed(l *held.Lock) string { return c.hub.Releases(l.Calls) }

// released tells the waiters of this process what a release came to.
func (c *Core) released(l *held.Lock, called, heard int64, again bool) {
	c.hub.Released(l.Calls, pubsub.Release{
		Called: called > kind.CalledNobody, Loser: called == kind.CalledLoser, Heard: heard > 0 || c.topo.Counts() == "0", Again: again,
	})
	if caller, ok := l.Kind.(kind.Caller); ok && called == kind.CalledDead {
		c.Leave(caller.Leave(), l.Calls)
	}
}

// Leave takes this client off a lock's list of those that wait, in the background: what it may
// have been called for goes to the next. Nobody waits for it, and nothing depends on it for longer
// than until somebody looks.
func (c *Core) Leave(cmd conn.Command, topic string) {
	if cmd.Script == nil || c.reg.Begin() != nil {
		return
	}
	c.leave(cmd, topic)
}

// leave is Leave for one who is counted in.
func (c *Core) leave(cmd conn.Command, topic string) {
	c.send.Start(&sender.Call{Cmd: cmd, Class: sender.Keep, Ctx: context.Background(), Then: func(call *sender.Call) {
		c.hub.Left(topic)
		again := call.Err == nil && call.Reply.Code == kind.CalledDead
		if again {
			c.Leave(cmd, topic)
		}
		c.reg.End()
	}})
}

// deserted leaves the list if nobody of this process waits any more. The caller is counted in.
func (c *Core) deserted(l *held.Lock, deserted bool) {
	caller, ok := l.Kind.(kind.Caller)
	if !ok || !deserted {
		return
	}
	if cmd := caller.Leave(); cmd.Script != nil {
		c.reg.More()
		c.leave(cmd, l.Calls)
	}
}
