package engine

import (
	"sync"
	"time"

	"github.com/redlatch/redlatch/internal/batch"
	"github.com/redlatch/redlatch/internal/conn"
	"github.com/redlatch/redlatch/internal/held"
	"github.com/redlatch/redlatch/internal/kind"
	"github.com/redlatch/redlatch/internal/lease"
	"github.com/redlatch/redlatch/internal/sender"
)

// places keeps the places of a client's waiters alive, in batches. Its goroutine
// begins with the first place.
type places struct {
	core *Core
	quit chan struct{}

	mu      sync.Mutex
	heap    lease.Heap[*place]     // guarded by mu
	nodes   map[string]*placesNode // guarded by mu; those with something to know
	looks   held.Looks             // guarded by mu; of the goroutine
	done    chan struct{}          // guarded by mu; nil: no goroutine
	stopped bool                   // guarded by mu
}

// placesNode is what is under way to a node, so that one that does not answer holds up no
// refresh but its own.
type placesNode struct {
	name string

	// guarded by places.mu
	under   int                // batches without an answer
	load    *refreshing        // what a look has found for it so far
	late    lease.List[*place] // due, but too much is under way
	failing bool               // the last refresh failed: told once
}

// place is a waiter's place on the server.
type place struct {
	a    *acquisition
	q    kind.Queuer
	poke func() // makes the waiter try
	slot uint16 // in a cluster

	// guarded by places.mu
	index int32
	late  lease.Entry[*place] // in its node's late places, if it is not in the heap
	gone  bool
	again bool // refresh once more when the one under way has ended

	failing bool // the last refresh failed; of the one under way
}

// Spot implements lease.Timed.
func (p *place) Spot() *int32 { return &p.index }

// maxRefreshing bounds the batches under way to a node. What falls due beyond it
// waits for the end of one and goes together then, so that a thousand waiters who
// may have missed a message ask in a few commands.
const maxRefreshing = 8

func newPlaces(c *Core) *places {
	return &places{core: c, looks: held.NewLooks(), quit: make(chan struct{}), nodes: map[string]*placesNode{}}
}

// stop ends the goroutine.
func (w *places) stop() {
	w.mu.Lock()
	w.stopped = true
	done := w.done
	w.mu.Unlock()
	close(w.quit)
	if done != nil {
		<-done
	}
}

// add begins to keep a place alive; first is when it needs the first refresh, 0:
// after Every.
func (w *places) add(a *acquisition, q kind.Queuer, first time.Duration) *place {
	p := &place{a: a, q: q, index: -1, slot: a.about().lock.Slot()}
	if a.bid != nil {
		p.poke = a.bid.poke
	} else {
		p.poke = a.waiter.Poke
	}
	if first <= 0 {
		first = q.Every()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.done == nil && !w.stopped {
		w.done = make(chan struct{})
		go func() { // ends with stop
			defer close(w.done)
			w.looks.Run(w.quit, w.look)
		}()
	}
	at := time.Now().Add(min(first, q.Every()))
	w.heap.Set(p, at)
	w.looks.Wake(at)
	return p
}

// remove ends it. A refresh under way makes no place anew.
func (w *places) remove(p *place) {
	w.mu.Lock()
	defer w.mu.Unlock()
	p.gone = true
	p.late.Remove()
	w.heap.Remove(p)
}

// hurry refreshes the place at once: its waiter may have missed a message.
func (w *places) hurry(p *place) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case p.late.In(): // it goes as soon as it may
	case p.index >= 0:
		now := time.Now()
		w.heap.Set(p, now)
		w.looks.Wake(now)
	default:
		p.again = true // one is under way, but may be older than the message
	}
}

// look refreshes what is due, each node's apart, and returns when to look again.
func (w *places) look(now time.Time) (at time.Time) {
	var loads []*refreshing
	w.mu.Lock()
	for {
		p, at, ok := w.heap.First()
		if !ok || at.After(now.Add(p.q.Every()/8)) || (len(loads) == 0 && at.After(now)) {
			break
		}
		w.heap.Remove(p)
		n := w.nodeLocked(p)
		if n.load == nil {
			if n.under >= maxRefreshing { // the end of one looks
				n.late.Push(&p.late, p)
				continue
			}
			n.under++
			n.load = &refreshing{w: w, node: n}
			loads = append(loads, n.load)
		}
		n.load.due = append(n.load.due, p)
	}
	for _, r := range loads {
		r.node.load = nil
	}
	_, at, _ = w.heap.First()
	w.looks.At = at
	w.mu.Unlock()
	for _, r := range loads {
		batch.Send(w.core.send, w.core.topo.Cluster, r)
	}
	return at
}

// nodeLocked finds the node of a place, as the sender knows it: its slot may have moved
// since the last refresh.
func (w *places) nodeLocked(p *place) *placesNode {
	name, _ := w.core.send.Node(p.slot)
	n := w.nodes[name]
	if n == nil {
		n = &placesNode{name: name}
		w.nodes[name] = n
	}
	return n
}

// endedLocked lets the next batch of a node go: all that has fallen due meanwhile.
func (w *places) endedLocked(n *placesNode) {
	now := time.Now()
	n.under--
	for p := range n.late.All() {
		p.late.Remove()
		w.heap.Set(p, now)
		w.looks.Wake(now)
	}
	if n.under == 0 && !n.failing {
		delete(w.nodes, n.name)
	}
}

// refreshing is refreshes of one node that fell due together. It implements batch.Work.
type refreshing struct {
	w      *places
	node   *placesNode
	due    []*place
	mu     sync.Mutex
	failed int   // guarded by mu
	first  error // guarded by mu
	news   bool  // guarded by mu; of a place that did not fail before
}

func (r *refreshing) Len() int { return len(r.due) }

func (r *refreshing) Item(i int) kind.Item {
	p := r.due[i]
	p.a.mu.Lock()
	defer p.a.mu.Unlock()
	return p.q.Refresh(&p.a.about().attempt)
}

func (r *refreshing) Answered(c *sender.Call, as []batch.Answer) {
	cfg := &r.w.core.cfg
	if o := cfg.Observer; o != nil && (c.Err == nil || !r.failedBefore()) {
		name, keys, sent, err := c.Cmd.Script.Name, len(c.Cmd.Keys), c.Sent, c.Err
		cfg.News.TellOften(func() { o.Batch(name, keys, sent, err) })
	}
	for _, a := range as {
		r.answered(r.due[a.Item], a)
	}
}

func (r *refreshing) answered(p *place, a batch.Answer) {
	if a.Err != nil {
		if conn.IsPermanent(a.Err) {
			p.poke() // it tries, and returns what the server tells it
		}
		r.mu.Lock()
		if r.failed++; r.first == nil {
			r.first = a.Err
		}
		r.news = r.news || !p.failing
		r.mu.Unlock()
		p.failing = true
		r.w.back(p, time.Now().Add(min(p.q.Every()/4, time.Second))) // it may be asked since a message was missed
		return
	}
	p.failing = false
	p.a.mu.Lock()
	wake, next := p.q.Refreshed(&p.a.about().attempt, a.Vals, a.Sent)
	p.a.mu.Unlock()
	if wake {
		p.poke()
	}
	if next <= 0 || next > p.q.Every() {
		next = p.q.Every()
	}
	r.w.back(p, a.Sent.Add(next))
}

// failedBefore reports whether the last batch of the node failed.
func (r *refreshing) failedBefore() bool {
	r.w.mu.Lock()
	defer r.w.mu.Unlock()
	return r.node.failing
}

// End lets the next batch go, and tells once that the node's refreshes fail: others of it may work meanwhile.
func (r *refreshing) End() {
	w, c := r.w, r.w.core
	r.mu.Lock()
	failed, first, news := r.failed, r.first, r.news
	r.mu.Unlock()
	w.mu.Lock()
	tell := news && !r.node.failing
	r.node.failing = failed > 0
	w.endedLocked(r.node)
	w.mu.Unlock()
	if !tell || c.isClosed() {
		return
	}
	a := r.due[0].a
	a.mu.Lock()
	l := &a.about().lock.of
	a.mu.Unlock()
	c.cfg.News.Tell(func() {
		c.cfg.Log.Warn("redlatch: refreshing the places of waiters failed, retrying",
			"lock", l.Name, "type", l.Kind.Traits().Type, "waiters", failed, "error", first)
	})
}

func (w *places) back(p *place, at time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if p.gone {
		return
	}
	if p.again {
		p.again, at = false, time.Now()
	}
	w.heap.Set(p, at)
	w.looks.Wake(at)
}
