// Package observe is the seam between the engine and telemetry. It knows neither
// OpenTelemetry nor Redis.
package observe

import (
	"context"
	"time"
)

// Lock says which lock an observation is about.
type Lock struct {
	Name string
	Type string // reentrant, fair, read, write, multi
}

// Observer sees what a client's locks do. Its methods are safe for concurrent
// use and do not block. The engine holds no mutex when it calls them.
//
// A nil Observer is one that sees nothing, at no cost.
type Observer interface {
	// Acquire begins an acquisition. The context carries its span to the commands
	// that it sends. The Acquisition is nil when nothing records it.
	Acquire(ctx context.Context, l Lock, wait, lease time.Duration) (context.Context, Acquisition)
	// Release begins an Unlock. The function ends it.
	Release(ctx context.Context, l Lock, owner string) (context.Context, func(err error))
	// Operator begins a call of an operator: "force_unlock" or "state".
	Operator(ctx context.Context, l Lock, op string) (context.Context, func(err error))
	// Command begins a script run. Several keys may travel in one.
	Command(ctx context.Context, script string) (context.Context, func(err error))

	// Held tells that a hold began, before the Acquisition ends.
	Held(l Lock)
	// Ended tells that a hold ended: how is "released", "lost" or "closed".
	Ended(l Lock, how string, held time.Duration)
	// Renewed tells of a renewal or check. link is what Acquisition.Link returned
	// for the acquisition that the session began with.
	Renewed(l Lock, owner string, link any, began time.Time, err error)
}

// Acquisition sees one acquisition. The engine uses it from one goroutine.
type Acquisition interface {
	// Trace is what the acquisition leaves beside the lock for waiters to link to:
	// a traceparent; "-" to leave nothing but read the holder's; "" for neither.
	Trace() string
	// Attempt tells of a command sent.
	Attempt()
	// Busy tells who holds the lock, what trace it left and where in a queue this
	// acquisition stands (0: no queue).
	Busy(holder, trace string, position int)
	// Wait tells that the acquisition begins to sleep for the first time.
	Wait()
	// End ends the observation.
	End(r Result)
	// Link is kept with the session, for Renewed.
	Link() any
}

// Result is what an acquisition came to.
type Result struct {
	Err      error
	Owner    string // as on the wire
	Count    int    // holds of the owner now: 1, or more after a re-entry
	Token    uint64
	Position int
}
