package pubsub_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlatch/redlatch/internal/pubsub"
)

const pause = 5 * time.Millisecond

// paused is a line whose process pauses: what its head was told before is taken.
func paused(t *testing.T, f func(t *testing.T, s *fakeServer, h *pubsub.Hub, head, next *pubsub.Waiter)) {
	t.Helper()
	bubble(t, func(t *testing.T, s *fakeServer, h *pubsub.Hub) {
		first, head, next := h.Join(herded()), h.Join(herded()), h.Join(herded())
		synctest.Wait()
		has(first)
		signalled(head)
		head.Take()
		h.Pause("herd", pause)
		f(t, s, h, head, next)
		leave(head)
		leave(next)
	})
}

// After its own message, a process tries at the next one.
func TestPauseEndsWithAnothersMessage(t *testing.T) {
	paused(t, func(t *testing.T, s *fakeServer, _ *pubsub.Hub, head, next *pubsub.Waiter) {
		if n := wakes(t, s, head); n != 2 {
			t.Errorf("tried at message %d", n)
		}
		time.Sleep(time.Second)
		if signalled(head) || signalled(next) {
			t.Error("the pause's timer woke somebody after its end")
		}
		if n := wakes(t, s, head); n != 1 {
			t.Errorf("tried at message %d after the pause", n)
		}
	})
}

// If nobody else takes the lock, it tries when the pause is over, counted from the
// release as it was noticed.
func TestPauseEndsByTime(t *testing.T) {
	for name, c := range map[string]struct {
		notice func(s *fakeServer, h *pubsub.Hub)
		after  time.Duration
	}{
		"message":            {func(s *fakeServer, _ *pubsub.Hub) { s.publish("herd", "0") }, pause},
		"answer":             {func(_ *fakeServer, h *pubsub.Hub) { h.Heard("herd", 2) }, pause},
		"answer of a herd":   {func(_ *fakeServer, h *pubsub.Hub) { h.Heard("herd", 20) }, pause},
		"answer and message": {func(s *fakeServer, h *pubsub.Hub) { h.Heard("herd", 2); s.publish("herd", "0") }, pause},
		"message and answer": {func(s *fakeServer, h *pubsub.Hub) { s.publish("herd", "0"); h.Heard("herd", 2) }, pause},
		"neither":            {func(*fakeServer, *pubsub.Hub) {}, 100*time.Millisecond - 50*time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			paused(t, func(t *testing.T, s *fakeServer, h *pubsub.Hub, head, _ *pubsub.Waiter) {
				time.Sleep(50 * time.Millisecond) // the release is slow
				if tries(head) {
					t.Fatal("tried before the release")
				}
				c.notice(s, h)
				time.Sleep(c.after - time.Microsecond)
				if tries(head) {
					t.Error("tried too early")
				}
				time.Sleep(time.Microsecond)
				if !tries(head) {
					t.Error("did not try when the pause was over")
				}
			})
		})
	}
}

// An answer after the own message does not make the pause longer.
func TestPauseCountsOnce(t *testing.T) {
	paused(t, func(t *testing.T, s *fakeServer, h *pubsub.Hub, head, _ *pubsub.Waiter) {
		s.publish("herd", "0")
		time.Sleep(pause - time.Millisecond)
		h.Heard("herd", 2)
		time.Sleep(time.Millisecond)
		if !tries(head) {
			t.Error("did not try when the pause was over")
		}
	})
}

// After a pause of many processes, the herd's rule counts the messages.
func TestPauseInAHerd(t *testing.T) {
	paused(t, func(t *testing.T, s *fakeServer, h *pubsub.Hub, head, _ *pubsub.Waiter) {
		h.Heard("herd", 8)
		if n := wakes(t, s, head); n != 6 {
			t.Errorf("of 8 listeners, it tried at message %d", n)
		}
	})
}

// What wakes in spite of a pause: a confirmed subscription, Poke, and the end of
// the pause by its caller.
func TestPauseLosesNoWakeUp(t *testing.T) {
	for name, wake := range map[string]func(s *fakeServer, h *pubsub.Hub, head *pubsub.Waiter){
		"confirmed": func(s *fakeServer, _ *pubsub.Hub, _ *pubsub.Waiter) { s.link.h.Confirmed("herd") },
		"reconnect": func(s *fakeServer, _ *pubsub.Hub, _ *pubsub.Waiter) { s.cut(); time.Sleep(20 * time.Millisecond) },
		"poke":      func(_ *fakeServer, _ *pubsub.Hub, head *pubsub.Waiter) { head.Poke() },
		"end":       func(_ *fakeServer, h *pubsub.Hub, _ *pubsub.Waiter) { h.Pause("herd", 0) },
	} {
		t.Run(name, func(t *testing.T) {
			paused(t, func(t *testing.T, s *fakeServer, h *pubsub.Hub, head, next *pubsub.Waiter) {
				wake(s, h, head)
				if !tries(head) {
					t.Error("not woken")
				}
				h.Pause("herd", 0) // ends it, and is no pause of its own
				head.Take()
				for signalled(head) {
				}
				if n := wakes(t, s, head); n != 1 || signalled(next) {
					t.Errorf("tried at message %d after the pause", n)
				}
			})
		})
	}
}

// A head that leaves hands its pause to the next one, and what it was told and
// did not use, too.
func TestPauseOutlivesTheHead(t *testing.T) {
	paused(t, func(t *testing.T, s *fakeServer, _ *pubsub.Hub, head, next *pubsub.Waiter) {
		s.publish("herd", "0")
		head.Leave(true, time.Time{}, pubsub.Holder{})
		if tries(next) {
			t.Error("the next one did not pause")
		}
		time.Sleep(pause)
		if !tries(next) {
			t.Error("the next one did not try when the pause was over")
		}
	})
	paused(t, func(t *testing.T, _ *fakeServer, _ *pubsub.Hub, head, next *pubsub.Waiter) {
		head.Poke()
		head.Leave(true, time.Time{}, pubsub.Holder{})
		if !tries(next) {
			t.Error("what the head was told is lost")
		}
	})
}

// A look that found another holder ends the wait for the own message; the timer
// stays, since that holder may have gone meanwhile.
func TestPauseAfterAnotherHolder(t *testing.T) {
	paused(t, func(t *testing.T, s *fakeServer, _ *pubsub.Hub, head, _ *pubsub.Waiter) {
		head.Expect(time.Now().Add(time.Minute), pubsub.Holder{Owner: "another"})
		if n := wakes(t, s, head); n != 1 {
			t.Errorf("tried at message %d", n)
		}
	})
	paused(t, func(t *testing.T, s *fakeServer, _ *pubsub.Hub, head, _ *pubsub.Waiter) {
		s.publish("herd", "0")
		head.Expect(time.Now().Add(time.Minute), pubsub.Holder{Owner: "another"})
		time.Sleep(pause)
		if !tries(head) {
			t.Error("did not try when the pause was over")
		}
	})
}

// A process that gets the lock during its pause (somebody else's attempt was under
// way) does not pause any more.
func TestPauseEndsWithTheLock(t *testing.T) {
	paused(t, func(t *testing.T, _ *fakeServer, h *pubsub.Hub, head, next *pubsub.Waiter) {
		has(head)
		signalled(next)
		next.Take()
		time.Sleep(time.Second)
		if signalled(next) {
			t.Error("woken by the timer of a pause that has ended")
		}
		h.Pause("nothing", pause) // no topic: nothing happens
	})
}
