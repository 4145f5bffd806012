package pubsub_test

import (
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlatch/redlatch/internal/pubsub"
)

// nodeGoroutines counts the goroutines of nodes, of all tests.
func nodeGoroutines() int {
	buf := make([]byte, 8<<20)
	return strings.Count(string(buf[:runtime.Stack(buf, true)]), "pubsub.(*node).run(")
}

// A client whose locks move from address to address keeps neither goroutines nor
// connections of the old ones.
func TestNodesWithoutTopicsEnd(t *testing.T) {
	bubble(t, func(t *testing.T, s *fakeServer, h *pubsub.Hub) {
		var mu sync.Mutex
		home := 0
		s.where = func(uint16) string { mu.Lock(); defer mu.Unlock(); return fmt.Sprint("node", home) }
		w := h.Join(one("c"))
		for i := range 200 {
			tries(w)
			mu.Lock()
			home = i + 1
			mu.Unlock()
			s.cut()
			time.Sleep(100 * time.Millisecond)
		}
		if !tries(w) || !w.Take().Confirmed {
			t.Fatal("not subscribed at the last place")
		}
		time.Sleep(pubsub.IdleNode)
		synctest.Wait()
		if n := h.Nodes(); n != 1 {
			t.Errorf("%d nodes after 200 changes of address", n)
		}
		if n := nodeGoroutines(); n != 1 {
			t.Errorf("%d goroutines after 200 changes of address", n)
		}
		leave(w)
		time.Sleep(pubsub.Linger + pubsub.IdleNode + time.Millisecond)
		synctest.Wait()
		if n := h.Nodes() + nodeGoroutines(); n != 0 {
			t.Errorf("%d nodes and goroutines though nobody waits", n)
		}
		s.mu.Lock()
		if s.closed != s.dials {
			t.Errorf("%d of %d connections closed", s.closed, s.dials)
		}
		s.mu.Unlock()
		w = h.Join(one("c")) // the node is made anew
		if !tries(w) || !s.publish("c", "0") || !tries(w) {
			t.Error("not woken by a node that came back")
		}
		leave(w)
	})
}

// What an old connection says after its end does not count for the new one.
func TestOldConnectionIsNotHeard(t *testing.T) {
	bubble(t, func(t *testing.T, s *fakeServer, h *pubsub.Hub) {
		w := h.Join(one("c"))
		tries(w)
		old := s.link.h
		s.set(func() { s.confirmLate = time.Second })
		s.cut()
		time.Sleep(100 * time.Millisecond)
		if n := w.Take(); !signalled(w) || n.Try || n.Confirmed {
			t.Error("the loss is not told")
		}
		old.Confirmed("c")
		if signalled(w) || w.Take().Confirmed {
			t.Error("confirmed by a connection that has ended")
		}
		time.Sleep(time.Second)
		if !tries(w) || !w.Take().Confirmed {
			t.Error("not confirmed by the new one")
		}
		old.Dropped("c")
		if synctest.Wait(); !w.Take().Confirmed || s.count(s.subs, "c") != 2 {
			t.Error("dropped by a connection that has ended")
		}
		leave(w)
	})
}

// A waiter whose topic is confirmed because another's channel is not needed any
// more looks: a message may have come before it joined.
func TestConfirmedByAnothersLeaving(t *testing.T) {
	bubble(t, func(t *testing.T, s *fakeServer, h *pubsub.Hub) {
		spec := all("c")
		spec.KeyedMiss = true
		first := h.Join(spec)
		tries(first)
		s.set(func() { s.confirmLate = time.Hour })
		other := h.Join(spec, pubsub.Keyed("k1", "own"))
		w := h.Join(spec, pubsub.Keyed("k2"))
		if signalled(w) || w.Take().Confirmed {
			t.Error("confirmed too early")
		}
		leave(other)
		if !signalled(w) {
			t.Error("not woken")
		}
		if n := w.Take(); !n.Confirmed || !n.Missed {
			t.Errorf("news %+v", n)
		}
		leave(w, first)
	})
}
