package pubsub_test

import (
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlatch/redlatch/internal/pubsub"
)

// A waiter tries again once its subscription is confirmed, not before; the
// message that came in between is not lost that way.
func TestConfirmationWakesTheHeadAlone(t *testing.T) {
	bubble(t, func(t *testing.T, s *fakeServer, h *pubsub.Hub) {
		s.confirmLate = time.Second
		first, second := h.Join(one("c")), h.Join(one("c"))
		if signalled(first) {
			t.Error("woken before the subscription stands")
		}
		if n := first.Take(); n.Confirmed || !n.Head || second.Take().Head {
			t.Errorf("news %+v", n)
		}
		time.Sleep(time.Second)
		if !tries(first) || !first.Take().Confirmed {
			t.Error("the head was not woken by the confirmation")
		}
		if signalled(second) {
			t.Error("the second in line was woken")
		}
		leave(first, second)
	})
}

func TestMessagesWakeInOrder(t *testing.T) {
	bubble(t, func(t *testing.T, s *fakeServer, h *pubsub.Hub) {
		var line []*pubsub.Waiter
		for range 5 {
			line = append(line, h.Join(one("c")))
		}
		tries(line[0]) // the confirmation
		for i, w := range line {
			if !s.publish("c", "0") {
				t.Fatal("not subscribed")
			}
			for j, other := range line[i:] {
				if got := tries(other); got != (j == 0) {
					t.Errorf("message %d: waiter %d woken: %v", i, i+j, got)
				}
			}
			w.Leave(false, time.Now().Add(time.Minute), pubsub.Holder{Owner: "holder"})
			if i+1 < len(line) {
				// The next is the head now: it looks, but need not ask at once.
				if !signalled(line[i+1]) {
					t.Error("the new head does not know")
				}
				if n := line[i+1].Take(); n.Try || !n.Head || n.Holder.Owner != "holder" || n.Expect.IsZero() {
					t.Errorf("news of the new head %+v", n)
				}
			}
		}
		if got := s.count(s.subs, "c"); got != 1 {
			t.Errorf("%d subscriptions", got)
		}
	})
}

// A waiter that gives up passes on what it was told and did not use, and makes
// the next one look when it was the head.
func TestWakeUpIsPassedOn(t *testing.T) {
	bubble(t, func(t *testing.T, s *fakeServer, h *pubsub.Hub) {
		first, second, third := h.Join(one("c")), h.Join(one("c")), h.Join(one("c"))
		tries(first)
		s.publish("c", "0") // first is signalled and does not take it
		first.Leave(false, time.Time{}, pubsub.Holder{})
		if !tries(second) {
			t.Error("a signal that was not taken is lost")
		}
		second.Leave(true, time.Time{}, pubsub.Holder{}) // gives up after taking it
		if !tries(third) {
			t.Error("nobody looks after a head that gave up")
		}
		fourth := h.Join(one("c"))
		fourth.Leave(true, time.Time{}, pubsub.Holder{}) // not the head: nobody needs to look
		if signalled(third) {
			t.Error("woken by one behind it")
		}
		leave(third)
		leave(third) // twice does nothing
	})
}

// What a waiter behind the head was told, a while ago perhaps, makes the head look earlier, and never
// later: it may be of a holder who has gone since, with a lease of an hour.
func TestAnOldAnswerDoesNotPutTheHeadOff(t *testing.T) {
	bubble(t, func(t *testing.T, _ *fakeServer, h *pubsub.Hub) {
		head, late := h.Join(one("c")), h.Join(one("c"))
		tries(head)
		dies := time.Now().Add(6 * time.Second)
		head.Expect(dies, pubsub.Holder{Owner: "now"})
		late.Expect(time.Now().Add(time.Hour), pubsub.Holder{Owner: "before"})
		if n := head.Take(); !n.Expect.Equal(dies) || n.Holder.Owner != "now" {
			t.Errorf("the head expects %q for %v", n.Holder.Owner, time.Until(n.Expect))
		}
		late.Expect(dies.Add(-time.Second), pubsub.Holder{Owner: "another"})
		if n := head.Take(); !n.Expect.Equal(dies.Add(-time.Second)) {
			t.Errorf("the head looks in %v only", time.Until(n.Expect))
		}
		head.Expect(dies.Add(time.Second), pubsub.Holder{Owner: "now"}) // it has looked itself
		if n := head.Take(); !n.Expect.Equal(dies.Add(time.Second)) {
			t.Errorf("the head looks in %v", time.Until(n.Expect))
		}
		leave(late, head)
	})
}

func TestSharedAndKeyedWaiters(t *testing.T) {
	bubble(t, func(t *testing.T, s *fakeServer, h *pubsub.Hub) {
		head, next := h.Join(all("c")), h.Join(all("c"))
		r1, r2 := h.Join(all("c"), pubsub.Shared()), h.Join(all("c"), pubsub.Shared())
		k1, k2 := h.Join(all("c"), pubsub.Keyed("k1")), h.Join(all("c"), pubsub.Keyed("k2"))
		synctest.Wait()
		for _, w := range []*pubsub.Waiter{head, r1, r2} {
			if !tries(w) {
				t.Error("not woken by the confirmation")
			}
		}
		if signalled(next) {
			t.Error("the second in line was woken")
		}
		for signalled(k1) || signalled(k2) { // what Join and the confirmation left
		}
		k1.Take()
		k2.Take()
		s.publish("c", "k1")
		s.publish("c", "k1")
		for i, w := range []*pubsub.Waiter{head, r1, r2} {
			if !tries(w) {
				t.Errorf("waiter %d was not woken", i)
			}
		}
		if !signalled(k1) {
			t.Error("the keyed waiter was not woken")
		}
		if n := k1.Take(); !slices.Equal(n.Payloads, []string{"k1", "k1"}) {
			t.Errorf("payloads %v", n.Payloads)
		}
		if signalled(k2) || signalled(next) {
			t.Error("others were woken")
		}
		leave(head, next, r1, r2, k1, k2)
	})
}

// A connection that leads to a server that was replaced is given up for a new one,
// at once, and who waits looks again; one that leads there already is not.
func TestRedial(t *testing.T) {
	bubble(t, func(t *testing.T, s *fakeServer, h *pubsub.Hub) {
		w := h.Join(one("a"))
		tries(w)
		old := s.link
		h.Redial()
		time.Sleep(20 * time.Millisecond)
		s.mu.Lock()
		if s.link == old || s.dials != 2 {
			t.Errorf("%d dials", s.dials)
		}
		s.down = true
		s.mu.Unlock()
		if !tries(w) || !w.Take().Confirmed {
			t.Error("the waiter was not woken by the new subscription")
		}
		s.cut()
		time.Sleep(time.Second) // between two tries to connect
		h.Redial()
		s.mu.Lock()
		s.down = false
		was := s.dials
		s.mu.Unlock()
		time.Sleep(10 * time.Second)
		if s.mu.Lock(); s.dials != was+1 {
			t.Errorf("%d dials after the outage", s.dials-was)
		}
		s.mu.Unlock()
		leave(w)
	})
}

// A connection that is ended because it leads to the wrong server is no loss to tell, also when that
// ends a command; one that ends by itself is.
func TestAPlannedEndIsNotTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lines []string
		s := newServer()
		h := pubsub.NewHub(s, func(msg string, _ ...any) { lines = append(lines, msg) })
		defer h.Wait()
		defer h.Close()
		s.confirmLate = time.Second
		w := h.Join(one("a"))
		ends := func(told int) {
			t.Helper()
			s.cut()
			time.Sleep(5 * time.Second)
			synctest.Wait()
			if len(lines) != told || !tries(w) {
				t.Errorf("told: %q, want %d", lines, told)
			}
		}
		time.Sleep(time.Second / 2) // it is being subscribed
		h.Redial()
		ends(0)
		h.Redial()
		ends(0)
		ends(1)
		leave(w)
	})
}

// When a slot moves, its topics follow to the other node; the rest stays.
func TestTopicsFollowTheirSlot(t *testing.T) {
	bubble(t, func(t *testing.T, s *fakeServer, h *pubsub.Hub) {
		var mu sync.Mutex
		home := "node1"
		s.where = func(uint16) string { mu.Lock(); defer mu.Unlock(); return home }
		w := h.Join(one("c"))
		tries(w)
		mu.Lock()
		home = "node2"
		mu.Unlock()
		s.cut()
		time.Sleep(time.Second)
		if !tries(w) || !w.Take().Confirmed {
			t.Fatal("not subscribed at the new place")
		}
		s.mu.Lock()
		node := s.link.node
		s.mu.Unlock()
		if node != "node2" || !s.publish("c", "0") || !tries(w) {
			t.Errorf("subscribed at %s", node)
		}
		leave(w)
	})
}

// The server ends a subscription by itself (a slot that moved): it is asked for
// again.
func TestDroppedSubscriptionComesBack(t *testing.T) {
	bubble(t, func(t *testing.T, s *fakeServer, h *pubsub.Hub) {
		w := h.Join(one("c"))
		tries(w)
		s.link.h.Dropped("c")
		if !tries(w) || s.count(s.subs, "c") != 2 {
			t.Errorf("subscribed %d times", s.count(s.subs, "c"))
		}
		leave(w)
	})
}
