package engine

import (
	"container/heap"
	"errors"
	"time"

	"github.com/redlatch/redlatch/internal/conn"
	"github.com/redlatch/redlatch/internal/pubsub"
)

var errShortReply = errors.New("the script's reply is too short")

// errRefused is a renewal that a server answered with an error for this lock.
var errRefused error = refusedError{}

type refusedError struct{}

func (refusedError) Error() string { return "the server refused" }

// ErrorType is a short, stable name for telemetry.
func (refusedError) ErrorType() string { return "refused" }

// place is a waiter's place on the server, kept alive by the watchdog.
type place struct {
	a      *acquisition
	q      Queuer
	waiter *pubsub.Waiter

	// guarded by core.mu
	at    time.Time
	index int
	gone  bool
	again bool          // refresh once more when the one under way has ended
	busy  chan struct{} // closed when the refresh under way has ended
}

// addPlace begins to keep a place alive; first is when it needs the first
// refresh, 0: after Every.
func (w *watchdog) addPlace(a *acquisition, q Queuer, first time.Duration) *place {
	p := &place{a: a, q: q, waiter: a.waiter, index: -1}
	if first <= 0 {
		first = q.Every()
	}
	w.core.mu.Lock()
	defer w.core.mu.Unlock()
	p.at = time.Now().Add(min(first, q.Every()))
	heap.Push(&w.places, p)
	w.wakeLocked(p.at)
	return p
}

func (w *watchdog) removePlace(p *place) {
	w.core.mu.Lock()
	defer w.core.mu.Unlock()
	p.gone = true
	if p.index >= 0 {
		heap.Remove(&w.places, p.index)
	}
}

// hurry refreshes the place at once: its waiter may have missed a message.
func (w *watchdog) hurry(p *place) {
	w.core.mu.Lock()
	defer w.core.mu.Unlock()
	p.at = time.Now()
	if p.index >= 0 {
		heap.Fix(&w.places, p.index)
		w.wakeLocked(p.at)
	} else {
		p.again = true // one is under way, but may be older than the message
	}
}

// wait blocks until no refresh of the place is under way. The place has been
// removed, so that none will begin.
func (p *place) wait() {
	p.a.core.mu.Lock()
	busy := p.busy
	p.a.core.mu.Unlock()
	if busy != nil {
		<-busy
	}
}

// duePlacesLocked takes the places that are due, or nearly so.
func (w *watchdog) duePlacesLocked(now time.Time) []*place {
	var out []*place
	for len(w.places) > 0 {
		p := w.places[0]
		if p.at.After(now.Add(p.q.Every()/8)) || (len(out) == 0 && p.at.After(now)) {
			break
		}
		heap.Pop(&w.places)
		p.busy = make(chan struct{})
		out = append(out, p)
	}
	return out
}

// refresh keeps places alive and wakes waiters that should look.
func (w *watchdog) refresh(list []*place) {
	items := make([]Item, len(list))
	for i, p := range list {
		p.a.mu.Lock()
		items[i] = p.q.Refresh(&p.a.attempt)
		p.a.mu.Unlock()
	}
	sent := time.Now()
	var failed []*place
	var first error
	w.core.runBatches(items, func(i int, vals []conn.Value, err error) {
		p := list[i]
		if err != nil {
			if conn.IsPermanent(err) {
				p.waiter.Poke() // it tries, and returns what the server tells it
			}
			failed = append(failed, p)
			if first == nil {
				first = err
			}
			return
		}
		p.a.mu.Lock()
		wake, next := p.q.Refreshed(&p.a.attempt, vals, sent)
		p.a.mu.Unlock()
		if wake {
			p.waiter.Poke()
		}
		if next <= 0 || next > p.q.Every() {
			next = p.q.Every()
		}
		w.back(p, sent.Add(next))
	})
	if len(failed) > 0 && !w.refreshFails.Swap(true) && !w.core.isClosed() {
		w.core.cfg.Log.Warn("redlatch: refreshing the places of waiters failed, retrying",
			"lock", failed[0].a.lock.name, "type", failed[0].q.Type(), "waiters", len(failed), "error", first)
	}
	if len(failed) == 0 {
		w.refreshFails.Store(false)
	}
	for _, p := range failed {
		w.back(p, time.Now().Add(p.q.Every()/4))
	}
}

func (w *watchdog) back(p *place, at time.Time) {
	w.core.mu.Lock()
	defer w.core.mu.Unlock()
	close(p.busy)
	p.busy = nil
	if p.gone {
		return
	}
	if p.again {
		p.again, at = false, time.Now()
	}
	p.at = at
	heap.Push(&w.places, p)
	w.wakeLocked(at)
}
