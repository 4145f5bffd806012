package pubsub_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlatch/redlatch/internal/pubsub"
)

// herded is a topic for whose messages the heads of several processes run.
func herded() pubsub.Spec {
	spec := one("herd")
	spec.Herd = true
	return spec
}

// has makes the waiter the one whose process has just had the lock.
func has(w *pubsub.Waiter) {
	w.Leave(false, time.Now().Add(time.Minute), pubsub.Holder{Owner: "us"})
}

// wakes counts how many messages it takes until the waiter tries.
func wakes(t *testing.T, s *fakeServer, w *pubsub.Waiter) int {
	t.Helper()
	for n := 1; n <= 100; n++ {
		if !s.publish("herd", "0") {
			t.Fatal("nobody listens")
		}
		if tries(w) {
			return n
		}
	}
	t.Fatal("100 messages woke nobody")
	return 0
}

// A process that has just had the lock leaves the next messages to the others,
// fewer than there are of them; how many that are, its unlocks say.
func TestWhoHadTheLockStandsBack(t *testing.T) {
	for _, c := range []struct {
		listeners int64
		want      int
	}{{0, 1}, {1, 1}, {2, 1}, {3, 3}, {8, 6}, {20, 15}} {
		bubble(t, func(t *testing.T, s *fakeServer, h *pubsub.Hub) {
			first, second := h.Join(herded()), h.Join(herded())
			synctest.Wait()
			if n := wakes(t, s, first); n != 1 {
				t.Errorf("a process that never had the lock tried at message %d", n)
			}
			has(first)
			h.Heard("herd", c.listeners)
			signalled(second) // it is the head now
			if n := wakes(t, s, second); n != c.want {
				t.Errorf("of %d listeners, it tried at message %d, not %d", c.listeners, n, c.want)
			}
			if n := wakes(t, s, second); n != 1 {
				t.Errorf("then it let %d messages pass", n-1)
			}
			leave(second)
		})
	}
}

// If nobody else runs for the lock, the process that stood back does so a moment
// later, and stands back no more until it finds another holder.
func TestWhoStandsBackLooksSoon(t *testing.T) {
	bubble(t, func(t *testing.T, s *fakeServer, h *pubsub.Hub) {
		first, second, third := h.Join(herded()), h.Join(herded()), h.Join(herded())
		synctest.Wait()
		has(first)
		h.Heard("herd", 8)
		signalled(second)
		s.publish("herd", "0")
		time.Sleep(600 * time.Microsecond)
		s.publish("herd", "0") // somebody had it: the moment begins again
		time.Sleep(600 * time.Microsecond)
		if tries(second) {
			t.Fatal("it did not stand back")
		}
		time.Sleep(400 * time.Microsecond)
		synctest.Wait()
		if !tries(second) {
			t.Fatal("1 ms after the last message it has not tried")
		}
		has(second)
		signalled(third)
		if n := wakes(t, s, third); n != 1 {
			t.Errorf("alone, it stood back for %d messages", n-1)
		}
		third.Expect(time.Now().Add(time.Minute), pubsub.Holder{Owner: "another"})
		has(third)
		fourth := h.Join(herded())
		signalled(fourth)
		fourth.Take()
		if n := wakes(t, s, fourth); n != 6 {
			t.Errorf("having met another holder, it tried at message %d", n)
		}
		leave(fourth)
	})
}

// What stands back is a waiter; the one behind it takes its turn if it leaves,
// and a broken connection wakes in any case.
func TestStandingBackLosesNoWakeUp(t *testing.T) {
	bubble(t, func(t *testing.T, s *fakeServer, h *pubsub.Hub) {
		first, second, third := h.Join(herded()), h.Join(herded()), h.Join(herded())
		synctest.Wait()
		has(first)
		h.Heard("herd", 8)
		signalled(second)
		s.publish("herd", "0")
		second.Leave(true, time.Time{}, pubsub.Holder{})
		if !tries(third) {
			t.Error("nobody took the turn of the one that left")
		}
		s.cut()
		time.Sleep(time.Second)
		synctest.Wait()
		if !tries(third) {
			t.Error("the new connection woke nobody")
		}
		leave(third)
	})
}
