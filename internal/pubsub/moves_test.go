package pubsub_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlatch/redlatch/internal/pubsub"
	"github.com/redlatch/redlatch/internal/testbed"
)

// Whatever happens (slots that move, connections that break or are replaced,
// subscriptions that the server ends, waiters that come and go and come back to an
// idle subscription), in the end each topic with waiters is subscribed once, and its
// message reaches its head.
func TestEveryTopicIsHeardInTheEnd(t *testing.T) {
	for seed := range uint64(30) {
		bubble(t, func(t *testing.T, s *fakeServer, h *pubsub.Hub) {
			const slots = 12
			r := rand.New(rand.NewPCG(seed, 7))
			var mu sync.Mutex
			var home [slots]int
			s.where = func(slot uint16) string { mu.Lock(); defer mu.Unlock(); return fmt.Sprint("node", home[slot]) }
			s.set(func() { s.confirmLate = time.Duration(r.IntN(3)) * 100 * time.Microsecond })
			spec := func(i int) pubsub.Spec {
				spec := one(fmt.Sprint("c", i))
				spec.Slot = uint16(i)
				return spec
			}
			var lines [slots][]*pubsub.Waiter
			for range 400 {
				i := r.IntN(slots)
				switch r.IntN(8) {
				case 0, 1, 2:
					lines[i] = append(lines[i], h.Join(spec(i)))
				case 3, 4, 5:
					if n := len(lines[i]); n > 0 {
						at := r.IntN(n)
						w := lines[i][at]
						w.Leave(true, time.Time{}, pubsub.Holder{})
						leave(w) // on what is idle now, perhaps
						lines[i] = append(lines[i][:at:at], lines[i][at+1:]...)
					}
				case 6:
					s.mu.Lock()
					links := slices.Clone(s.links)
					s.mu.Unlock()
					if len(links) == 0 {
						break
					}
					l := links[r.IntN(len(links))]
					mu.Lock()
					home[i] = r.IntN(4)
					mu.Unlock()
					if r.IntN(2) == 0 {
						l.once.Do(func() { l.end <- fmt.Errorf("EOF") })
					} else {
						l.h.Dropped(fmt.Sprint("c", i))
					}
				case 7:
					h.Redial()
				}
				switch r.IntN(4) {
				case 0:
					time.Sleep(time.Duration(r.IntN(1000)) * time.Microsecond)
				case 1:
					time.Sleep(time.Duration(r.IntN(1000)) * time.Millisecond)
				case 2:
					synctest.Wait()
				}
			}
			h.Redial() // what moved without its connection knowing follows now
			time.Sleep(5 * time.Second)
			for i, line := range lines {
				synctest.Wait()
				if len(line) == 0 {
					testbed.Equal(t, s.publish(fmt.Sprint("c", i), "0"), false, "seed", seed, "nobody waits for", i)
					continue
				}
				for signalled(line[0]) {
				}
				line[0].Take()
				if !s.publish(fmt.Sprint("c", i), "0") || !tries(line[0]) || !line[0].Take().Confirmed {
					t.Errorf("seed %d: the head of c%d is not woken", seed, i)
				}
				leave(line...)
			}
			time.Sleep(2*pubsub.Linger + pubsub.IdleNode)
			synctest.Wait()
			testbed.Equal(t, h.Nodes(), 0, "nodes that are left, with seed", seed)
		})
	}
}

// A master that does not know its own address is the one of its port.
func TestAstray(t *testing.T) {
	masters := []string{"10.0.0.1:7000", ":7001", "?:7002", "[::1]:7003"}
	for home, want := range map[string]bool{
		"10.0.0.1:7000": false, "10.0.0.9:7001": false, "10.0.0.9:7002": false, "[::1]:7003": false,
		"10.0.0.2:7000": true, "10.0.0.1:7004": true,
		"": false, // on any node
	} {
		testbed.Equal(t, pubsub.Astray(home, masters...), want, home)
	}
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
				testbed.Equal(t, h.Nodes(), 0, "nodes, though nobody waits")
			})
		})
	}
}
