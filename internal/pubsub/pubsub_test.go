package pubsub_test

import (
	"errors"
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
		leave(first)
		leave(second)
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
		leave(late)
		leave(head)
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
		for _, w := range []*pubsub.Waiter{head, next, r1, r2, k1, k2} {
			leave(w)
		}
	})
}

// A connection that breaks loses messages: once it stands again, those who may
// have missed one try.
func TestReconnectWakes(t *testing.T) {
	bubble(t, func(t *testing.T, s *fakeServer, h *pubsub.Hub) {
		a, b := h.Join(one("a")), h.Join(one("b"))
		behind := h.Join(one("a"))
		shared := h.Join(all("c"), pubsub.Shared())
		for _, w := range []*pubsub.Waiter{a, b, shared} {
			tries(w)
		}
		for round := range 5 {
			s.mu.Lock()
			s.down = true
			s.mu.Unlock()
			s.cut()
			synctest.Wait()
			if a.Take().Confirmed {
				t.Error("a subscription without a connection counts as standing")
			}
			time.Sleep(10 * time.Second) // several tries in vain
			s.mu.Lock()
			s.down = false
			s.mu.Unlock()
			time.Sleep(2 * time.Second) // the pause between tries is at most 1.5 s
			for name, w := range map[string]*pubsub.Waiter{"a": a, "b": b, "shared": shared} {
				if !tries(w) || !w.Take().Confirmed {
					t.Errorf("round %d: %s was not woken", round, name)
				}
			}
			if signalled(behind) {
				t.Error("one behind the head was woken")
			}
		}
		s.mu.Lock()
		if s.dials > 5*30 {
			t.Errorf("%d dials in five outages of 10 s", s.dials)
		}
		s.mu.Unlock()
		for _, w := range []*pubsub.Waiter{a, behind, b, shared} {
			leave(w)
		}
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

// A refused subscription is its waiters' error, not that of others, and is asked
// for again by those who come later.
func TestRefusedSubscription(t *testing.T) {
	bubble(t, func(t *testing.T, s *fakeServer, h *pubsub.Hub) {
		s.refused["bad"] = true
		bad, behind, good := h.Join(one("bad")), h.Join(one("bad")), h.Join(one("good"))
		for _, w := range []*pubsub.Waiter{bad, behind} {
			if !signalled(w) {
				t.Error("not told")
			}
			if err := w.Take().Err; !errors.Is(err, pubsub.ErrRefused) {
				t.Errorf("error %v", err)
			}
		}
		if !tries(good) || good.Take().Err != nil {
			t.Error("another channel suffers")
		}
		leave(bad)
		leave(behind)
		s.mu.Lock()
		s.refused["bad"] = false
		s.mu.Unlock()
		again := h.Join(one("bad"))
		if !tries(again) || again.Take().Err != nil {
			t.Error("the permission was given and not asked for again")
		}
		leave(again)
		leave(good)
	})
}

// A subscription outlives its last waiter for a while, and no longer.
func TestSubscriptionLingers(t *testing.T) {
	bubble(t, func(t *testing.T, s *fakeServer, h *pubsub.Hub) {
		for range 20 {
			w := h.Join(one("c"))
			if !tries(w) {
				t.Fatal("a waiter that finds a subscription must look at once")
			}
			leave(w)
			time.Sleep(pubsub.Linger - time.Millisecond)
		}
		if n := s.count(s.subs, "c"); n != 1 {
			t.Errorf("%d subscriptions", n)
		}
		time.Sleep(2 * time.Millisecond)
		synctest.Wait()
		if n := s.count(s.unsubs, "c"); n != 1 {
			t.Errorf("%d × unsubscribed", n)
		}
	})
}

// A waiter that comes at the very moment at which the subscription is dropped is
// confirmed anew.
func TestWaiterBesideTheEndOfASubscription(t *testing.T) {
	for range 50 {
		bubble(t, func(t *testing.T, s *fakeServer, h *pubsub.Hub) {
			w := h.Join(one("c"))
			tries(w)
			leave(w)
			time.Sleep(pubsub.Linger) // the drop and the Join below run at the same instant
			w = h.Join(one("c"))
			synctest.Wait()
			time.Sleep(time.Millisecond)
			if n := w.Take(); !n.Confirmed || !n.Try {
				t.Fatalf("news %+v: the waiter would poll for ever", n)
			}
			if !s.publish("c", "0") || !tries(w) {
				t.Fatal("the message is lost")
			}
			leave(w)
		})
	}
}

// The same with a waiter's own channel, while the connection is busy.
func TestChannelWantedAgainBeforeItWasUnsubscribed(t *testing.T) {
	bubble(t, func(t *testing.T, s *fakeServer, h *pubsub.Hub) {
		first := h.Join(all("c"), pubsub.Keyed("k1", "own"))
		synctest.Wait()
		s.mu.Lock()
		s.confirmLate = time.Second
		s.mu.Unlock()
		busy := h.Join(one("d"))
		synctest.Wait() // the connection's goroutine waits for d
		leave(first)
		again := h.Join(all("c"), pubsub.Keyed("k2", "own"))
		if again.Take().Confirmed {
			t.Error("confirmed by a subscription that is about to end")
		}
		time.Sleep(5 * time.Second)
		if n := again.Take(); !n.Confirmed {
			t.Errorf("news %+v: never confirmed", n)
		}
		leave(again)
		leave(busy)
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

// Close ends everything, also a Subscribe that is never answered and a server
// that can't be reached.
func TestClose(t *testing.T) {
	for name, prepare := range map[string]func(s *fakeServer){
		"idle":        func(*fakeServer) {},
		"unanswered":  func(s *fakeServer) { s.confirmLate = time.Hour },
		"unreachable": func(s *fakeServer) { s.down = true },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newServer()
				prepare(s)
				h := pubsub.NewHub(s, nil)
				w := h.Join(one("c"))
				time.Sleep(time.Second)
				began := time.Now()
				h.Close()
				h.Wait()
				if took := time.Since(began); took > 0 {
					t.Errorf("Close took %v", took)
				}
				late := h.Join(one("d")) // does nothing, and harms nobody
				leave(late)
				leave(w)
			})
		})
	}
}
