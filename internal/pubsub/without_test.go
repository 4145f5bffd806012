package pubsub_test

import (
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlatch/redlatch/internal/pubsub"
)

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

// A connection that is not there after 10 s is told of once, whatever keeps it away, and again
// in the next outage only.
func TestWaitingForAConnectionIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		var mu sync.Mutex
		var lines []string
		h := pubsub.NewHub(s, func(msg string, _ ...any) { mu.Lock(); lines = append(lines, msg); mu.Unlock() })
		defer h.Wait()
		defer h.Close()
		told := func(when string, want ...string) {
			t.Helper()
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			ok := len(lines) == len(want)
			for i := range min(len(lines), len(want)) {
				ok = ok && strings.Contains(lines[i], want[i])
			}
			if !ok {
				t.Errorf("%s: told %q, want %q", when, lines, want)
			}
			lines = nil
		}

		hang := make(chan struct{})
		s.set(func() { s.hang = hang })
		w := h.Join(one("c"))
		time.Sleep(pubsub.LongWithout - time.Millisecond)
		told("before its time")
		time.Sleep(time.Millisecond)
		told("after 10 s", "no connection")
		time.Sleep(time.Minute)
		s.set(func() { s.hang, s.down = nil, true })
		close(hang)
		time.Sleep(time.Minute)
		told("later in the same outage")

		s.set(func() { s.down = false })
		time.Sleep(2 * time.Second)
		if !tries(w) || !w.Take().Confirmed {
			t.Fatal("not confirmed")
		}
		time.Sleep(time.Minute)
		told("while it stands")

		s.ends(&net.OpError{Op: "read", Net: "tcp", Err: net.ErrClosed})
		time.Sleep(time.Minute)
		told("a connection that this side has ended")

		s.set(func() { s.confirmLate = time.Hour })
		s.cut()
		time.Sleep(time.Minute)
		told("a connection that was lost, and not had since", "subscription lost")
		time.Sleep(2 * time.Hour)
		told("while it stands")

		h.Redial() // no loss
		s.set(func() { s.confirmLate = time.Minute })
		time.Sleep(30 * time.Second)
		told("a server that answers no subscription", "no connection")
		time.Sleep(time.Minute)
		leave(w)
		time.Sleep(2 * time.Minute)
		told("while nobody waits")
	})
}
