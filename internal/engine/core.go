package engine

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redlatch/redlatch/internal/conn"
	"github.com/redlatch/redlatch/internal/luascript"
	"github.com/redlatch/redlatch/internal/observe"
	"github.com/redlatch/redlatch/internal/pubsub"
	"github.com/redlatch/redlatch/lock"
)

// Config is a Core's configuration; the root package validates and completes it.
type Config struct {
	ID            string // of the client, a UUID
	Addr          string // of the servers, for errors
	LeaseTime     time.Duration
	UnlockTimeout time.Duration
	FenceTTL      time.Duration // negative: none
	ReplicaAcks   int
	AckTimeout    time.Duration
	Map           func(name string) string // name -> key; nil: as it is
	Log           *slog.Logger
	Observer      observe.Observer // nil: nobody looks
}

// Core is what all locks of one Client share: the runner, the subscriptions, the
// owners and the watchdog. It is safe for concurrent use.
type Core struct {
	cfg  Config
	run  conn.Runner
	hub  *pubsub.Hub
	topo conn.Topology
	dog  *watchdog

	// inFlight bounds the acquisitions that wait for an answer, so that those
	// who give up while the server is stuck have mostly not sent anything.
	inFlight chan struct{}

	draining chan struct{} // closed: no new acquisitions
	closing  chan struct{} // closed: everything ends
	// closedLate is closed UnlockTimeout after closing: the work that leaves
	// nothing behind has had its time.
	closedLate chan struct{}
	acq        atomic.Uint64 // acquisition ids

	mu     sync.Mutex        // guards below, sessions, holds and the watchdog's heap
	owners map[string]*owner // explicit ones
	lines  map[string]*Line  // of quorum acquisitions

	// run_ids of servers: the last one that said it, and those known to have been
	// up for a lease, with the longest one
	lastServer string
	trusted    map[string]time.Duration

	held   int           // holds not yet unlocked, lost or closed
	idle   chan struct{} // closed and replaced when held falls to 0
	drains bool
	closed bool

	pools pools
	wg    sync.WaitGroup // calls under way and what they left in the background
}

// maxInFlight stays below the 1024 places of a connection's ring.
const maxInFlight = 512

// NewCore starts the engine of a client. Close ends it.
func NewCore(cfg Config, run conn.Runner, hub *pubsub.Hub) *Core {
	if cfg.Observer != nil {
		run = observed{run, cfg.Observer}
	}
	c := &Core{
		cfg: cfg, run: run, hub: hub, topo: run.Topology(),
		inFlight: make(chan struct{}, maxInFlight),
		draining: make(chan struct{}), closing: make(chan struct{}), closedLate: make(chan struct{}),
		owners: map[string]*owner{}, lines: map[string]*Line{}, trusted: map[string]time.Duration{}, idle: make(chan struct{}),
	}
	c.dog = newWatchdog(c)
	c.dog.start()
	return c
}

// ID is the client's id on the wire.
func (c *Core) ID() string { return c.cfg.ID }

// Topology tells how keys are placed.
func (c *Core) Topology() conn.Topology { return c.topo }

// FenceTTL is how long fencing counters outlive the last acquisition; negative:
// for ever.
func (c *Core) FenceTTL() time.Duration { return c.cfg.FenceTTL }

// LeaseTime is the watchdog's lease.
func (c *Core) LeaseTime() time.Duration { return c.cfg.LeaseTime }

// begin counts a call in, so that Close waits for it; end with c.wg.Done.
func (c *Core) begin() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return lock.ErrClosed
	}
	c.wg.Add(1)
	return nil
}

// drain stops new acquisitions.
func (c *Core) drain() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.drains {
		c.drains = true
		close(c.draining)
	}
}

// Drain stops new acquisitions and waits until no lock is held or ctx ends.
func (c *Core) Drain(ctx context.Context) error {
	c.drain()
	for {
		c.mu.Lock()
		held, idle, closed := c.held, c.idle, c.closed
		c.mu.Unlock()
		if held == 0 || closed {
			return nil
		}
		select {
		case <-idle:
		case <-c.closing:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Close ends everything: waiters and holds with ErrClosed, the watchdog, and,
// once what is under way has left its queues or UnlockTimeout has passed, the
// subscriptions. The caller closes the connection after it. It reports whether
// all that was under way has ended.
func (c *Core) Close() bool {
	c.drain()
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return true
	}
	c.closed = true
	close(c.closing)
	var ended []*Hold
	for _, s := range c.dog.sessionsLocked() {
		for _, h := range s.holds {
			h.endLocked(stateClosed)
			ended = append(ended, h)
		}
		s.holds = nil
		c.dropSessionLocked(s)
	}
	c.mu.Unlock()
	for _, h := range ended {
		h.finish(lock.ErrClosed)
	}
	c.dog.stop()
	quiet := c.Quiet(c.cfg.UnlockTimeout)
	close(c.closedLate)
	c.hub.Close()
	return quiet
}

// Quiet waits for at most limit until no call and no background work is left.
func (c *Core) Quiet(limit time.Duration) bool {
	done := make(chan struct{})
	go func() { // ends with the work; a stuck connection is closed by the caller
		c.wg.Wait()
		close(done)
	}()
	t := time.NewTimer(limit)
	defer t.Stop()
	select {
	case <-done:
		return true
	case <-t.C:
		return false
	}
}

// flight is one command under way.
type flight struct {
	sent  time.Time
	reply conn.Reply
	err   error

	core *Core
	vctx context.Context
	cmd  conn.Command
	lc   latecomer

	mu    sync.Mutex
	ended bool // guarded by mu
	left  bool // guarded by mu
	done  chan struct{}
}

// run is the goroutine of a flight that can be left. It ends with the answer, or
// with the connection.
func (f *flight) run() {
	defer f.core.wg.Done()
	f.reply, f.err = f.core.run.Run(f.vctx, f.cmd)
	f.mu.Lock()
	f.ended = true
	left := f.left
	f.mu.Unlock()
	if !left {
		f.done <- struct{}{}
	} else if f.lc != nil {
		f.lc.late(f)
	}
}

// latecomer takes over a command whose caller stopped waiting.
type latecomer interface {
	leaving()     // called while the outcome is still open
	late(*flight) // called with it, in the background
}

// fly runs cmd. When the caller stops waiting first (ctx, deadline if not zero,
// Close) it returns false, and the latecomer, if any, gets the outcome. The
// caller has called begin. vctx is for its values.
func (c *Core) fly(ctx, vctx context.Context, deadline time.Time, cmd conn.Command, lc latecomer) (*flight, bool) {
	f := &flight{sent: time.Now()}
	if ctx.Done() == nil && deadline.IsZero() {
		// Nothing can interrupt this but Close, which ends the connection.
		f.reply, f.err = c.run.Run(vctx, cmd)
		return f, true
	}
	f.core, f.vctx, f.cmd, f.lc, f.done = c, vctx, cmd, lc, c.pools.newSignal()
	c.wg.Add(1)
	go f.run()
	var expiry <-chan time.Time
	if !deadline.IsZero() {
		t := c.pools.startTimer(time.Until(deadline))
		defer c.pools.stopTimer(t)
		expiry = t.C
	}
	select {
	case <-f.done:
		c.pools.dropSignal(f.done)
		return f, true
	case <-ctx.Done():
	case <-expiry:
	case <-c.closing:
	}
	if f.leave() {
		return f, false
	}
	<-f.done
	c.pools.dropSignal(f.done)
	return f, true
}

// leave hands the flight over to its latecomer; false: it has ended.
func (f *flight) leave() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ended {
		return false
	}
	f.left = true
	if f.lc != nil {
		f.lc.leaving()
	}
	return true
}

// key maps a name and checks it.
func (c *Core) key(name string) (string, error) {
	if name == "" {
		return "", &lock.InvalidNameError{Name: name, Reason: "it is empty"}
	}
	key := name
	if c.cfg.Map != nil {
		key = c.cfg.Map(name)
		if key == "" {
			return "", &lock.InvalidNameError{Name: name, Reason: "the name mapper made it empty"}
		}
	}
	if c.topo.Cluster && luascript.Slot(luascript.Derive("x", key)) != luascript.Slot(key) {
		return "", &lock.InvalidNameError{Name: name, Reason: "its braces put the keys that belong to it into another cluster slot"}
	}
	return key, nil
}

// Moved tells that the keys are on another server now: what is held is renewed
// there at once, and who waits listens there. It does not block.
func (c *Core) Moved() {
	c.dog.moved()
	c.hub.Redial()
}

// Wait blocks until no goroutine of the core is left; the connection has been
// closed, so that none can be stuck.
func (c *Core) Wait() { c.wg.Wait() }
