package pubsub_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlatch/redlatch/internal/pubsub"
)

// visit waits for a lock of its own for a moment: join, confirmation, leave, and
// the end of the subscription.
func visit(t *testing.T, s *fakeServer, h *pubsub.Hub, name string) {
	t.Helper()
	w := h.Join(one(name))
	if !tries(w) {
		t.Fatal("not confirmed")
	}
	leave(w)
	time.Sleep(2 * pubsub.Linger)
	synctest.Wait()
	if n := s.count(s.unsubs, name); n != 1 {
		t.Fatalf("%d × unsubscribed", n)
	}
}

// A waiter makes the hub look at its own topic and channel, not at those of
// others: neither at those that are waited for nor at those that are idle.
func TestWaiterCostsTheSameAmongMany(t *testing.T) {
	const many = 20_000
	for _, c := range []struct {
		name string
		idle bool
	}{{"waited for", false}, {"idle", true}} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *fakeServer, h *pubsub.Hub) {
				visit(t, s, h, "first")
				first := h.Looked()
				crowd := make([]*pubsub.Waiter, many)
				for i := range crowd {
					crowd[i] = h.Join(one(fmt.Sprint("lock", i)))
				}
				synctest.Wait()
				if c.idle {
					time.Sleep(pubsub.Linger)
					leave(crowd...)
					time.Sleep(pubsub.Linger / 2)
					synctest.Wait()
				}
				before := h.Looked()
				w := h.Join(one("late"))
				if !tries(w) {
					t.Fatal("not confirmed")
				}
				leave(w)
				synctest.Wait()
				if n := h.Looked() - before; n > 2*first {
					t.Errorf("looked %d times for the waiter beside %d topics, %d times for the first", n, many, first)
				}
				if !c.idle {
					before = h.Looked()
					visit(t, s, h, "last")
					if n := h.Looked() - before; n > 2*first+2 { // and at the end of "late"
						t.Errorf("looked %d times for a visit beside %d topics, %d times for the first", n, many, first)
					}
					leave(crowd...)
				}
			})
		})
	}
}
