package multi

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/testbed"
)

// A caller whose context ends in the moment in which the members are there gets a
// hold that unlocks all of them: nothing of it is left to the watchdog.
func TestContextEndsAsTheLastMemberIsTaken(t *testing.T) {
	list := servers(t, 3)
	cs := clients(t, addrs(list), lease(time.Minute))
	for _, tc := range []struct {
		name string
		lock redlatch.Member
	}{
		{"one node", redlatch.MultiLock(plain(cs[0], "a", "b")...)},
		{"two nodes", redlatch.MultiLock(cs[0].RLock("a"), cs[1].RLock("b"))},
		{"quorum", redlatch.QuorumLock(copies(cs, "a")...)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			held := 0
			for i := range 300 {
				ctx, cancel := context.WithCancel(t.Context())
				time.AfterFunc(time.Duration(i%60)*25*time.Microsecond, cancel)
				h, err := tc.lock.Lock(ctx)
				if err == nil {
					held++
					if err := h.Unlock(context.Background()); err != nil {
						t.Fatalf("round %d: Unlock: %v", i, err)
					}
				} else if !errors.Is(err, context.Canceled) {
					t.Fatalf("round %d: %v", i, err)
				}
				cancel()
			}
			t.Logf("%d of 300 were held", held)
			for _, s := range list {
				eventually(t, "nothing is held", func() bool { return len(s.List(t, "KEYS", "[ab]")) == 0 })
			}
		})
	}
}

// A caller whose context ends while the last copies of a quorum are waited for gets a hold that
// unlocks all of them, or nothing.
func TestContextEndsInTheGraceOfAQuorum(t *testing.T) {
	list := servers(t, 3)
	proxy := testbed.NewProxy(t, list[2].Addr())
	cs := clients(t, []string{list[0].Addr(), list[1].Addr(), proxy.Addr()}, lease(time.Minute))
	q := redlatch.QuorumLock(copies(cs, "a")...)
	h, err := q.Lock(t.Context()) // each server is known from here on
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Unlock(t.Context()); err != nil {
		t.Fatal(err)
	}
	proxy.Delay(testbed.Requests, 20*time.Millisecond)
	for i := range 40 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(500+i*200)*time.Microsecond)
		h, err := q.Lock(ctx)
		if err == nil {
			<-ctx.Done()
			if err := h.Unlock(context.Background()); err != nil {
				t.Fatal(err)
			}
		}
		cancel()
	}
	for _, s := range list {
		eventually(t, "nothing is held", func() bool { return len(s.List(t, "KEYS", "a")) == 0 })
	}
}

// Whoever is told by Extend that the lock is lost finds the hold's context ended.
func TestHoldHasEndedWhenExtendSaysSo(t *testing.T) {
	s := server(t)
	c := clients(t, []string{s.Addr()})[0]
	for what, l := range map[string]redlatch.Member{
		"quorum": redlatch.QuorumLock(c.RLock("q")), "two at once": redlatch.MultiLock(plain(c, "q", "r")...),
	} {
		for range 50 {
			h := mustLock(t, t.Context(), l)
			s.Do(t, "DEL", "q")
			err := h.Extend(t.Context(), time.Second)
			want(t, err, redlatch.ErrLeaseLost)
			if cause := context.Cause(h.Context()); !errors.Is(cause, redlatch.ErrLeaseLost) {
				t.Fatalf("%s: %v, and the hold's context: %v", what, err, cause)
			}
			_ = h.Unlock(t.Context())
		}
	}
}
