// Package held is what a client holds: owners, sessions, holds and their local
// deadlines, the watchdog that keeps them, and the one path on which they are
// given back. It knows nothing of how locks are acquired.
//
// Package lease says when a lease ends here, and when it is renewed.
//
// # Who guards what
//
// A claim's gate admits one command per client, lock and owner at a time, except
// renewals, which only raise leases and need no order. Registry.mu guards
// sessions, holds and the watchdog's heap: nothing blocks under it, and neither
// user code nor an observer runs under it.
package held

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/redlatch/redlatch/internal/conn"
	"github.com/redlatch/redlatch/internal/kind"
	"github.com/redlatch/redlatch/internal/observe"
	"github.com/redlatch/redlatch/internal/sender"
	"github.com/redlatch/redlatch/lock"
)

// Config is a Registry's configuration.
type Config struct {
	Addr          string // of the servers, for errors
	LeaseTime     time.Duration
	UnlockTimeout time.Duration
	FenceTTL      time.Duration
	Log           *slog.Logger
	Observer      observe.Observer // nil: nobody looks
	News          *observe.News    // for Log and Observer: what belongs to no call

	// Listed says what the last release of a lock does with this client's place on the list of those
	// that wait; see kind.Field.Listed.
	Listed func(l *Lock) string
	// Released is told what the last release of a session came to, or that nothing is known of it:
	// whom it called, how many listened to its message, and whether this client went on the list
	// of those who wait again.
	Released func(l *Lock, called, heard int64, again bool)
	// Gone is told of a lock that was held and that the server knows nothing of: it may be
	// free, and no message says so. The contexts of its holds have ended. It does not block.
	// nil: nobody wants to know.
	Gone func(l *Lock)
	// PassOn may give a session whose only hold is being released to somebody else
	// of this process; see [Registry.Pass]. nil: never.
	PassOn func(h *Hold) bool
}

// Lock is a named lock of one kind.
type Lock struct {
	Name string // as the caller gave it
	Key  string // on the server
	Kind kind.Kind
	Line string // the topic in whose line its waiters stand, if it is passed on; else ""
	// Calls is that topic, if a release calls one of the clients that wait; else "".
	Calls string
}

// Observed is the lock as an observer knows it.
func (l *Lock) Observed() observe.Lock {
	if l.Kind == nil { // a bad name or option
		return observe.Lock{Name: l.Name, Type: "unknown"}
	}
	return observe.Lock{Name: l.Name, Type: l.Kind.Traits().Type}
}

// Registry is all that one client holds. It is safe for concurrent use.
type Registry struct {
	cfg   Config
	send  *sender.Sender
	topo  conn.Topology
	dog   *watchdog
	epoch time.Time // when the registry was made: instants that need not be exact count from it

	// closedLate is closed when the work that leaves nothing behind has had its
	// time after Close.
	closedLate chan struct{}

	mu     sync.Mutex           // guards below, sessions, holds and the watchdog's heap
	owners map[string]*Owner    // explicit ones
	held   int                  // holds not yet unlocked, lost or closed
	idle   chan struct{}        // closed when held falls to 0; nil: nobody waits for it
	shares map[shareKey]*shared // of readers
	doubts map[string]*doubt    // of keys that were taken away by force
	pruned time.Time            // when doubts was looked through last
	drains bool
	closed bool

	releases sync.Pool
	wg       sync.WaitGroup // calls under way and what they left in the background
}

// NewRegistry makes an empty registry and starts its watchdog. Close ends it.
func NewRegistry(cfg Config, send *sender.Sender, topo conn.Topology) *Registry {
	r := &Registry{
		cfg: cfg, send: send, topo: topo,
		epoch: time.Now(), closedLate: make(chan struct{}), owners: map[string]*Owner{},
	}
	r.dog = newWatchdog(r)
	r.dog.start()
	return r
}

// Begin counts a call in, so that Close waits for it; end with End.
func (r *Registry) Begin() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return lock.ErrClosed
	}
	r.wg.Add(1)
	return nil
}

// End ends what Begin began.
func (r *Registry) End() { r.wg.Done() }

// Drain stops new sessions.
func (r *Registry) Drain() {
	r.mu.Lock()
	r.drains = true
	r.drainSharesLocked()
	r.mu.Unlock()
}

// Closed reports whether the client was closed.
func (r *Registry) Closed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.closed
}

// Empty waits until no lock is held, ctx ends or the client closes.
func (r *Registry) Empty(ctx context.Context, closing <-chan struct{}) error {
	for {
		r.mu.Lock()
		if r.idle == nil {
			r.idle = make(chan struct{})
		}
		held, idle, closed := r.held, r.idle, r.closed
		r.mu.Unlock()
		if held == 0 || closed {
			return nil
		}
		select {
		case <-idle:
		case <-closing:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Close ends every hold with ErrClosed and the watchdog. It reports false when it
// was called before.
func (r *Registry) Close() bool {
	r.mu.Lock()
	if r.closed {
		r.mu.Unlock()
		return false
	}
	r.closed, r.drains = true, true
	var ended []*Hold
	for _, s := range r.dog.sessionsLocked() {
		for _, h := range s.holds {
			h.endLocked(stateClosed, lock.ErrClosed)
			ended = append(ended, h)
		}
		s.holds = nil
		r.dropLocked(s)
	}
	r.mu.Unlock()
	for _, h := range ended {
		h.finish("closed")
	}
	r.dog.stop()
	return true
}

// Quiet waits for at most limit until no call and no background work is left and all has
// been told, and then gives up what goes on for longer.
func (r *Registry) Quiet(limit time.Duration) bool {
	defer close(r.closedLate)
	return observe.Within(limit, func() { // a stuck connection is closed by the caller
		r.wg.Wait()
		r.cfg.News.Wait()
	})
}

// SleepLate is Sleep for work that leaves nothing behind: it may go on for some time after Close.
func (r *Registry) SleepLate(deadline time.Time, d time.Duration) bool {
	return Sleep(context.Background(), r.closedLate, deadline, d)
}

// Wait blocks until no call and no background work is left.
func (r *Registry) Wait() { r.wg.Wait() }

// Moved tells that the keys are on another server now: what is held is renewed
// there at once. It does not block.
func (r *Registry) Moved() { r.dog.moved() }

// TracedArgs are the arguments of a log line about an acquisition, with its
// trace: many handlers don't look for one in the ctx.
func (r *Registry) TracedArgs(ctx context.Context, link any, args ...any) []any {
	if r.cfg.Observer == nil {
		return args
	}
	traceID, spanID := r.cfg.Observer.TraceOf(ctx, link)
	if traceID == "" {
		return args
	}
	return append(args, "trace_id", traceID, "span_id", spanID)
}

// More counts more background work in, for a call that is still under way; end
// with End.
func (r *Registry) More() { r.wg.Add(1) }

// Look is one look of the watchdog.
func (r *Registry) Look(now time.Time) { r.dog.look(now) }

// Counts tells tests how many explicit owners are remembered, how many holds there are, what the watchdog looks after,
// and how many locks have readers that share, or ask for others.
func (r *Registry) Counts() (owners, holds, scheduled, shares int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.owners), r.held, r.dog.heap.Len(), len(r.shares)
}
