package engine

import (
	"context"

	"github.com/redlatch/redlatch/internal/observe"
)

// finish runs the acquisition to its end. It calls code of the user's (an observer, a
// context), which may panic: then others go on as if the caller had left.
func (a *acquisition) finish() error {
	ended := false
	defer func() {
		if !ended {
			a.broke()
		}
	}()
	err := a.finishUnguarded()
	ended = true
	return err
}

// broke cleans up behind a panic. Nothing of the caller's context goes on, so that the code that
// panicked is not called again.
func (a *acquisition) broke() {
	for i := range a.members {
		if obs := a.obsOf(&a.members[i]); obs != nil && !a.endTold {
			a.core.cfg.News.Tell(func() { obs.End(observe.Result{Err: observe.ErrPanic}) })
		}
	}
	a.values, a.obs, a.panicked = context.Background(), nil, true
	answered := a.inFlight && a.leaveCommand(a.acquires) // which is as good as if it were not: it is undone
	if a.inGates {
		a.leaveGates()
	}
	if answered {
		a.call.Done()
	}
	a.unlead(observe.ErrPanic)
	won := false
	for i := range a.members {
		if m := &a.members[i]; m.hold != nil {
			won = true
			m.hold.Drop()
			m.hold = nil
		}
	}
	a.leftover.queued = a.leftover.queued || a.asked && !won // whatever the answer was
	a.giveUp()
}
