package main

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
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
	listed  listing          // guarded by mu; the newest
	came    chan struct{}
}

// viewer is one page that is open, or a program that waits for the list.
type viewer struct {
	open string       // the lock that it looks into, "" = none
	news chan []byte  // events, the newest only
	list chan listing // nil: of a page
}

// listing is the list as programs get it. All share it: it is large, and they may be slow.
type listing struct {
	text  []byte
	total int // locks there are; the list has maxRows at most
	at    time.Time
	err   error
}

// maxViewers bounds what a crowd, or somebody who means ill, can open.
const maxViewers = 100

// maxRows and maxText bound the list of one page, maxParties the holders and the queue that it shows.
const (
	maxRows    = 1000
	maxText    = 8 << 20
	maxParties = 100
)

var errBusy = errors.New("too many pages are open")

func newHub(client *redlatch.Client, pattern string, interval time.Duration) *hub {
	ctx, cancel := context.WithCancel(context.Background())
	return &hub{
		client: client, pattern: pattern, interval: interval, ends: cancel, ctx: ctx,
		viewers: map[*viewer]bool{}, board: newBoard(nil), came: make(chan struct{}, 1),
	}
}

func (h *hub) stop() { h.ends() }

// join adds a page, which looks into a lock, or into none. It fails when there are too many.
func (h *hub) join(open string) (*viewer, error) {
	return h.add(&viewer{open: open, news: make(chan []byte, 2)})
}

func (h *hub) add(v *viewer) (*viewer, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.viewers) >= maxViewers {
		return nil, errBusy
	}
	h.viewers[v] = true
	h.poke()
	return v, nil
}

// list is the list for programs, at most an interval old. It waits for a look where there is none, until ctx ends.
func (h *hub) list(ctx context.Context) (listing, error) {
	h.mu.Lock()
	l := h.listed
	h.mu.Unlock()
	if l.text != nil && time.Since(l.at) < h.interval {
		return l, nil
	}
	v, err := h.add(&viewer{list: make(chan listing, 1)})
	if err != nil {
		return listing{}, err
	}
	defer h.leave(v)
	select {
	case l = <-v.list:
		return l, l.err
	case <-ctx.Done():
		return listing{}, ctx.Err()
	case <-h.ctx.Done():
		return listing{}, errBusy
	}
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

	event []byte // of it, once it is made
}

// look asks the server once for everything that is watched, and tells the viewers. Those who come meanwhile are told
// of the next look.
func (h *hub) look(ctx context.Context) {
	h.mu.Lock()
	viewers := slices.Collect(maps.Keys(h.viewers))
	h.mu.Unlock()
	l := listing{at: time.Now()}
	locks, more, err := list(ctx, h.client, h.pattern, maxListed)
	l.total = len(locks) + more
	details := map[string]*detail{}
	for _, v := range viewers {
		if v.open == "" || details[v.open] != nil || err != nil {
			continue
		}
		d := &detail{}
		d.Inspection, err = look(ctx, h.client, v.open)
		if err != nil && !isGone(err) { // of this lock alone
			d.Error, err = message(err), nil
		}
		d.Name, details[v.open] = v.open, d
	}
	if ctx.Err() != nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	var page []byte
	if err == nil {
		for i, in := range locks { // the whole one, where there is one
			if d := details[in.Name]; d != nil && d.Held() {
				locks[i] = d.Inspection
			}
		}
		h.board.see(locks, l.at)
		page, err = event("locks", h.overviewLocked(more))
	}
	for _, v := range viewers {
		switch {
		case v.list != nil && l.text == nil && err == nil:
			few, _ := shorten(locks, maxRows, maxText)
			l.text, err = json.Marshal(few)
			h.listed = l
		case v.open != "" && err == nil:
			err = h.closeUpLocked(details[v.open])
		}
	}
	l.err = err
	if err != nil {
		page, _ = event("trouble", map[string]string{"error": message(err)}) // a text has a JSON
	}
	for _, v := range viewers {
		switch {
		case v.list != nil:
			select {
			case v.list <- l:
			default: // it has one
			}
		default:
			v.tell(page)
			if v.open != "" && err == nil {
				v.tell(details[v.open].event)
			}
		}
	}
}

// closeUpLocked makes the event of a lock that pages look into, once for all of them.
func (h *hub) closeUpLocked(d *detail) (err error) {
	if d.event != nil {
		return nil
	}
	d.Turns = []turn{}
	if w := h.board.locks[d.Key]; w != nil {
		d.Turns, d.First = append(d.Turns, w.Turns...), w.First
	}
	d.Holders, d.Queue = d.Holders[:min(len(d.Holders), maxParties)], d.Queue[:min(len(d.Queue), maxParties)]
	d.event, err = event("lock", d)
	return err
}

// event is an event as the stream has it.
func event(name string, v any) ([]byte, error) {
	text, err := json.Marshal(v)
	return slices.Concat([]byte("event: "+name+"\ndata: "), text, []byte("\n\n")), err
}

// overviewLocked is the list of the page; there are more locks, of which nothing is known.
func (h *hub) overviewLocked(more int) overview {
	o := overview{At: time.Now(), Total: more, Locks: []row{}}
	for _, w := range h.board.sorted(byWaiters, false, "") {
		if !w.Held() && w.QueueLength == 0 && w.Kind != redlatch.KindUnknown {
			continue
		}
		o.Total++
		if !w.At.IsZero() {
			o.At = w.At
		}
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
func (v *viewer) tell(event []byte) {
	for {
		select {
		case v.news <- event:
			return
		default:
		}
		select {
		case <-v.news:
		default:
		}
	}
}
