package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/redlatch/redlatch"
)

// hub looks at the locks for all viewers together, while there are any.
type hub struct {
	client   *redlatch.Client
	pattern  string
	interval time.Duration
	log      *slog.Logger
	came     chan struct{} // a viewer, or an eviction

	mu      sync.Mutex
	viewers map[*viewer]bool // guarded by mu
	board   *board           // guarded by mu
	down    bool             // guarded by mu; the last look failed
	asked   time.Time        // guarded by mu; when ready was made
	ready   func() bool      // guarded by mu; whether the server answers, asked once
}

// viewer is one page that is open.
type viewer struct {
	open string      // the lock that it looks into, "" = none
	news chan []byte // events, the newest only
}

// maxViewers bounds what a crowd, or somebody who means ill, can open.
const maxViewers = 100

func newHub(client *redlatch.Client, pattern string, interval time.Duration, log *slog.Logger) *hub {
	return &hub{
		client: client, pattern: pattern, interval: interval, log: log, came: make(chan struct{}, 1),
		viewers: map[*viewer]bool{}, board: newBoard(),
	}
}

// join adds a page, which looks into a lock, or into none. It fails when there are too many.
func (h *hub) join(open string) (*viewer, error) {
	v := &viewer{open: open, news: make(chan []byte, 2)}
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.viewers) >= maxViewers {
		return nil, &statusError{errors.New("too many pages are open"), exitBusy}
	}
	h.viewers[v] = true
	h.poke()
	return v, nil
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
		var open []string
		for v := range h.viewers {
			open = append(open, v.open)
		}
		h.mu.Unlock()
		var next <-chan time.Time
		if len(open) > 0 {
			l := lookAll(ctx, h.client, h.pattern, open...)
			if ctx.Err() != nil {
				return
			}
			h.show(l)
			next = time.After(max(h.interval, l.pause))
		}
		select {
		case <-ctx.Done():
			return
		case <-h.came:
		case <-next:
		}
	}
}

// show tells the viewers what a look found.
func (h *hub) show(l *looked) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if down := l.err != nil; down != h.down {
		h.down = down
		if down {
			h.log.Error("look failed", "error", message(l.err))
		} else {
			h.log.Info("look works again")
		}
	}
	var page []byte
	events := map[string][]byte{}
	if l.err != nil {
		page = trouble(l.err)
	} else {
		h.board.see(l)
		page = event("locks", h.board.overview())
		for name, in := range l.open {
			events[name] = event("lock", h.board.detail(in))
		}
	}
	for v := range h.viewers {
		v.tell(page)
		if one := events[v.open]; one != nil {
			v.tell(one)
		}
	}
}

// answers reports whether the server answers, within two seconds. It is asked at most once a second, whoever wants to
// know: by a look at a lock, which is an answer, too, if it is refused. On a cluster that is one of the masters.
func (h *hub) answers() bool {
	h.mu.Lock()
	if time.Since(h.asked) > time.Second {
		h.asked, h.ready = time.Now(), sync.OnceValue(func() bool {
			ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
			defer cancel()
			_, err := h.client.Inspect(ctx, "redlatch-ready")
			return ctx.Err() == nil && !isGone(err)
		})
	}
	ready := h.ready
	h.mu.Unlock()
	return ready()
}

// event is an event as the stream has it.
func event(name string, v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		return trouble(err)
	}
	return fmt.Appendf(nil, "event: %s\ndata: %s\n\n", name, text)
}

// trouble is the event of an error.
func trouble(err error) []byte { return event("trouble", map[string]string{"error": message(err)}) }

// force marks a holder that is being evicted, so that its turn is shown so.
func (h *hub) force(name, owner string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, w := range h.board.locks {
		for i := range w.turns {
			if t := &w.turns[i]; w.Name == name && t.Owner == owner && !t.Ended {
				t.How = "forced"
			}
		}
	}
}

// tell leaves news; the oldest that a slow viewer has not taken yet make room. Nobody else sends to it.
func (v *viewer) tell(event []byte) {
	if len(v.news) == cap(v.news) {
		select {
		case <-v.news:
		default: // it has taken them this moment
		}
	}
	v.news <- event
}
