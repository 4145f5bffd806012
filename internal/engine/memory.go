package engine

import (
	"context"
	"sync"
	"time"
)

// What the hot path would otherwise allocate each time.

// detached has the values of a context and nothing of its end.
type detached struct{ context.Context }

// Deadline implements context.Context.
func (detached) Deadline() (time.Time, bool) { return time.Time{}, false }

// Done implements context.Context.
func (detached) Done() <-chan struct{} { return nil }

// Err implements context.Context.
func (detached) Err() error { return nil }

// pools are a core's own, not the package's: channels and timers made in one
// testing/synctest bubble must not turn up in another, and users test with these.
type pools struct {
	timers  sync.Pool
	signals sync.Pool
}

// startTimer is time.NewTimer; stopTimer must follow, after which the timer must
// not be used. (A stopped timer delivers nothing, also when it had fired.)
func (p *pools) startTimer(d time.Duration) *time.Timer {
	if t, ok := p.timers.Get().(*time.Timer); ok {
		t.Reset(d)
		return t
	}
	return time.NewTimer(d)
}

func (p *pools) stopTimer(t *time.Timer) {
	t.Stop()
	p.timers.Put(t)
}

// newSignal is a channel of one place for something that happens once. Who has
// received from it, and only then, may give it back with dropSignal.
func (p *pools) newSignal() chan struct{} {
	if ch, ok := p.signals.Get().(chan struct{}); ok {
		return ch
	}
	return make(chan struct{}, 1)
}

func (p *pools) dropSignal(ch chan struct{}) { p.signals.Put(ch) }
