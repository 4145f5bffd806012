package pubsub_test

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlatch/redlatch/internal/pubsub"
)

// What somebody waits for is subscribed first, and what nobody waits for is unsubscribed last.
func TestWaitersAreSubscribedFirst(t *testing.T) {
	bubble(t, func(t *testing.T, s *fakeServer, h *pubsub.Hub) {
		old := h.Join(all("c"), pubsub.Keyed("k", "old"))
		synctest.Wait()
		s.set(func() { s.confirmLate = pubsub.Linger / 2 })
		busy := h.Join(one("busy"))
		synctest.Wait() // the connection's goroutine waits for it
		leave(old)
		leave(h.Join(one("left")))
		w := h.Join(one("new"))
		s.set(func() { s.asked = nil })
		time.Sleep(pubsub.Linger)
		synctest.Wait()
		s.mu.Lock()
		got := slices.Clone(s.asked)
		s.mu.Unlock()
		if want := []string{"+new", "+left", "-old"}; !slices.Equal(got[:min(3, len(got))], want) {
			t.Errorf("asked for %v, want %v first", got, want)
		}
		leave(w, busy)
	})
}

// A server that refuses some channels has subscribed the others: they are not asked for again.
func TestSomeChannelsAreRefused(t *testing.T) {
	bubble(t, func(t *testing.T, s *fakeServer, h *pubsub.Hub) {
		s.apart = true
		s.refused["bad"], s.refused["worse"] = true, true
		var waiters []*pubsub.Waiter
		names := []string{"a", "bad", "b", "worse", "c"}
		for _, name := range names {
			waiters = append(waiters, h.Join(one(name)))
		}
		synctest.Wait()
		for i, w := range waiters {
			n := w.Take()
			if refused := s.refused[names[i]]; errors.Is(n.Err, pubsub.ErrRefused) != refused || n.Confirmed == refused {
				t.Errorf("%s: confirmed %t, error %v", names[i], n.Confirmed, n.Err)
			}
			leave(w)
		}
		for _, name := range []string{"a", "b", "c"} {
			if n := s.count(s.subs, name); n != 1 {
				t.Errorf("%s was subscribed %d times", name, n)
			}
		}
	})
}

// A master that does not know its own address is the one of its port.
func TestAstray(t *testing.T) {
	masters := []string{"10.0.0.1:7000", ":7001", "?:7002", "[::1]:7003"}
	for home, want := range map[string]bool{
		"10.0.0.1:7000": false, "10.0.0.9:7001": false, "10.0.0.9:7002": false, "[::1]:7003": false,
		"10.0.0.2:7000": true, "10.0.0.1:7004": true,
		"": false, // on any node
	} {
		if got := pubsub.Astray(home, masters...); got != want {
			t.Errorf("%q: %t", home, got)
		}
	}
}
