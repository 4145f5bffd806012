package lock

import (
	"fmt"
	"strings"
	"time"

	"github.com/redlatch/redlatch/internal/quote"
)

// HeldLock is a lock that a Client holds: one acquisition with its re-entries.
type HeldLock struct {
	Name       string
	Type       string // as the lock.type attribute: reentrant, fair, read, write
	Mode       Mode
	Owner      string    // as Redis stores it; if passed on inside the process, the owner that took it first
	Count      int       // holds, re-entries included
	HeldSince  time.Time // since when its oldest hold is one
	ValidUntil time.Time // the latest local deadline of its holds
	Fixed      bool      // no hold of it is kept by the watchdog
}

// ShutdownError is returned by Client.Shutdown if its ctx ends while locks are held.
type ShutdownError struct {
	Held []HeldLock // the longest-held first
	Err  error      // ctx.Err()
}

// shownHeld is how many names a message has.
const shownHeld = 10

func (e *ShutdownError) Error() string {
	names := make([]string, 0, shownHeld)
	for _, h := range e.Held[:min(len(e.Held), shownHeld)] {
		names = append(names, quote.Name(h.Name))
	}
	if more := len(e.Held) - len(names); more > 0 {
		names = append(names, fmt.Sprintf("%d more", more))
	}
	return quote.Line(fmt.Sprintf("redlatch: shutdown: still held: %d (%s): %v", len(e.Held), strings.Join(names, ", "), e.Err))
}

// Unwrap leads to ctx.Err().
func (e *ShutdownError) Unwrap() error { return e.Err }

// ErrorType is a short, stable name for telemetry.
func (e *ShutdownError) ErrorType() string { return "shutdown" }
