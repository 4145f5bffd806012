// Package sender sends the commands of a client. Each node has a lane: a few
// goroutines that carry commands to it and wait for the answers, and a queue for
// what they can't carry yet. Who calls waits on a channel of its own and may
// leave at any time: a command that was not sent then is withdrawn and never ran;
// the answer to one that was sent is taken by whoever takes over.
//
// One command per goroutine is sent while goroutines are free, so that nobody
// waits for others; beyond that, what has come meanwhile travels in one write, those for locks that are held before those
// that ask for a lock.
//
// # Limits
//
// Each lane limits the commands without an answer, separately for renewals, for locks that are held (releases,
// re-entries, undoing), for acquisitions and for commands that wait for replicas. A slot becomes free when the answer
// arrives or the connection ends, not when the caller leaves: a frozen node fills only its own lane.
//
// A lane's node is in trouble if it has failed since it last answered, or its oldest command has had no answer for a
// second (for a third of the lease, if that is less; a command that waits for replicas may take ReplicaAckTimeout more).
package sender

import (
	"context"
	"sync"
	"time"

	"github.com/redlatch/redlatch/internal/conn"
	"github.com/redlatch/redlatch/internal/luascript"
	"github.com/redlatch/redlatch/internal/observe"
)

// Class says which places a command takes in its lane.
type Class uint8

const (
	// Renew is what keeps leases and places alive: renewals, checks, refreshes. It
	// waits for no caller's commands, or a hold would be lost behind the unlocks of
	// others.
	Renew Class = iota
	// Keep is what concerns locks that are held, or may be: releases, re-entries,
	// undoing. Acquisitions can't take its places away.
	Keep
	// Ask is an attempt to acquire, or a look.
	Ask
	// Acked waits for replicas, on a connection of its own.
	Acked
	classes
)

// The bounds of a lane. A connection has 1,024 places for commands without an
// answer, and blocks when they are taken: all classes together stay below that.
var (
	carriers = [classes]int{Renew: 4, Keep: 6, Ask: 6, Acked: 32}
	flights  = [classes]int{Renew: 64, Keep: 480, Ask: MaxAsking, Acked: 32}
)

// aloneCarriers is the same where each command travels on its own: a carrier has one command, not
// up to maxMerged. All renewals that may be under way have one, since those of a cluster are a
// command for each slot.
var aloneCarriers = [classes]int{Renew: flights[Renew], Keep: 128, Ask: 128, Acked: carriers[Acked]}

// MaxAsking bounds the attempts to acquire that wait for an answer of one node.
// Those beyond it have sent nothing when they give up.
const MaxAsking = 384

const (
	// maxMerged bounds the commands of one write.
	maxMerged = 64
	// maxMergedKeys is how many keys a command may have that travels with others.
	maxMergedKeys = 16
)

// Config is a Sender's configuration.
type Config struct {
	Slow     time.Duration    // a node that has not answered for longer is silent
	Alone    bool             // never several commands in one write
	Observer observe.Observer // of the commands; nil: nobody looks
	News     *observe.News    // for the observer: ends that nobody waits for
}

// Sender sends a client's commands. It is safe for concurrent use.
type Sender struct {
	run  conn.Runner
	topo conn.Topology
	cfg  Config
	one  *lane // where there is only one node

	broke conn.Instant // see Broke

	mu     sync.RWMutex
	lanes  map[string]*lane // guarded by mu; by node
	closed bool             // guarded by mu

	wg sync.WaitGroup // the carriers
}

// New makes a Sender; Stop and Wait end it.
func New(run conn.Runner, cfg Config) *Sender {
	s := &Sender{run: run, topo: run.Topology(), cfg: cfg, lanes: map[string]*lane{}}
	if !s.topo.Cluster {
		s.one = s.newLane(true)
		s.lanes[""] = s.one
	}
	return s
}

// laneOf finds the lane for a key.
func (s *Sender) laneOf(key string) (*lane, uint16) {
	if s.one != nil {
		return s.one, 0
	}
	slot := luascript.Slot(key)
	node, known := s.Node(slot)
	s.mu.RLock()
	l := s.lanes[node]
	s.mu.RUnlock()
	if l != nil {
		return l, slot
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if l = s.lanes[node]; l == nil {
		l = s.newLane(known)
		l.stopped = s.closed
		s.lanes[node] = l
	}
	return l, slot
}

// Node names the node of a cluster's slot, whose lane its commands take; "" without a cluster.
// While no node is known, it names a group of slots. It does not block.
func (s *Sender) Node(slot uint16) (node string, known bool) {
	if s.one != nil {
		return "", true
	}
	if s.topo.Node != nil {
		if node = s.topo.Node(slot); node != "" {
			return node, true
		}
	}
	return string([]byte{'?', byte(slot >> 8)}), false // neighbouring slots are mostly one node's
}

// Trouble says what is wrong with the node of a key: it failed since it last
// answered, has been silent for too long, or does not serve the key's slot since that is half-way to
// another one. nil: nothing is.
func (s *Sender) Trouble(key string) error {
	l, slot := s.laneOf(key)
	return l.troubleOf(time.Now(), slot)
}

// Broke is when a command last failed without an answer, or was refused for the moment (the server
// has been started again, or is a replica now), or a connection ended: what was answered before may
// not hold any more. It is one instant for all nodes: what follows a break in a cluster is that
// another node has the key, and nothing says which one had it before.
func (s *Sender) Broke() time.Time {
	at := s.broke.Last()
	if s.topo.Broke != nil {
		if conns := s.topo.Broke(); conns.After(at) {
			at = conns
		}
	}
	return at
}

// Run sends a command and waits for its answer, however long that takes. It is for the
// background: an observer is told of the whole of it afterwards, in the background, too.
func (s *Sender) Run(ctx context.Context, class Class, cmd conn.Command) (conn.Reply, error) {
	done := make(chan struct{}, 1)
	c := Call{Cmd: cmd, Class: class, Ctx: ctx, Unseen: true, Then: func(*Call) { done <- struct{}{} }}
	s.Start(&c)
	<-done
	if o := s.cfg.Observer; o != nil {
		script, began, err := cmd.Script.Name, c.Sent, c.Err
		s.cfg.News.Tell(func() {
			_, end := o.Command(ctx, script, began)
			end(err)
		})
	}
	return c.Reply, c.Err
}

// tellEnd tells an observer in the background that a call has ended: no call of a user's
// waits for it, and the one that does may have gates.
func (s *Sender) tellEnd(c *Call) {
	if end, err := c.end, c.Err; end != nil {
		c.end = nil
		s.cfg.News.Tell(func() { end(err) })
	}
}

// Values is what a command of ctx's is sent with: the values of ctx and nothing of its
// end, as long as anybody can see them (an observer of the commands, or a client that is
// not our own). Nothing keeps a reference to ctx, or to what holds it, otherwise.
func (s *Sender) Values(ctx context.Context) context.Context {
	if o := s.cfg.Observer; !s.cfg.Alone && (o == nil || !o.Carries(ctx)) {
		return context.Background()
	}
	return context.WithoutCancel(ctx)
}

// Interrupt wakes all who wait for answers: the client is being closed. What was
// queued for them is withdrawn when they leave.
func (s *Sender) Interrupt() {
	s.each(func(l *lane) { l.interrupt() })
}

// Stop ends the goroutines that carry nothing. Those that wait for an answer end
// with it, or with the connection: Wait waits for them.
func (s *Sender) Stop() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.each(func(l *lane) { l.stop() })
}

// Wait blocks until no goroutine is left.
func (s *Sender) Wait() { s.wg.Wait() }

func (s *Sender) each(do func(*lane)) {
	s.mu.RLock()
	all := make([]*lane, 0, len(s.lanes))
	for _, l := range s.lanes {
		all = append(all, l)
	}
	s.mu.RUnlock()
	for _, l := range all {
		do(l)
	}
}
