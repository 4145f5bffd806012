// Package observe is the seam between the engine and telemetry. It knows neither
// OpenTelemetry nor Redis.
//
// # Code of the user's
//
// An observer calls samplers, span processors, exporters and Telemetry.LockName; a logger calls a handler. Such code may
// block, be slow or panic. All of it is called in one of two ways:
//
//   - What belongs to a call is told in the call's goroutine: its spans, from the first to the last, the end of the hold
//     that an Unlock ends, a forced unlock's log line. So it has been told when the call returns. A command's span is
//     ended by the caller that waited for it, not by the carrier (sender.Call.Done). Unlock ends the hold's context
//     before anything is told, and tells the end last of all; if it gives up, the rest is told in the background.
//   - All else is told in the background ([News]): losses, ends by deadline and by Close, renewals and their batches,
//     commands that nobody waits for any more, and log lines, of the subscriptions too. Whoever has something to tell
//     ends the contexts of all holds that it is about, and then puts it in the queue, which takes no time.
//
// Counting, Carries and Renewals call nobody and are asked anywhere but under a mutex. A call that begins something (a
// span) has to wait for it, with what it has: a gate, a place in the line.
//
// Panics of telemetry and of log handlers stop at [Guard]: every method of the observer, the log handler and News have
// it. A command that is sent in the background (sender.Sender.Run) is told of afterwards, by News, and a log line asks
// contexts for their trace there ([Late]), so that no goroutine of the Client's runs such code.
//
// What a call can't do without may panic in it: a method of its ctx, a NameMapper. That is the caller's, and costs the
// call alone: the engine cleans up behind it as if the caller had left. An Unlock whose code panicked goes on in the
// background, and an Extend leaves its gate. What cleans up carries nothing of the caller's context. A panic of a client
// that Config.ClientBuilder made is an answer that never came. A MultiLock asks its members in goroutines of its own:
// what one of those panics with, the caller's goroutine panics with, while what the others got is given back in the
// background.
package observe

import (
	"context"
	"errors"
	"time"
)

// Lock says which lock an observation is about.
type Lock struct {
	Name string
	Type string // reentrant, fair, read, write, multi
}

// The operations that [Observer.Operation] knows, as their spans are called.
const (
	Release     = "lock.release"
	Extend      = "lock.extend"
	ForceUnlock = "lock.force_unlock"
	State       = "lock.state"
)

// Observer sees what a client's locks do. Its methods are safe for concurrent use. They call
// code of the user's, which may block or panic: what belongs to a call of the user's they are
// told in its goroutine, all else by [News]. No mutex is held then. Counting, Carries and
// Renewals call nobody and answer at once.
//
// A nil Observer is one that sees nothing, at no cost.
type Observer interface {
	// Acquire begins an acquisition. The context carries its span to the commands
	// that it sends. The Acquisition is nil when nothing records it.
	Acquire(ctx context.Context, l Lock, wait, lease time.Duration) (context.Context, Acquisition)
	// Operation begins another operation; owner is "" for those of operators.
	Operation(ctx context.Context, l Lock, op, owner string) (context.Context, End)
	// Carries reports whether commands are observed now: if not, what their contexts
	// carry concerns nobody.
	Carries(ctx context.Context) bool
	// Command begins a script run on behalf of what ctx carries. began is zero for one that
	// begins now.
	Command(ctx context.Context, script string, began time.Time) (context.Context, func(err error))
	// Batch tells of a script run on behalf of many at once, with that many keys. Those that fail
	// because earlier ones failed already are not told.
	Batch(script string, keys int, began time.Time, err error)

	// Counting reports whether holds are counted now: it may begin while a hold
	// lasts, and what was not counted in must not be counted out.
	Counting() bool
	// Held tells that a hold began which is counted, before the Acquisition ends.
	Held(l Lock)
	// Ended tells that a hold ended, and whether it was counted: how is "released",
	// "lost", "expired" (a fixed lease, as planned) or "closed". It may come before Held. link is as for Renewed.
	Ended(l Lock, link any, counted bool, how string, held time.Duration)
	// Renewals reports whether renewals are looked at now: who has thousands of them need
	// not tell of each otherwise.
	Renewals() bool
	// Renewed tells of a renewal or check; turn: it is the first that fails, or the end of that:
	// it works again, or the lock is lost. link is what Acquisition.Link returned for the
	// acquisition that the session began with.
	Renewed(l Lock, owner string, link any, began time.Time, turn bool, err error)

	// TraceOf names the trace and span of an acquisition for a log: those of link,
	// or of what ctx carries; "" when there are none.
	TraceOf(ctx context.Context, link any) (traceID, spanID string)
}

// Waiting is an acquisition that waits.
type Waiting struct {
	Lock
	Owner  string // as on the wire; without an acquisition's id before it has asked; "": not known
	Since  time.Time
	Holder string // for whom, as far as its process knows; "": nobody knows
}

// Age is for how long a lock has been held.
type Age struct {
	Lock
	Age time.Duration
}

// End ends the observation of an operation, with what is known of it then.
type End func(err error, notes ...Note)

// Note is what an operation tells besides: its zero fields are not told.
type Note struct {
	Lease time.Duration // that an Extend asked for
	Owner string        // whom a forced unlock evicted: the first, and
	Count int           // how many holds
}

// ErrPanic is what an observation ends with if a panic in the user's code ends what it is about.
var ErrPanic = errors.New("a panic in the user's code")

// Operation is what o makes of an operation, which may be nil.
func Operation(ctx context.Context, o Observer, l Lock, op, owner string) (context.Context, End) {
	if o != nil {
		return o.Operation(ctx, l, op, owner)
	}
	return ctx, Ignore
}

// Ignore is an End that tells nobody.
func Ignore(error, ...Note) {}

// Acquisition sees one acquisition. The engine uses it from one goroutine until
// it has called End, and then only Link. A MultiLock's, whose context the members'
// are made with, may be called by those at the same time; a member that is tried again
// gets the same one again.
type Acquisition interface {
	// Trace is what the acquisition leaves beside the lock for waiters to link to:
	// a traceparent; "-" to leave nothing but read the holder's; "" for neither.
	Trace() string
	// Attempt tells of a command sent.
	Attempt()
	// Busy tells who holds the lock, what the holder left ("<owner> <traceparent>")
	// and where in a queue this acquisition stands (0: no queue, or not known). It
	// may be called again with the same.
	Busy(holder, trace string, position int)
	// Wait tells that the acquisition begins to sleep. Only the first call counts.
	Wait()
	// End ends the observation.
	End(r Result)
	// Link is kept with the session, for Renewed and TraceOf.
	Link() any
}

// Result is what an acquisition came to.
type Result struct {
	Err   error
	Owner string // as on the wire
	Count int    // holds of the owner now: 1, or more after a re-entry
	Token uint64
	Free  bool // one of several that are taken by one command: another one was busy, this one not
}
