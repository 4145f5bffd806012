package main

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	"github.com/redlatch/redlatch"
)

// hub looks at the locks for all viewers together, while there are any.
type hub struct {
	client   *redlatch.Client
	pattern  string
	interval time.Duration
	ends     context.CancelFunc
	ctx      context.Context //nolint:containedctx // the hub's own life

	mu      sync.Mutex
	viewers map[*viewer]bool // guarded by mu
	board   *board           // guarded by mu
	came    chan struct{}
}

// viewer is one page that is open.
type viewer struct {
	open string      // the lock that it looks into, "" = none
	news chan update // the newest only
}

// update is what a viewer is told.
type update struct {
	event string
	data  []byte
}

// maxViewers bounds what a crowd, or somebody who means ill, can open.
const maxViewers = 100

// maxRows bounds the list of one page.
const maxRows = 1000

func newHub(client *redlatch.Client, pattern string, interval time.Duration) *hub {
	ctx, cancel := context.WithCancel(context.Background())
	return &hub{
		client: client, pattern: pattern, interval: interval, ends: cancel, ctx: ctx,
		viewers: map[*viewer]bool{}, board: newBoard(nil), came: make(chan struct{}, 1),
	}
}

func (h *hub) stop() { h.ends() }

// join adds a viewer; nil: there are too many.
func (h *hub) join(open string) *viewer {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.viewers) >= maxViewers {
		return nil
	}
	v := &viewer{open: open, news: make(chan update, 2)}
	h.viewers[v] = true
	h.poke()
	return v
}

func (h *hub) leave(v *viewer) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.viewers, v)
}

// poke lets the hub look now.
func (h *hub) poke() {
	select {
	case h.came <- struct{}{}:
	default:
	}
}

// run looks as long as somebody watches, until ctx ends.
func (h *hub) run(ctx context.Context) {
	for {
		h.mu.Lock()
		watched := len(h.viewers) > 0
		h.mu.Unlock()
		var next <-chan time.Time
		if watched {
			began := time.Now()
			h.look(ctx)
			// On a server with very many keys it looks no more than half of the time.
			next = time.After(max(h.interval, time.Since(began)))
		}
		select {
		case <-ctx.Done():
			return
		case <-h.ctx.Done():
			return
		case <-h.came:
		case <-next:
		}
	}
}

// row is a lock in the list.
type row struct {
	redlatch.Inspection
	HeldMs  int64   `json:"held_ms"`
	WaitMs  int64   `json:"wait_ms"`
	Waiters int     `json:"waiters"`
	Rate    float64 `json:"rate"`
}

// overview is the list.
type overview struct {
	Total int       `json:"total"`
	At    time.Time `json:"at"`
	Locks []row     `json:"locks"`
}

// detail is one lock in depth.
type detail struct {
	redlatch.Inspection
	Turns []turn    `json:"turns"`
	First time.Time `json:"first"`
	Error string    `json:"error,omitempty"`
}

// look asks the server once for everything that is watched, and tells the viewers.
func (h *hub) look(ctx context.Context) {
	h.mu.Lock()
	opened := map[string]bool{}
	for v := range h.viewers {
		if v.open != "" {
			opened[v.open] = true
		}
	}
	h.mu.Unlock()
	locks, err := list(ctx, h.client, h.pattern)
	details := map[string]redlatch.Inspection{}
	failed := map[string]string{}
	for name := range opened {
		if err != nil {
			break
		}
		in, ierr := h.client.Inspect(ctx, name)
		switch {
		case ierr == nil:
			details[name] = in
		case isNoLock(ierr):
			failed[name] = message(ierr)
		default:
			err = ierr
		}
	}
	if ctx.Err() != nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if err != nil {
		trouble, _ := json.Marshal(map[string]string{"error": message(err)})
		for v := range h.viewers {
			v.tell(update{"trouble", trouble})
		}
		return
	}
	for i, in := range locks { // the whole one, where there is one
		if full, ok := details[in.Name]; ok && full.Held() {
			locks[i] = full
		}
	}
	h.board.see(locks, time.Now())
	all, _ := json.Marshal(h.overviewLocked())
	for v := range h.viewers {
		v.tell(update{"locks", all})
		if v.open == "" {
			continue
		}
		d := detail{Inspection: details[v.open], Turns: []turn{}, Error: failed[v.open]}
		d.Name = v.open
		if w := h.board.locks[d.Key]; w != nil {
			d.Turns, d.First = append(d.Turns, w.Turns...), w.First
		}
		one, _ := json.Marshal(d)
		v.tell(update{"lock", one})
	}
}

func (h *hub) overviewLocked() overview {
	o := overview{At: time.Now(), Locks: []row{}}
	for _, w := range h.board.sorted(byWaiters, false, "") {
		if !w.Held() && w.QueueLength == 0 {
			continue
		}
		o.Total++
		o.At = w.At
		if len(o.Locks) == maxRows {
			continue
		}
		r := row{w.Inspection, w.heldFor().Milliseconds(), w.waitsFor().Milliseconds(), w.waiters(), w.rate}
		r.Holders, r.Queue = r.Holders[:min(len(r.Holders), 1)], nil
		o.Locks = append(o.Locks, r)
	}
	return o
}

// force marks a holder that is being evicted, so that its turn is shown so.
func (h *hub) force(key, owner string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if w := h.board.locks[key]; w != nil {
		w.force(owner)
	}
}

// tell leaves news; those that a slow viewer has not taken yet are replaced.
func (v *viewer) tell(u update) {
	for {
		select {
		case v.news <- u:
			return
		default:
		}
		select {
		case <-v.news:
		default:
		}
	}
}
