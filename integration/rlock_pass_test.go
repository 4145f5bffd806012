package integration

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/testbed"
)

// Goroutines of one process pass the lock on to each other: many turns cost few
// commands, and nobody is inside beside another one.
func TestRLockIsPassedOnInsideTheProcess(t *testing.T) {
	s := rlServer(t)
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

// Several clients, short waits, contexts that end at any moment, nested holds,
// explicit owners with several waiters, fixed leases and fenced locks in between:
// never two inside, and nothing stays.
func TestRLockPassedOnExcludes(t *testing.T) {
	for _, tenure := range []time.Duration{2 * time.Millisecond, 20 * time.Millisecond} {
		t.Run(tenure.String(), func(t *testing.T) {
			s := rlServer(t)
			var inside atomic.Pointer[string]
			var turns, ended atomic.Int32
			end := time.Now().Add(3 * time.Second)
			var wg sync.WaitGroup
			for range 3 {
				c := rlClient(t, s.Addr(), rlLease(10*time.Second), func(c *redlatch.Config) { c.Tenure = tenure })
				for i := range 12 {
					wg.Go(func() {
						for time.Now().Before(end) {
							ctx, cancel := context.WithCancel(context.Background())
							owner := "" // of those who may be inside together
							var opts []redlatch.Option
							var lease []redlatch.AcquireOption
							switch rand.N(6) {
							case 0:
								time.AfterFunc(rand.N(8*time.Millisecond), cancel)
							case 1:
								owner = c.ID() + string(rune('a'+i%2))
								ctx = redlatch.WithOwner(ctx, owner)
							case 2:
								lease = append(lease, redlatch.WithLease(20*time.Second))
							case 3:
								opts = append(opts, redlatch.Fenced())
							}
							me := owner
							if me == "" {
								me = string(rune(i)) + c.ID() + time.Now().String()
							}
							l := c.RLock("l", opts...)
							h, err := l.Lock(ctx, lease...)
							if err != nil {
								if !waited(err) {
									t.Error(err)
								}
								ended.Add(1)
								cancel()
								continue
							}
							if owner == "" { // fellows of an explicit owner are inside together
								if was := inside.Swap(&me); was != nil {
									t.Errorf("%q beside %q", me, *was)
								}
							} else if was := inside.Load(); was != nil {
								t.Errorf("%q beside %q", me, *was)
							}
							if owner == "" && rand.N(4) == 0 {
								nested, err := l.Lock(h.Context())
								switch {
								case err == nil:
									if err := nested.Unlock(context.Background()); err != nil {
										t.Error(err)
									}
								case ctx.Err() == nil:
									t.Error(err)
								}
							}
							if owner == "" {
								if !inside.CompareAndSwap(&me, nil) {
									t.Error("somebody came in beside the holder")
								}
							}
							turns.Add(1)
							if err := h.Unlock(context.Background()); err != nil {
								t.Error(err)
							}
							cancel()
						}
					})
				}
			}
			wg.Wait()
			t.Logf("%d turns, %d gave up", turns.Load(), ended.Load())
			rlUntil(t, "nothing held", func() bool { return s.Int(t, "EXISTS", "l") == 0 })
		})
	}
}

// After a broken connection nothing is passed on until the server has answered again, also if no
// command was under way when it broke: whoever answers now may be another server.
func TestNothingIsPassedOnAfterAQuietBreak(t *testing.T) {
	for _, breaks := range []bool{false, true} {
		s := rlServer(t)
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
			s := rlServer(t)
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
