package pubsub_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlatch/redlatch/internal/pubsub"
	"github.com/redlatch/redlatch/internal/testbed"
)

// visit waits for a lock of its own for a moment: join, confirmation, leave, and
// the end of the subscription.
func visit(t *testing.T, s *fakeServer, h *pubsub.Hub, name string) {
	t.Helper()
	w := h.Join(one(name))
	testbed.Equal(t, tries(w), true, "confirmed")
	leave(w)
	time.Sleep(2 * pubsub.Linger)
	synctest.Wait()
	testbed.Equal(t, s.count(s.unsubs, name), 1, "times unsubscribed")
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
				testbed.Equal(t, tries(w), true, "confirmed")
				leave(w)
				synctest.Wait()
				testbed.AtMost(t, h.Looked()-before, 2*first, "looks for the waiter beside topics:", many)
				if !c.idle {
					before = h.Looked()
					visit(t, s, h, "last")
					testbed.AtMost(t, h.Looked()-before, 2*first+2, "looks for a visit") // and at the end of "late"
					leave(crowd...)
				}
			})
		})
	}
}

// A server that takes subscriptions and ends the connection, as a proxy may, is asked as rarely as one that takes none,
// also a far one: each time all who wait ask for their locks.
func TestConnectionsThatEndAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, s *fakeServer, h *pubsub.Hub) {
		s.breaks, s.far = true, 150*time.Millisecond
		w := h.Join(one("lock"))
		time.Sleep(time.Minute)
		s.set(func() { s.breaks, s.far = false, 0 })
		testbed.AtMost(t, s.count(s.subs, "lock"), 120, "connections in a minute")
		time.Sleep(2 * time.Second)
		testbed.Equal(t, w.Take().Confirmed, true, "confirmed when they last")
		s.cut()
		time.Sleep(50 * time.Millisecond)
		testbed.Equal(t, w.Take().Confirmed, true, "confirmed at once after one that lasted")
		leave(w)
	})
}
