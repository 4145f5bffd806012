package engine

import (
	"context"
	"errors"
)

// errBroken is how an acquisition ends that a panic ended.
var errBroken = errors.New("a panic in the user's code")

// finish runs the acquisition to its end. It calls code of the user's (an observer, a
// context), which may panic: then others go on as if the caller had left.
func (a *acquisition) finish() error {
	ended := false
	defer func() {
		if !ended {
			a.broke()
		}
	}()
	err := a.toEnd()
	ended = true
	return err
}

// broke cleans up behind a panic. Nothing of the caller's context goes on, so that the code that
// panicked is not called again.
func (a *acquisition) broke() {
	a.values, a.obs, a.broken = context.Background(), nil, true
	if a.flies {
		a.stay(a.fresh) // an answer that is there is as good as one that is not: it is undone
	}
	if a.gated {
		a.leaveGates()
	}
	a.unlead(errBroken)
	won := false
	for i := range a.members {
		if m := &a.members[i]; m.hold != nil {
			won = true
			m.hold.Drop()
			m.hold = nil
		}
	}
	a.left.queued = a.left.queued || a.sent && !won // whatever the answer was
	a.giveUp()
}
