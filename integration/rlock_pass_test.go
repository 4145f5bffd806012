package integration

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/integration/bed"
	"github.com/redlatch/redlatch/internal/testbed"
)

// Goroutines of one process pass the lock on to each other: many turns cost few
// commands, and nobody is inside beside another one.
func TestRLockIsPassedOnInsideTheProcess(t *testing.T) {
	s := bed.Server(t)
	rlLoad(t, s)
	// A turn on a busy machine may take longer than the usual tenure, and would end it.
	c := rlClient(t, s.Addr(), func(c *redlatch.Config) { c.Tenure = 300 * time.Millisecond })
	before := s.CommandStats(t)
	var inside, turns atomic.Int32
	end := time.Now().Add(time.Second)
	var wg sync.WaitGroup
	for range 32 {
		wg.Go(func() {
			for time.Now().Before(end) || turns.Load() < 1000 { // each stall costs some commands
				h, err := c.RLock("l").Lock(t.Context())
				if err != nil {
					t.Error(err)
					return
				}
				if inside.Add(1) != 1 {
					t.Error("two inside")
				}
				turns.Add(1)
				inside.Add(-1)
				if err := h.Unlock(t.Context()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	scripts := s.CommandStats(t).Sub(before).Calls["evalsha"]
	t.Logf("%d turns, %d scripts", turns.Load(), scripts)
	if int(turns.Load()) < 4*int(scripts) {
		t.Errorf("%d turns cost %d scripts", turns.Load(), scripts)
	}
	if s.Int(t, "EXISTS", "l") != 0 {
		t.Error("the lock is still held")
	}
}

// After a broken connection nothing is passed on until the server has answered again, also if no
// command was under way when it broke: whoever answers now may be another server.
func TestNothingIsPassedOnAfterAQuietBreak(t *testing.T) {
	for _, breaks := range []bool{false, true} {
		s := bed.Server(t)
		rlLoad(t, s)
		p := testbed.NewProxy(t, s.Addr())
		c := rlClient(t, p.Addr(), func(c *redlatch.Config) { c.LeaseTime, c.Tenure = 30*time.Second, 10*time.Second })
		until := func(what string, done func() bool) {
			t.Helper()
			for deadline := time.Now().Add(20 * time.Second); !done(); time.Sleep(time.Millisecond) {
				if time.Now().After(deadline) {
					t.Fatal("it takes too long until", what)
				}
			}
		}
		before := s.CommandStats(t)
		h, err := c.RLock("l").Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		got := make(chan error, 1)
		ctx, leave := context.WithCancel(t.Context())
		defer leave()
		go func() {
			next, err := c.RLock("l").Lock(ctx)
			if err == nil {
				err = next.Unlock(context.Background())
			}
			got <- err
		}()
		until("the next one listens, and has looked again", func() bool {
			return s.CommandStats(t).Sub(before).Calls["evalsha"] >= 3 &&
				testbed.GoroutinesIn("(*acquisition).sleep") > 0 // it has the answer, too
		})
		if breaks {
			subs := s.CommandStats(t).Calls["subscribe"]
			p.Cut()
			until("it listens again", func() bool { return s.CommandStats(t).Calls["subscribe"] > subs })
		}
		s.Do(t, "DEL", "l") // the one that took over has never heard of it
		if err := h.Unlock(context.Background()); errors.Is(err, redlatch.ErrLeaseLost) != breaks {
			t.Errorf("broken %v: Unlock: %v", breaks, err)
		}
		if breaks {
			leave() // nobody tells it of a key that was deleted
		}
		if err := <-got; errors.Is(err, redlatch.ErrLeaseLost) == breaks {
			t.Errorf("broken %v: the next one: %v", breaks, err)
		}
	}
}

// Whoever is passed a lock gets the lease that it asked for, not the longer one of a holder before
// it: that one is released.
func TestALongerLeaseIsNotPassedOn(t *testing.T) {
	const leaseTime = 20 * time.Second
	for name, raise := range map[string]func(c *redlatch.Client, h redlatch.Hold) error{
		"Extend": func(_ *redlatch.Client, h redlatch.Hold) error { return h.Extend(context.Background(), time.Hour) },
		"a nested hold": func(c *redlatch.Client, h redlatch.Hold) error {
			inner, err := c.RLock("l").Lock(h.Context(), redlatch.WithLease(time.Hour))
			if err != nil {
				return err
			}
			return inner.Unlock(context.Background())
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := bed.Server(t)
			rlLoad(t, s)
			c := rlClient(t, s.Addr(), func(c *redlatch.Config) { c.LeaseTime, c.Tenure = leaseTime, leaseTime/3 })
			h, err := c.RLock("l").Lock(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if err := raise(c, h); err != nil {
				t.Fatal(err)
			}
			before := s.CommandStats(t)
			got := make(chan redlatch.Hold, 1)
			go func() {
				defer close(got)
				next, err := c.RLock("l").Lock(t.Context())
				if err != nil {
					t.Error(err)
					return
				}
				got <- next
			}()
			for deadline := time.Now().Add(20 * time.Second); s.CommandStats(t).Sub(before).Calls["evalsha"] < 2; time.Sleep(time.Millisecond) {
				if time.Now().After(deadline) {
					t.Fatal("nobody waits")
				}
			}
			if err := h.Unlock(t.Context()); err != nil {
				t.Fatal(err)
			}
			next := <-got
			if next == nil {
				return
			}
			if left := time.Until(next.ValidUntil()); left > leaseTime {
				t.Errorf("its hold is valid for %v", left)
			}
			if left := time.Duration(s.Int(t, "PTTL", "l")) * time.Millisecond; left > leaseTime {
				t.Errorf("the server keeps it for %v", left)
			}
			if err := next.Unlock(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}
