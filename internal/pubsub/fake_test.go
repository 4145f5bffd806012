package pubsub_test

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlatch/redlatch/internal/pubsub"
)

// fakeServer is a pubsub.Dialer whose connections the tests look at and break.
type fakeServer struct {
	confirmLate time.Duration // between a Subscribe and its confirmation

	mu      sync.Mutex
	hang    chan struct{}   // guarded by mu; no connection is made until it is closed; nil: at once
	far     time.Duration   // guarded by mu; for how long each connection is being made
	asked   []string        // guarded by mu; connections, what was subscribed (+) and unsubscribed (-), in turn
	down    bool            // guarded by mu; no connection can be made
	breaks  bool            // guarded by mu; each connection ends as soon as it stands
	refused map[string]bool // guarded by mu; channels that are denied
	link    *fakeLink       // guarded by mu; the newest
	first   *fakeLink       // guarded by mu
	links   []*fakeLink     // guarded by mu; those that were not given up
	dials   int             // guarded by mu
	closed  int             // guarded by mu; connections that the hub gave up
	subs    map[string]int  // guarded by mu; how often each was subscribed
	unsubs  map[string]int  // guarded by mu
	where   func(slot uint16) string
}

type fakeLink struct {
	s    *fakeServer
	h    pubsub.Handler
	node string
	end  chan error
	once sync.Once

	mu   sync.Mutex
	have map[string]bool // guarded by mu
}

func newServer() *fakeServer {
	return &fakeServer{refused: map[string]bool{}, subs: map[string]int{}, unsubs: map[string]int{}}
}

// set changes the server.
func (s *fakeServer) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

// noted takes what the server was asked.
func (s *fakeServer) noted() (all []string) {
	s.set(func() { all, s.asked = s.asked, nil })
	return all
}

func (s *fakeServer) Node(slot uint16) string {
	if s.where != nil {
		return s.where(slot)
	}
	return ""
}

func (s *fakeServer) Moved(string) {}

func (s *fakeServer) Dial(node string, h pubsub.Handler) (pubsub.Link, error) {
	s.mu.Lock()
	hang, far := s.hang, s.far
	s.mu.Unlock()
	time.Sleep(far)
	if hang != nil {
		<-hang
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dials++
	if s.down {
		if again := "no connection"; len(s.asked) == 0 || s.asked[len(s.asked)-1] != again {
			s.asked = append(s.asked, again) // how often is a matter of chance
		}
		return nil, errors.New("connection refused")
	}
	s.asked = append(s.asked, strings.TrimSpace("dial "+node))
	s.link = &fakeLink{s: s, h: h, node: node, end: make(chan error, 1), have: map[string]bool{}}
	s.links, s.first = append(s.links, s.link), cmp.Or(s.first, s.link)
	return s.link, nil
}

func (l *fakeLink) Subscribe(ctx context.Context, channels []string, _ bool) error {
	refused := pubsub.RefusedError{}
	l.s.mu.Lock()
	for _, ch := range channels {
		l.s.asked = append(l.s.asked, "+"+ch)
		if l.s.refused[ch] {
			refused[ch] = errors.New("NOPERM")
			continue
		}
		l.s.subs[ch]++
	}
	late := l.s.confirmLate
	l.s.mu.Unlock()
	if late > 0 { // CONTRIBUTING.md says why no timer may be due already
		select {
		case <-time.After(late):
		case err := <-l.end:
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	for _, ch := range channels {
		if refused[ch] != nil {
			continue
		}
		l.mu.Lock()
		l.have[ch] = true
		l.mu.Unlock()
		l.h.Confirmed(ch)
	}
	l.s.mu.Lock()
	breaks := l.s.breaks
	l.s.mu.Unlock()
	if breaks {
		l.once.Do(func() { l.end <- errors.New("EOF") })
	}
	if len(refused) > 0 {
		return refused
	}
	return nil
}

func (l *fakeLink) Unsubscribe(_ context.Context, channels []string, _ bool) error {
	for _, ch := range channels {
		l.s.mu.Lock()
		l.s.asked = append(l.s.asked, "-"+ch)
		l.s.unsubs[ch]++
		l.s.mu.Unlock()
		l.mu.Lock()
		delete(l.have, ch)
		l.mu.Unlock()
		l.h.Dropped(ch)
	}
	return nil
}

func (l *fakeLink) Down() <-chan error { return l.end }

func (l *fakeLink) Close() {
	l.s.mu.Lock()
	defer l.s.mu.Unlock()
	l.s.closed++
	l.s.asked = append(l.s.asked, strings.TrimSpace("close "+l.node))
	l.s.links = slices.DeleteFunc(l.s.links, func(o *fakeLink) bool { return o == l })
}

// cut ends the connection.
func (s *fakeServer) cut() { s.ends(errors.New("EOF")) }

func (s *fakeServer) ends(err error) {
	s.mu.Lock()
	l := s.link
	s.mu.Unlock()
	l.once.Do(func() { l.end <- err })
}

// publish sends a message to whoever has subscribed; it reports whether anybody has.
func (s *fakeServer) publish(channel, payload string) bool {
	s.mu.Lock()
	links := slices.Clone(s.links)
	s.mu.Unlock()
	heard := false
	for _, l := range links {
		l.mu.Lock()
		ok := l.have[channel]
		l.mu.Unlock()
		if ok {
			l.h.Message(channel, payload)
			heard = true
		}
	}
	return heard
}

func (s *fakeServer) count(m map[string]int, ch string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return m[ch]
}

func one(channel string) pubsub.Spec {
	return pubsub.Spec{
		ID: channel, Channels: []string{channel},
		Route: func(_, _ string) pubsub.Wake { return pubsub.Wake{One: true} },
	}
}

func all(channel string) pubsub.Spec {
	spec := one(channel)
	spec.Route = func(_, payload string) pubsub.Wake { return pubsub.Wake{One: true, All: true, Key: payload} }
	return spec
}

// bubble runs a test with a hub on a fake server.
func bubble(t *testing.T, f func(t *testing.T, s *fakeServer, h *pubsub.Hub)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		h := pubsub.NewHub(s, func(string, ...any) {})
		defer h.Wait() // goroutines that are left would fail the bubble
		defer h.Close()
		f(t, s, h)
	})
}

// signalled tells whether the waiter has a signal and takes it.
func signalled(w *pubsub.Waiter) bool {
	synctest.Wait()
	select {
	case <-w.C:
		return true
	default:
		return false
	}
}

func tries(w *pubsub.Waiter) bool { return signalled(w) && w.Take().Try }

func leave(all ...*pubsub.Waiter) {
	for _, w := range all {
		w.Leave(false, time.Time{}, pubsub.Holder{})
	}
}
