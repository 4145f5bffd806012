package pubsub_test

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlatch/redlatch/internal/observe"
	"github.com/redlatch/redlatch/internal/pubsub"
)

func yes(any) (pubsub.Holder, bool) { return pubsub.Holder{}, true }

// The head of the line is handed the lock, in the line's order; the others are not
// told to try, though the head had been told: the process has the lock. Each new head learns soon that it is.
func TestTakeHeadInOrder(t *testing.T) {
	bubble(t, func(t *testing.T, s *fakeServer, h *pubsub.Hub) {
		var line []*pubsub.Waiter
		for i := range 4 {
			line = append(line, h.Join(one("c"), pubsub.Carry(i)))
		}
		tries(line[0]) // the confirmation
		for i, w := range line {
			s.publish("c", "0")
			if i%2 == 1 && !tries(w) { // what the others were told they have not taken yet
				t.Error("a message did not wake the new head")
			}
			var got any
			if !h.TakeHead("c", func(v any) (pubsub.Holder, bool) { got = v; return pubsub.Holder{}, true }) || got != i {
				t.Fatalf("took %v, not %d", got, i)
			}
			if !signalled(w) {
				t.Errorf("waiter %d was taken and not woken", i)
			}
			if n := w.Take(); n.Try || n.Head || n.Line || n.Confirmed || n.Holder.Owner != "" {
				t.Errorf("news of a taken waiter %+v", n)
			}
			for _, behind := range line[i+1:] {
				if signalled(behind) {
					t.Errorf("woken behind waiter %d at once", i)
				}
			}
			w.Leave(true, time.Time{}, pubsub.Holder{}) // does nothing
			w.Expect(time.Now(), pubsub.Holder{Owner: "nobody"})
			w.Poke()
			if signalled(w) {
				t.Error("woken after it was taken")
			}
			time.Sleep(time.Millisecond)
			if i+1 < len(line) {
				if !signalled(line[i+1]) {
					t.Error("the new head does not know after a millisecond")
				}
				if n := line[i+1].Take(); n.Try || !n.Head {
					t.Errorf("news of the new head %+v", n)
				}
			}
		}
		if h.TakeHead("c", yes) || h.Waiting("c") {
			t.Error("somebody is left")
		}
		time.Sleep(2 * pubsub.Linger)
		synctest.Wait()
		if n := s.count(s.unsubs, "c"); n != 1 {
			t.Errorf("unsubscribed %d times after the last was taken", n)
		}
	})
}

// What is not taken stays as it was: a head that accept refuses, one that carries
// nothing, with a willing one behind it; shared and keyed waiters are never taken.
func TestTakeHeadRefused(t *testing.T) {
	bubble(t, func(t *testing.T, s *fakeServer, h *pubsub.Hub) {
		if h.TakeHead("c", yes) {
			t.Error("took from no topic")
		}
		shared := h.Join(all("c"), pubsub.Shared(), pubsub.Carry(1))
		keyed := h.Join(all("c"), pubsub.Keyed("k"), pubsub.Carry(1))
		if h.TakeHead("c", yes) {
			t.Error("took one that does not stand in line")
		}
		plain := h.Join(all("c"))
		willing := h.Join(all("c"), pubsub.Carry(2))
		synctest.Wait()
		if h.TakeHead("c", yes) {
			t.Error("took a head that carries nothing, or one behind it")
		}
		if !tries(plain) || signalled(willing) {
			t.Error("the line changed")
		}
		leave(plain)
		signalled(willing) // it is the head now
		s.publish("c", "0")
		if h.TakeHead("c", func(any) (pubsub.Holder, bool) { return pubsub.Holder{}, false }) {
			t.Error("took one that was refused")
		}
		if !tries(willing) || !willing.Take().Head {
			t.Error("a refusal changed the head")
		}
		if !h.TakeHead("c", yes) {
			t.Error("not taken")
		}
		leave(shared, keyed, willing)
	})
}

// A waiter is either taken or leaves, whichever comes first, and nobody is woken
// twice or never.
func TestTakeHeadBesideLeave(t *testing.T) {
	bubble(t, func(t *testing.T, _ *fakeServer, h *pubsub.Hub) {
		for range 500 {
			var wg sync.WaitGroup
			var mu sync.Mutex
			taken := map[int]bool{}
			line := []*pubsub.Waiter{h.Join(one("c"), pubsub.Carry(0)), h.Join(one("c"), pubsub.Carry(1))}
			synctest.Wait()
			wg.Go(func() { line[0].Leave(true, time.Time{}, pubsub.Holder{}) })
			wg.Go(func() {
				h.TakeHead("c", func(v any) (pubsub.Holder, bool) {
					mu.Lock()
					defer mu.Unlock()
					taken[v.(int)] = true
					return pubsub.Holder{}, true
				})
			})
			wg.Wait()
			if len(taken) != 1 {
				t.Fatalf("taken %v", taken)
			}
			if taken[0] && (!signalled(line[0]) || line[1].Take().Head != true) {
				t.Fatal("the first was taken: it wakes, and the second is the head")
			}
			if taken[1] && (!signalled(line[1]) || h.Waiting("c")) {
				t.Fatal("the first left and the second was taken: nobody waits")
			}
			leave(line...)
		}
	})
}

// A waiter's memory may be used again when it has left and nothing is being said about it.
func TestForgottenWaiters(t *testing.T) {
	bubble(t, func(t *testing.T, s *fakeServer, h *pubsub.Hub) {
		spec := one("c")
		var quiet, noticed pubsub.Waiter
		h.JoinLine(&noticed, &spec, member("first"), false)
		synctest.Wait()
		s.cut() // told in a log line about the first in line
		synctest.Wait()
		h.JoinLine(&quiet, &spec, member("second"), false)
		if quiet.Forgotten() {
			t.Error("forgotten while it stands in line")
		}
		leave(&quiet, &noticed)
		if !quiet.Forgotten() {
			t.Error("one that has left is not forgotten")
		}
		if noticed.Forgotten() {
			t.Error("a log line that is written without the hub's mutex may still ask it")
		}
		h.JoinLine(&quiet, &spec, member("third"), false)
		if n := quiet.Take(); quiet.Forgotten() || !n.Line || !n.Head {
			t.Errorf("memory that is used again: %+v", n)
		}
		leave(&quiet)
	})
}

type member string

func (m member) Logged() []any          { return []any{"member", string(m)} }
func (m member) Waits() observe.Waiting { return observe.Waiting{Owner: string(m)} }
