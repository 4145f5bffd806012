package sender

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/redlatch/redlatch/internal/conn"
	"github.com/redlatch/redlatch/internal/lease"
)

// lane is the way to one node.
type lane struct {
	s     *Sender
	known bool // all of it goes to one node

	mu     sync.Mutex                 // guards all below, and the calls' state
	queue  [classes]lease.List[*Call] // not sent
	away   lease.List[*Call]          // sent, without an answer, in the order of sending
	acked  lease.List[*Call]          // the same of those that wait for replicas: their silence means less
	flying [classes]int               // commands without an answer
	busy   [classes]int               // carriers
	idle   []*carrier
	spare  int   // of them, not used since the last trim
	trims  bool  // a trim will come
	failed error // since the node last answered
	// halfway are the slots that a cluster moves, and what the node said last of one: it answers, and
	// what it does not serve is that slot
	halfway map[uint16]error
	unnoted time.Time // the last failure that was no break, since it said nothing new
	stopped bool
}

func (s *Sender) newLane(known bool) *lane { return &lane{s: s, known: known} }

// carrier is a goroutine that sends commands and waits for their answers.
type carrier struct {
	lane    *lane
	class   Class
	wake    chan struct{}
	load    []*Call // what it carries; its own while it is busy
	cmds    []conn.Command
	results []conn.Result
}

func (l *lane) start(c *Call) {
	l.mu.Lock()
	l.queue[c.Class].Push(&c.place, c)
	k := l.assignLocked(c.Class)
	fresh := k != nil && k.wake == nil
	if fresh {
		k.wake = make(chan struct{}, 1)
		l.s.wg.Add(1)
	}
	l.mu.Unlock()
	switch {
	case fresh:
		go k.run() // ends with Stop and the answer to what it carries
	case k != nil:
		k.wake <- struct{}{}
	}
}

// assignLocked finds a carrier for what is queued in a class, if one may be had.
func (l *lane) assignLocked(class Class) *carrier {
	if l.busy[class] >= l.carriers(class) || !l.readyLocked(class) {
		return nil
	}
	var k *carrier
	if n := len(l.idle); n > 0 {
		k = l.idle[n-1] // the one that slept last: its caches are warm
		l.idle = l.idle[:n-1]
		l.spare = min(l.spare, n-1)
	} else {
		k = &carrier{lane: l}
	}
	l.takeLocked(k, class)
	return k
}

// carriers is how many carriers a class may have.
func (l *lane) carriers(class Class) int {
	if l.s.cfg.Alone {
		return aloneCarriers[class]
	}
	return carriers[class]
}

func (l *lane) readyLocked(class Class) bool {
	return l.queue[class].First() != nil && l.flying[class] < flights[class]
}

// takeLocked loads a carrier with what travels together. Releases come before attempts to
// acquire also with the carriers of these: under more load than the node takes, the queue
// stands where nothing is held yet.
func (l *lane) takeLocked(k *carrier, class Class) {
	now := time.Now()
	k.class = class
	l.busy[class]++
	if class == Keep || class == Ask {
		l.fillLocked(k, Keep, now)
		l.fillLocked(k, Ask, now)
		return
	}
	l.fillLocked(k, class, now)
}

func (l *lane) fillLocked(k *carrier, class Class, now time.Time) {
	for l.readyLocked(class) && len(k.load) < maxMerged {
		c := l.queue[class].First()
		if len(k.load) > 0 && !l.togetherLocked(k.load[0], c) {
			return
		}
		c.place.Remove()
		c.state, c.Sent = sent, now
		l.awayLocked(class).Push(&c.place, c)
		l.flying[class]++
		k.load = append(k.load, c)
	}
}

// togetherLocked reports whether two calls may travel in one write: never across
// nodes, since the whole waits for its last answer.
func (l *lane) togetherLocked(a, b *Call) bool {
	if l.s.cfg.Alone || a.Class == Acked || !l.known && a.slot != b.slot {
		return false
	}
	for _, c := range []*Call{a, b} {
		if c.Cmd.Tell || len(c.Cmd.Keys) > maxMergedKeys {
			return false
		}
	}
	return true
}

// run carries until the lane stops.
func (k *carrier) run() {
	defer k.lane.s.wg.Done()
	for {
		if len(k.load) > 0 {
			k.carry()
		}
		if !k.next() {
			return
		}
	}
}

// next finds more to carry, or sleeps until there is; false: the lane stopped.
func (k *carrier) next() bool {
	l := k.lane
	runtime.Gosched() // who was answered just now has more to send, and it travels together then
	l.mu.Lock()
	for class := range classes {
		if l.busy[class] < l.carriers(class) && l.readyLocked(class) {
			l.takeLocked(k, class)
			l.mu.Unlock()
			return true
		}
	}
	if l.stopped {
		l.mu.Unlock()
		return false
	}
	l.idle = append(l.idle, k)
	if !l.trims {
		l.trims = true
		time.AfterFunc(trimEvery, l.trim)
	}
	l.mu.Unlock()
	<-k.wake
	return len(k.load) > 0
}

// trimEvery is how long a carrier may have nothing to do before it ends.
const trimEvery = time.Second

// trim ends the carriers that nobody needed since the last trim.
func (l *lane) trim() {
	l.mu.Lock()
	gone := append([]*carrier(nil), l.idle[:l.spare]...)
	l.idle = append(l.idle[:0], l.idle[l.spare:]...)
	l.spare = len(l.idle)
	l.trims = l.spare > 0
	if l.trims {
		time.AfterFunc(trimEvery, l.trim)
	}
	l.mu.Unlock()
	for _, k := range gone {
		k.wake <- struct{}{}
	}
}

// carry sends the load and delivers the answers.
func (k *carrier) carry() {
	l, run := k.lane, k.lane.s.run
	if len(k.load) == 1 {
		c := k.load[0]
		c.Reply, c.Err = run.Run(c.Ctx, c.Cmd)
	} else {
		for _, c := range k.load {
			k.cmds = append(k.cmds, c.Cmd)
		}
		// A merged write carries nobody's values.
		k.results = run.RunMulti(context.Background(), k.cmds, k.results)
		for i := range k.results {
			k.load[i].Reply, k.load[i].Err = k.results[i].Reply, k.results[i].Err
		}
		clear(k.results)
		clear(k.cmds)
		k.cmds = k.cmds[:0]
	}
	rest := k.load[:0]
	l.mu.Lock()
	for _, c := range k.load {
		c.place.Remove()
		l.flying[c.Class]--
		c.state = answered
		l.noteLocked(c)
		switch {
		case c.Then != nil:
			rest = append(rest, c)
		case !c.signalled:
			c.signalled = true
			c.Signal <- struct{}{} // from here on the call is its owner's
		}
	}
	l.busy[k.class]--
	l.mu.Unlock()
	for _, c := range rest {
		if c.end != nil && !c.Own {
			l.s.tellEnd(c)
		}
		c.Then(c)
	}
	clear(k.load)
	k.load = k.load[:0]
}

// awayLocked is where the calls of a class are kept that have no answer.
func (l *lane) awayLocked(class Class) *lease.List[*Call] {
	if class == Acked {
		return &l.acked
	}
	return &l.away
}

// noteLocked keeps what is known of the node's health.
func (l *lane) noteLocked(c *Call) {
	switch err := c.Err; {
	case err == nil:
		l.failed = nil
		delete(l.halfway, c.slot)
		// Answers are taken in any order: the node may have failed after this one.
		if !c.Sent.After(l.unnoted) {
			l.s.broke.Now()
		}
	case conn.IsPermanent(err):
		l.failed = nil
		delete(l.halfway, c.slot)
	case conn.IsOfSlot(err):
		if l.failed = nil; l.halfway[c.slot] == nil {
			l.s.broke.Now()
		} else {
			l.unnoted = time.Now()
		}
		if l.halfway == nil {
			l.halfway = map[uint16]error{}
		}
		l.halfway[c.slot] = err
	case l.failed == nil || conn.Classify(err) == conn.Ambiguous:
		l.s.broke.Now()
		l.failed = err
	default:
		// A node that can't be reached, or refuses, and has not answered since it first did: nothing
		// is known of its locks that is younger than that. One dead node of many, or one that may not
		// write, must not keep the others' locks from being passed on.
		l.failed, l.unnoted = err, time.Now()
	}
}

// trouble is what is wrong with the node.
func (l *lane) trouble(now time.Time) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.troubleLocked(now)
}

// troubleOf is what is wrong with the node, or with a slot there.
func (l *lane) troubleOf(now time.Time, slot uint16) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.troubleLocked(now); err != nil {
		return err
	}
	return l.halfway[slot]
}

func (l *lane) troubleLocked(now time.Time) error {
	if c := l.away.First(); c != nil {
		if silent := now.Sub(c.Sent); silent >= l.s.cfg.Slow {
			return &SilentError{For: silent}
		}
	}
	if c := l.acked.First(); c != nil { // the server may keep it for so long
		if silent := now.Sub(c.Sent); silent >= l.s.cfg.Slow+c.Cmd.AckTimeout {
			return &SilentError{For: silent}
		}
	}
	return l.failed
}

// Trouble is a node that failed since it last answered, or is silent.
type Trouble struct {
	Node       string // "" where there is only one
	Unanswered int    // commands
	Err        error
}

// Masters tells which nodes of a cluster have slots. How the last command of another one ended says nothing any more:
// none is sent there that could end better.
func (s *Sender) Masters(nodes []string) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for node, l := range s.lanes {
		if !slices.Contains(nodes, node) {
			l.mu.Lock()
			l.failed, l.halfway = nil, nil
			l.mu.Unlock()
		}
	}
}

// Troubled are the nodes that are in trouble.
func (s *Sender) Troubled() (out []Trouble) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for node, l := range s.lanes {
		if err := l.trouble(time.Now()); err != nil {
			t := Trouble{Node: node, Err: err}
			l.mu.Lock()
			for _, n := range l.flying {
				t.Unanswered += n
			}
			l.mu.Unlock()
			out = append(out, t)
		}
	}
	return out
}

// SilentError says that a node has not answered for some time.
type SilentError struct{ For time.Duration }

func (e *SilentError) Error() string {
	return fmt.Sprintf("no answer for %v", e.For.Round(10*time.Millisecond))
}

func (l *lane) interrupt() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for class := range l.queue {
		for c := range l.queue[class].All() {
			c.interruptLocked()
		}
	}
	for _, list := range []*lease.List[*Call]{&l.away, &l.acked} {
		for c := range list.All() {
			c.interruptLocked()
		}
	}
}

func (c *Call) interruptLocked() {
	if c.Then == nil && !c.signalled {
		c.signalled = true
		c.Signal <- struct{}{}
	}
}

func (l *lane) stop() {
	l.mu.Lock()
	l.stopped = true
	idle := l.idle
	l.idle, l.spare = nil, 0
	l.mu.Unlock()
	for _, k := range idle {
		k.wake <- struct{}{}
	}
}
