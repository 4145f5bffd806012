// Package engine acquires: one loop for all kinds and for any number of members.
// A kind tells it, through [kind.Kind], which scripts to run, what their answers
// mean and whom a message wakes; package held keeps what it gets.
//
// # One acquisition
//
//	        ┌────────────── busy ───────────────┐
//	        ▼                                    │
//	try ── gates ── command ── answer ── acquired ── sessions + holds
//	        ▲          │         │
//	        │          │         └─ transient error: pause, try again
//	        │          └─ caller gone: a command that was not sent is withdrawn;
//	        │             whoever takes the answer of another gives back what it got
//	        └── woken by: a message, a (re)connected subscription, the end of the
//	            holder's lease, another acquisition of the same owner, the refresh
//	            of a queue place
//
// The server decides; the client only chooses when to ask.
package engine

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redlatch/redlatch/internal/conn"
	"github.com/redlatch/redlatch/internal/held"
	"github.com/redlatch/redlatch/internal/inspect"
	"github.com/redlatch/redlatch/internal/observe"
	"github.com/redlatch/redlatch/internal/pubsub"
	"github.com/redlatch/redlatch/internal/sender"
	"github.com/redlatch/redlatch/lock"
)

// Config is a Core's configuration; the root package validates and completes it.
type Config struct {
	ID            string // of the client, a UUID
	Addr          string // of the servers, for errors
	DB            int    // the database, -1 if that is not known
	LeaseTime     time.Duration
	UnlockTimeout time.Duration
	FenceTTL      time.Duration // negative: none
	ReplicaAcks   int
	AckTimeout    time.Duration
	Tenure        time.Duration            // how long locks are passed on inside the process; 0: never
	Alone         bool                     // never several commands in one write
	Map           func(name string) string // name -> key; nil: as it is
	Closing       chan struct{}            // closed by Close; nil: the core makes one
	Log           *slog.Logger
	Observer      observe.Observer // nil: nobody looks
	News          *observe.News    // tells both what belongs to no call; nil: the core makes one
}

// Core is what all locks of one Client share. It is safe for concurrent use.
type Core struct {
	cfg    Config
	hub    *pubsub.Hub
	topo   conn.Topology
	send   *sender.Sender
	reg    *held.Registry
	places *places

	draining chan struct{} // closed: no new acquisitions
	closing  chan struct{} // closed: everything ends
	acq      atomic.Uint64 // acquisition ids
	used     sync.Pool     // acquisitions that ended; see recycle
	nested   nestings
	pausing  pauses
	outage   outage
	swapped  sync.Once // a warning of swapped arguments

	mu       sync.Mutex  // drain's, too
	attached map[any]any // guarded by mu
}

// NewCore starts the engine of a client. Close ends it.
func NewCore(cfg Config, run conn.Runner, hub *pubsub.Hub) *Core {
	if cfg.News == nil {
		cfg.News = &observe.News{}
	}
	if cfg.Closing == nil {
		cfg.Closing = make(chan struct{})
	}
	c := &Core{
		cfg: cfg, hub: hub, topo: run.Topology(),
		draining: make(chan struct{}), closing: cfg.Closing, attached: map[any]any{},
	}
	c.send = sender.New(run, sender.Config{Slow: c.slow(), Alone: cfg.Alone, Observer: cfg.Observer, News: cfg.News})
	c.reg = held.NewRegistry(held.Config{
		Addr: cfg.Addr, LeaseTime: cfg.LeaseTime, UnlockTimeout: cfg.UnlockTimeout, FenceTTL: cfg.FenceTTL, Log: cfg.Log, Observer: cfg.Observer, News: cfg.News,
		Listed: c.listed, Released: c.released, Gone: c.gone, PassOn: c.passOn,
	}, c.send, c.topo)
	c.places = newPlaces(c)
	return c
}

// ID is the client's id on the wire.
func (c *Core) ID() string { return c.cfg.ID }

// Addr is where the client's servers are, for errors.
func (c *Core) Addr() string { return c.cfg.Addr }

// DB is the number of the client's database, -1 if that is not known.
func (c *Core) DB() int { return c.cfg.DB }

// Topology tells how keys are placed.
func (c *Core) Topology() conn.Topology { return c.topo }

// FenceTTL is how long fencing counters outlive the last acquisition; negative:
// for ever.
func (c *Core) FenceTTL() time.Duration { return c.cfg.FenceTTL }

// LeaseTime is the watchdog's lease.
func (c *Core) LeaseTime() time.Duration { return c.cfg.LeaseTime }

// slow is the bound that tells a slow node from a silent one.
func (c *Core) slow() time.Duration { return min(time.Second, c.cfg.LeaseTime/3) }

// patience is until when an attempt that begins now may have no answer: then its node is silent. An answer may
// wait for replicas.
func (c *Core) patience() time.Time {
	at := time.Now().Add(c.slow())
	if c.cfg.ReplicaAcks > 0 {
		at = at.Add(c.cfg.AckTimeout)
	}
	return at
}

// UnlockTimeout bounds unlocking.
func (c *Core) UnlockTimeout() time.Duration { return c.cfg.UnlockTimeout }

// Observer is the client's observer, or nil.
func (c *Core) Observer() observe.Observer { return c.cfg.Observer }

// Tell has an observer told, in the background, of what belongs to no call of the user's.
func (c *Core) Tell(tell func()) { c.cfg.News.Tell(tell) }

// Refuses reports whether the client takes no more acquisitions: from Drain on no new ones, from Close on
// not those of an owner that is inside, either. Both signal whoever waits for messages.
func (c *Core) Refuses(inside bool) bool { return c.isClosed() || !inside && c.isDraining() }

// Held is what the client holds.
func (c *Core) Held() []lock.HeldLock {
	all, _ := c.reg.List(0)
	return all
}

// Oldest is what it has held longest, at most so many locks, and how many there are.
func (c *Core) Oldest(most int) ([]lock.HeldLock, int) { return c.reg.List(most) }

// Ages is for how long what is held has been held, for an observer.
func (c *Core) Ages(named bool) []observe.Age { return c.reg.Ages(named) }

// Doubt is called before and, with what it returns, after a lock is taken away by
// force; see held.Registry.Doubt.
func (c *Core) Doubt(name string) (over func(answered bool, e inspect.Evicted)) {
	key, err := c.key(name)
	if err != nil {
		return func(bool, inspect.Evicted) {}
	}
	return c.doubt(key)
}

func (c *Core) doubt(key string) (over func(answered bool, e inspect.Evicted)) {
	known := c.reg.Doubt(key)
	return func(answered bool, e inspect.Evicted) {
		// It may have run without an answer, and not all of many are named.
		ours := !answered || e.Count > len(e.Owners) || slices.ContainsFunc(e.Owners, c.owns)
		known(answered, ours)
	}
}

// Attach finds what a package keeps with the client under a key of its own, or
// makes it. It lives as long as the client.
func (c *Core) Attach(key any, build func() any) any {
	c.mu.Lock()
	defer c.mu.Unlock()
	v, ok := c.attached[key]
	if !ok {
		v = build()
		c.attached[key] = v
	}
	return v
}

// drain stops new acquisitions.
func (c *Core) drain() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.isDraining() {
		c.reg.Drain()
		close(c.draining)
		c.hub.Nudge() // who waits looks whether it is closed
	}
}

func (c *Core) isDraining() bool { return isClosed(c.draining) }

func (c *Core) isClosed() bool { return isClosed(c.closing) }

func isClosed(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}

// Drain stops new acquisitions and waits until no lock is held or ctx ends.
func (c *Core) Drain(ctx context.Context) error {
	c.drain()
	return c.reg.Empty(ctx, c.closing)
}

// Close ends everything: waiters and holds with ErrClosed, the watchdog, and,
// once what is under way has left its queues or UnlockTimeout has passed, the
// subscriptions, for which it waits no longer than that, either. The caller closes the
// connection after it, and then calls Wait. It reports whether all that was under way has
// ended.
func (c *Core) Close() bool {
	c.drain()
	if !c.reg.Close() {
		return true
	}
	close(c.closing)
	c.hub.Nudge()
	c.send.Interrupt()
	c.places.stop()
	quiet := c.reg.Quiet(c.cfg.UnlockTimeout)
	c.hub.Close()
	observe.Within(c.cfg.UnlockTimeout, c.hub.Wait) // what is left ends with the connection: see Wait
	c.send.Stop()
	return quiet
}

// Wait blocks until no goroutine of the core is left, nor any that others wait for; the
// connection has been closed, so that none can be stuck there. Those that the user's code (an
// observer, a log handler, a client that is not our own) keeps for longer than UnlockTimeout are
// left behind; Wait reports false then.
func (c *Core) Wait(others ...func()) bool {
	if !observe.Within(c.cfg.UnlockTimeout, func() {
		c.reg.Wait()
		for _, wait := range others {
			wait()
		}
	}) {
		return false // a call may have more to send, in vain
	}
	if !c.cfg.Alone {
		c.hub.Wait()
		c.send.Wait() // those who carry call no user's code, but may find a loss that is to be told
	}
	return observe.Within(c.cfg.UnlockTimeout, func() {
		c.hub.Wait() // a client that is not our own may block them
		c.send.Wait()
		c.cfg.News.Wait()
	})
}

// Moved tells that the keys are on another server now: what is held is renewed
// there at once, and who waits listens there. It does not block.
func (c *Core) Moved() {
	c.reg.Moved()
	c.hub.Redial()
}

func (c *Core) key(name string) (string, error) {
	return inspect.KeyOf(name, c.cfg.Map, c.topo.Cluster)
}

// WithOwner, NewOwner and OneOwner say in a context who acquires with it; OwnerOf reads it.
var (
	WithOwner = held.WithOwner
	NewOwner  = held.NewOwner
	OneOwner  = held.OneOwner
	OwnerOf   = held.OwnerOf
)
