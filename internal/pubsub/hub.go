// Package pubsub shares subscriptions among waiters: one connection per node,
// one subscription per lock and client, however many wait.
//
// Each node has a goroutine that subscribes to what the topics want, and reconnects when
// the connection breaks. Every (re)confirmed subscription wakes its topic's waiters,
// because a message may have been missed before it. The goroutine looks only at changes,
// so that the cost of a waiter does not grow with the number of locks. A topic without waiters keeps its subscription for
// 500 ms, and a node without topics its connection for 10 s; then it ends, and is made again if needed.
//
// Sharded channels have a command each, sent 128 at a time; what somebody waits for goes first. While the goroutine waits
// for a connection or an answer it forgets no topics: each new topic then takes up to two overdue ones out. In a cluster
// without sharded channels the connection leads to a master of the slot table, another one each time, and is made again
// when an answer to CLUSTER SLOTS, asked for every 10 s while commands are sent, does not name it: a node that has left
// the cluster answers every PING. A connection on which an UNSUBSCRIBE was sent ends by itself when the server begins to
// refuse everything, because the client library would panic (conn/unsubscribe_panic.go). On a connection of an
// application's client none is sent: channels that nobody wants stay with it until it ends, 10 s after the last one was
// wanted, or is left for a new one because there are 1,024 of them.
package pubsub

import (
	"context"
	"sync"
	"time"

	"github.com/redlatch/redlatch/internal/observe"
)

// Hub is a client's subscriptions. It is safe for concurrent use.
type Hub struct {
	dial Dialer
	log  func(msg string, args ...any)

	mu     sync.Mutex // guards all below, and topics, waiters and nodes' wants
	topics map[string]*topic
	nodes  map[string]*node
	closed bool
	looked int // channels and idle topics that the nodes have looked at
	// waiting counts the topics with a list (see calls) for which somebody waits
	waiting int
	wg      sync.WaitGroup
}

// Linger is how long a subscription outlives its last waiter, so that a busy
// channel is not unsubscribed and subscribed again at every turn.
const Linger = 500 * time.Millisecond

// NewHub makes a hub that subscribes through dial. log gets lost and refused
// subscriptions.
func NewHub(dial Dialer, log func(msg string, args ...any)) *Hub {
	return &Hub{dial: dial, log: log, topics: map[string]*topic{}, nodes: map[string]*node{}}
}

// Option changes how a waiter waits.
type Option func(*Waiter)

// Shared makes the waiter one that every broadcast wakes; without it, and
// without Keyed or Aside, it stands in line.
func Shared() Option { return func(w *Waiter) { w.shared = true } }

// Aside makes the waiter one that hears what the line's head hears, and stands in no line: nobody
// waits for it to try.
func Aside() Option { return func(w *Waiter) { w.outOfLine = true } }

// Signal makes the waiter signal on a channel of the caller's, which several
// waiters may share; its capacity is 1.
func Signal(c chan struct{}) Option { return func(w *Waiter) { w.C = c } }

// Keyed makes the waiter one that only messages for key wake. A (re)connection tells it that it may have missed one.
func Keyed(key string) Option { return func(w *Waiter) { w.key = key } }

// About says who waits.
func About(m Member) Option { return func(w *Waiter) { w.member = m } }

// Join adds a waiter. If the subscription stands already, a waiter that would
// have to look (the head of the line, a shared or a keyed one) is signalled at
// once; else it is when the subscription is confirmed.
func (h *Hub) Join(spec Spec, opts ...Option) *Waiter {
	w := &Waiter{C: make(chan struct{}, 1), hub: h}
	for _, o := range opts {
		o(w)
	}
	h.join(w, &spec)
	return w
}

// Member is who waits. Its methods are called without the hub's mutex.
type Member interface {
	// Logged are arguments for a log line about its subscription.
	Logged() []any
	// Waits is its row in a list of those who wait.
	Waits() observe.Waiting
}

// Waits lists those who wait: of more than so many some.
func (h *Hub) Waits(most int) []observe.Waiting {
	var members []Member
	var out []observe.Waiting
	h.mu.Lock()
	for _, t := range h.topics {
		for w := range t.each {
			if len(out) == most {
				break
			}
			if w.member != nil {
				w.mayBeLogged = true // its memory is not used again: it may have left when it is asked
				members, out = append(members, w.member), append(out, observe.Waiting{Holder: t.holder.Owner})
			}
		}
	}
	h.mu.Unlock()
	for i, m := range members {
		row := m.Waits()
		row.Holder, out[i] = out[i].Holder, row
	}
	return out
}

// JoinLine is Join for a waiter that stands in line, in memory of the caller's. carry says
// that TakeHead may offer m.
func (h *Hub) JoinLine(w *Waiter, spec *Spec, m Member, carry bool) {
	ch := w.C
	if ch == nil {
		ch = make(chan struct{}, 1)
	} else {
		select {
		case <-ch: // of its last use
		default:
		}
	}
	*w = Waiter{C: ch, hub: h, member: m}
	if carry {
		w.carry, w.receives = m, true
	}
	h.join(w, spec)
}

func (h *Hub) join(w *Waiter, spec *Spec) {
	h.mu.Lock()
	defer h.mu.Unlock()
	t := h.topics[spec.ID]
	if t == nil {
		t = h.newTopicLocked(*spec)
	}
	if t.err != nil {
		t.retryLocked()
	}
	w.topic = t
	t.add(w)
	if w.shared {
		t.hearOthersLocked()
	}
	if t.confirmed() && w.headLocked() {
		w.missed = w.key != ""
		w.signalLocked(w.key == "")
	}
	if !t.confirmed() {
		t.node.kick()
	}
}

// Nudge makes everybody look who has no channel of its own to be told by, for a reason that they know:
// who stands in a line, and who waits for several locks.
func (h *Hub) Nudge() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, t := range h.topics {
		for w := range t.each {
			if !w.Keyed() {
				w.signalLocked(false)
			}
		}
	}
}

// Missed wakes the topic's waiters as a (re)confirmed subscription does: the lock may be free, and
// no message says so.
func (h *Hub) Missed(id string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if t := h.topics[id]; t != nil {
		t.missedLocked()
	}
}

// Waiting reports whether the topic's line has a waiter.
func (h *Hub) Waiting(id string) bool {
	return h.has(id, func(t *topic) bool { return t.line.First() != nil })
}

// Wanted reports whether anybody waits who a call is for.
func (h *Hub) Wanted(id string) bool { return h.has(id, (*topic).wantedLocked) }

// Standing reports whether all subscriptions of the topic are confirmed.
func (h *Hub) Standing(id string) bool { return h.has(id, (*topic).standsLocked) }

// has reports whether there is a topic of which that is true.
func (h *Hub) has(id string, is func(t *topic) bool) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	t := h.topics[id]
	return t != nil && is(t)
}

// Close ends all subscriptions; Wait waits for that. Waiters are not told: their owner
// knows.
func (h *Hub) Close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	for _, n := range h.nodes {
		n.cancel()
	}
}

// Wait blocks, after Close, until no goroutine is left: as long as the client takes to give up
// what is under way.
func (h *Hub) Wait() { h.wg.Wait() }

// Redial replaces the connections: they lead to a server that messages are no longer
// sent to. Who waits is woken when the new ones stand.
func (h *Hub) Redial() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, n := range h.nodes {
		notify(n.redial)
	}
}

// Masters tells which nodes of a cluster have slots. A subscription on another one is made
// anew: that node may have left, and hear nothing any more.
func (h *Hub) Masters(addrs []string) {
	if d, ok := h.dial.(interface{ Astray(masters []string) bool }); ok && d.Astray(addrs) {
		h.Redial()
	}
}

// newTopicLocked makes a topic at the node of its slot. A node that is in nodes has
// a goroutine that will see it: nodes end under the same mutex.
func (h *Hub) newTopicLocked(spec Spec) *topic {
	t := &topic{
		spec: spec, keyed: map[string]*Waiter{}, subs: map[string]*sub{},
		node: h.nodeLocked(h.dial.Node(spec.Slot)),
	}
	h.topics[spec.ID] = t
	t.node.topics[t] = struct{}{}
	for _, ch := range spec.Channels {
		h.wantLocked(t, ch, false)
	}
	// While the node waits for a connection, or for its server, nobody sweeps: whoever comes does
	// more than make up for himself.
	t.node.dropIdleLocked(time.Now(), 2)
	return t
}

func (h *Hub) wantLocked(t *topic, ch string, pattern bool) {
	s := t.subs[ch]
	if s == nil {
		s = &sub{topic: t, pattern: pattern}
		t.subs[ch] = s
		t.pending++
		t.node.wantLocked(ch, s)
	}
	s.refs++
}

func (h *Hub) dropChannelLocked(t *topic, ch string) {
	s := t.subs[ch]
	if s == nil {
		return
	}
	if s.refs--; s.refs > 0 {
		return
	}
	delete(t.subs, ch)
	t.node.unwantLocked(ch, s)
	t.node.kick()
	if !s.confirmed {
		if t.pending--; t.confirmed() {
			t.missedLocked() // the others waited for this one, too
		}
	}
}

// dropTopicLocked forgets a topic without waiters.
func (h *Hub) dropTopicLocked(t *topic) {
	n := t.node
	for ch, s := range t.subs {
		n.unwantLocked(ch, s)
	}
	t.idle.Remove()
	delete(h.topics, t.spec.ID)
	n.loseLocked(t)
}

func (h *Hub) nodeLocked(name string) *node {
	n := h.nodes[name]
	if n == nil {
		ctx, cancel := context.WithCancel(context.Background())
		n = &node{
			hub: h, name: name, wake: make(chan struct{}, 1), redial: make(chan struct{}, 1), ctx: ctx, cancel: cancel,
			topics: map[*topic]struct{}{}, channels: map[string]*channel{},
		}
		h.nodes[name] = n
		if h.closed {
			cancel()
		} else {
			h.wg.Go(n.run) // ends by stop, see Close, or without topics, see node.wanted
		}
	}
	return n
}
