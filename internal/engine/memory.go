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

var timers = sync.Pool{New: func() any {
	t := time.NewTimer(time.Hour)
	t.Stop()
	return t
}}

// startTimer is time.NewTimer; stopTimer must follow, after which the timer must
// not be used. (A stopped timer delivers nothing, also when it had fired.)
func startTimer(d time.Duration) *time.Timer {
	t := timers.Get().(*time.Timer) //nolint:forcetypeassert // only timers are in it
	t.Reset(d)
	return t
}

func stopTimer(t *time.Timer) {
	t.Stop()
	timers.Put(t)
}

// signals are channels of one place for something that happens once.
var signals = sync.Pool{New: func() any { return make(chan struct{}, 1) }}

// newSignal takes an empty one; who has received from it, and only then, may give
// it back with signals.Put.
func newSignal() chan struct{} {
	return signals.Get().(chan struct{}) //nolint:forcetypeassert // only these are in it
}
