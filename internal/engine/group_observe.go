package engine

import (
	"time"

	"github.com/redlatch/redlatch/internal/observe"
)

// groupObservation is one observation per member of a group. What is told of the
// acquisition is told of the member that it is about at the moment.
type groupObservation struct {
	a       *acquisition
	members []observe.Acquisition // nil: nothing records it
}

// observe begins the observation of every member. The commands belong to none of
// them, but to what the caller's ctx carries: the whole's span.
func (g *group) observe(a *acquisition, o observe.Observer, wait time.Duration) observe.Acquisition {
	all := &groupObservation{a: a, members: make([]observe.Acquisition, len(g.members))}
	any := false
	for i := range g.members {
		_, all.members[i] = o.Acquire(a.ctx, g.members[i].lock.observed(), wait, a.lease)
		any = any || all.members[i] != nil
	}
	if !any {
		return nil
	}
	return all
}

// observed ends it.
func (g *group) observed(a *acquisition, err error) {
	all, _ := a.obs.(*groupObservation)
	for i := range g.members {
		var h *Hold
		if err == nil {
			h = g.holds[i]
			if h.counted {
				a.core.cfg.Observer.Held(h.s.Lock.observed())
			}
		}
		if all != nil && all.members[i] != nil {
			all.members[i].End(result(a, h, err))
		}
	}
}

// member is the observation of the member that the acquisition is about.
func (o *groupObservation) member() observe.Acquisition {
	for i := range o.members {
		if o.a.group.members[i].lock == o.a.lock {
			return o.members[i]
		}
	}
	return nil
}

// Trace implements observe.Acquisition: all members leave the first one's.
func (o *groupObservation) Trace() string {
	if o.members[0] == nil {
		return ""
	}
	return o.members[0].Trace()
}

// Attempt implements observe.Acquisition.
func (o *groupObservation) Attempt() {
	for _, m := range o.members {
		if m != nil {
			m.Attempt()
		}
	}
}

// Busy implements observe.Acquisition.
func (o *groupObservation) Busy(holder, trace string, position int) {
	if m := o.member(); m != nil {
		m.Busy(holder, trace, position)
	}
}

// Wait implements observe.Acquisition.
func (o *groupObservation) Wait() {
	if m := o.member(); m != nil {
		m.Wait()
	}
}

// End implements observe.Acquisition; group.observed ends the members.
func (o *groupObservation) End(observe.Result) {}

// Link implements observe.Acquisition.
func (o *groupObservation) Link() any {
	if m := o.member(); m != nil {
		return m.Link()
	}
	return nil
}
