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
	}{{0, 1}, {1, 1}, {2, 1}, {3, 3}, {8, 6}, {12, 10}, {20, 18}, {80, 78}} {
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

// A process that has never had the lock and always comes too late is in a crowd: from
// the eighth time on it leaves some messages to others, and tries all the same when
// there are no more.
func TestWhoAlwaysLosesStandsBack(t *testing.T) {
	bubble(t, func(t *testing.T, s *fakeServer, h *pubsub.Hub) {
		w := h.Join(herded())
		synctest.Wait()
		lose := func() int {
			n := wakes(t, s, w)
			w.Expect(time.Now().Add(time.Minute), pubsub.Holder{Owner: "another"})
			return n
		}
		for i := range 8 {
			if n := lose(); n != 1 {
				t.Fatalf("attempt %d came at message %d", i+1, n)
			}
		}
		longest := 0
		for range 20 {
			longest = max(longest, lose())
			for range 7 {
				if n := lose(); n != 1 {
					t.Fatalf("it left %d messages between two of eight attempts", n-1)
				}
			}
		}
		if longest < 2 || longest > 64 {
			t.Errorf("having lost eight times, it tried at message %d at the latest", longest)
		}
		for wakes(t, s, w) == 1 { // until it leaves one
			w.Expect(time.Now().Add(time.Minute), pubsub.Holder{Owner: "another"})
		}
		has(w)
		next := h.Join(herded())
		signalled(next)
		if n := wakes(t, s, next); n != 1 {
			t.Errorf("after a turn it stood back for %d messages, though it knows of nobody", n-1)
		}
		leave(next)
	})
}

// In a crowd, a process that stands back waits longer for another message, as long as
// several of the turns of the crowd take, and not at the same moment as all others.
func TestPatienceInACrowd(t *testing.T) {
	for _, c := range []struct {
		every       time.Duration
		least, most time.Duration
	}{
		{100 * time.Microsecond, time.Millisecond, time.Millisecond},
		{5 * time.Millisecond, 20 * time.Millisecond, 40 * time.Millisecond},
		{time.Second, 30 * time.Millisecond, 60 * time.Millisecond},
	} {
		seen := map[time.Duration]bool{}
		for range 5 {
			bubble(t, func(t *testing.T, s *fakeServer, h *pubsub.Hub) {
				first, second := h.Join(herded()), h.Join(herded())
				synctest.Wait()
				for range 100 {
					time.Sleep(c.every)
					s.publish("herd", "0")
				}
				has(first)
				h.Heard("herd", 1000)
				signalled(second)
				time.Sleep(c.every)
				s.publish("herd", "0")
				from := time.Now()
				for !tries(second) {
					time.Sleep(100 * time.Microsecond)
					synctest.Wait()
				}
				took := time.Since(from)
				seen[took] = true
				if took < c.least-c.least/100 || took > c.most {
					t.Errorf("with a message every %v it waited %v", c.every, took)
				}
				leave(second)
			})
		}
		if c.least < c.most && len(seen) == 1 {
			t.Errorf("with a message every %v all waited equally long: %v", c.every, seen)
		}
	}
}
