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

// While there is no connection, topics that nobody waits on are forgotten after their time:
// else each contended name would cost memory for as long as there is none.
func TestWithoutAConnectionNoIdleTopicsAreKept(t *testing.T) {
	for name, hangs := range map[string]bool{"it is waited for": true, "it is refused": false} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *fakeServer, h *pubsub.Hub) {
				hang := make(chan struct{})
				there := sync.OnceFunc(func() { close(hang) })
				defer there()
				if s.down = true; hangs {
					s.hang, s.down = hang, false
				}
				stays := h.Join(one("stays"))
				const lingering = int(pubsub.Linger / time.Millisecond)
				for i := range 10 * lingering {
					leave(h.Join(one(fmt.Sprint("c", i))))
					time.Sleep(time.Millisecond)
					if n := h.Topics(); n > lingering+3 {
						t.Fatalf("%d topics after %d visits of 1 ms", n, i+1)
					}
				}
				s.set(func() { s.hang, s.down = nil, false })
				there()
				time.Sleep(2 * time.Second)
				if !tries(stays) || !stays.Take().Confirmed {
					t.Error("not confirmed when the connection was there")
				}
				leave(stays)
				time.Sleep(5*time.Second + pubsub.IdleNode)
				synctest.Wait()
				if n := h.Nodes(); n != 0 {
					t.Errorf("%d nodes though nobody waits", n)
				}
			})
		})
	}
}
