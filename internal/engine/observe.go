package engine

import (
	"context"
	"time"

	"github.com/redlatch/redlatch/internal/observe"
)

// refused observes an acquisition that ended before it began.
func (l *Lock) refused(ctx context.Context, wait, lease time.Duration, err error) error {
	if o := l.core.cfg.Observer; o != nil {
		if _, obs := o.Acquire(ctx, l.of.Observed(), wait, lease); obs != nil {
			obs.End(observe.Result{Err: err})
		}
	}
	return err
}

// observe begins the observation of an acquisition: of one lock, or of each of
// several. A command for several belongs to none of them, but to what the
// caller's ctx carries: the whole's span.
func (a *acquisition) observe() {
	o := a.core.cfg.Observer
	if o == nil {
		return
	}
	if len(a.members) == 1 {
		a.values, a.obs = o.Acquire(a.ctx, a.about().lock.of.Observed(), a.wait, a.lease)
	} else {
		all := &observations{a: a, members: make([]observe.Acquisition, len(a.members))}
		for i := range a.members {
			_, all.members[i] = o.Acquire(a.ctx, a.members[i].lock.of.Observed(), a.wait, a.lease)
			if all.members[i] != nil {
				a.obs = all
			}
		}
	}
	if a.obs == nil {
		return
	}
	trace := a.obs.Trace()
	for i := range a.members {
		a.members[i].attempt.Trace = trace
	}
}

// observed ends it.
func (a *acquisition) observed(err error) {
	a.endTold = true
	for i := range a.members {
		m := &a.members[i]
		if err == nil && m.hold.Counted() {
			a.core.cfg.Observer.Held(m.lock.of.Observed())
		}
		if obs := a.obsOf(m); obs != nil {
			r := m.result(err)
			r.Free = err != nil && a.serverAnswered && i != a.at && observe.Waited(err)
			obs.End(r)
		}
	}
}

// result is what an acquisition came to, for an observer.
func (m *member) result(err error) observe.Result {
	r := observe.Result{Err: err, Owner: m.attempt.Entry}
	if err == nil {
		r.Owner, r.Token, r.Count = m.hold.Field().Name, m.hold.Token(), m.hold.Count()
	}
	return r
}

// obsOf is the observation of a member, or nil.
func (a *acquisition) obsOf(m *member) observe.Acquisition {
	all, ok := a.obs.(*observations)
	if !ok {
		return a.obs
	}
	for i := range a.members {
		if m == &a.members[i] {
			return all.members[i]
		}
	}
	return nil
}

// linkOf is what a member's session keeps of its observation.
func (a *acquisition) linkOf(m *member) any {
	if obs := a.obsOf(m); obs != nil {
		return obs.Link()
	}
	return nil
}

// observations is one observation per member. What is told of the acquisition is
// told of the member that it is about at the moment.
type observations struct {
	a       *acquisition
	members []observe.Acquisition // nil: nothing records it
}

func (o *observations) member() observe.Acquisition {
	o.a.mu.Lock() // a log line of the subscription's may ask
	defer o.a.mu.Unlock()
	return o.members[o.a.at]
}

// Trace implements observe.Acquisition: all members leave the first one's.
func (o *observations) Trace() string {
	for _, m := range o.members {
		if m != nil {
			return m.Trace()
		}
	}
	return ""
}

// Attempt implements observe.Acquisition.
func (o *observations) Attempt() {
	for _, m := range o.members {
		if m != nil {
			m.Attempt()
		}
	}
}

// Busy implements observe.Acquisition.
func (o *observations) Busy(holder, trace string, position int) {
	if m := o.member(); m != nil {
		m.Busy(holder, trace, position)
	}
}

// Wait implements observe.Acquisition.
func (o *observations) Wait() {
	if m := o.member(); m != nil {
		m.Wait()
	}
}

// End implements observe.Acquisition; acquisition.observed ends the members.
func (o *observations) End(observe.Result) {}

// Link implements observe.Acquisition.
func (o *observations) Link() any {
	if m := o.member(); m != nil {
		return m.Link()
	}
	return nil
}

// givenBack logs that a lock that the server had granted is given back.
func (a *acquisition) givenBack(what string) {
	log, ctx, args := a.core.cfg.Log, a.values, a.Logged()
	a.core.cfg.News.Tell(func() { log.InfoContext(ctx, "redlatch: "+what, observe.Resolve(args)...) }) // its gates are ours
}

// Logged implements pubsub.Member: the arguments of a log line about the acquisition, for
// whoever writes it: those with the trace are [observe.Late].
func (a *acquisition) Logged() []any {
	var link any
	if a.obs != nil {
		link = a.obs.Link()
	}
	who := a.Waits()
	args := []any{"lock", who.Name, "owner", who.Owner, "type", who.Type}
	reg, ctx := a.core.reg, a.ctx
	return append(args, observe.Late(func() []any { return reg.TracedArgs(ctx, link) }))
}
