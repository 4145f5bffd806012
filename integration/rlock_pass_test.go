package integration

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/integration/bed"
	"github.com/redlatch/redlatch/internal/testbed"
)

// next lets the next one of the process wait, and returns when it sleeps.
func next(ctx context.Context, t *testing.T, l redlatch.Locker) (got <-chan bed.Attempt) {
	t.Helper()
	testbed.Mark(t.Name(), func() { got = bed.Async(ctx, l) })
	bed.Eventually(t, "the next one sleeps", func() bool { return testbed.MarkedIn(t.Name(), "(*acquisition).sleep") == 1 })
	return got
}

// Goroutines of one process pass the lock on to each other: many turns cost few
// commands, and nobody is inside beside another one.
func TestRLockIsPassedOnInsideTheProcess(t *testing.T) {
	s := bed.Loaded(t)
	// A turn on a busy machine may take longer than the usual tenure, and would end it.
	c := rlClient(t, s.Addr(), func(c *redlatch.Config) { c.Tenure = 300 * time.Millisecond })
	before := s.CommandStats(t)
	var inside, turns atomic.Int32
	end := time.Now().Add(time.Second)
	var wg sync.WaitGroup
	for range 32 {
		wg.Go(func() {
			for time.Now().Before(end) || turns.Load() < 1000 { // each stall costs some commands
				err := c.RLock("l").Do(t.Context(), func(context.Context) error {
					testbed.Equal(t, inside.Add(1), 1, "who are inside")
					turns.Add(1)
					inside.Add(-1)
					return nil
				})
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	scripts := s.CommandStats(t).Sub(before).Calls["evalsha"]
	t.Logf("%d turns, %d scripts", turns.Load(), scripts)
	testbed.AtLeast(t, int(turns.Load()), 4*int(scripts), "turns, four times as many as", scripts, "scripts")
}

// Whoever is passed a lock gets the lease that it asked for, not the longer one of a holder before
// it: that one is released.
func TestALongerLeaseIsNotPassedOn(t *testing.T) {
	const leaseTime = 20 * time.Second
	for name, raise := range map[string]func(l redlatch.Locker, h redlatch.Hold) error{
		"Extend": func(_ redlatch.Locker, h redlatch.Hold) error { return h.Extend(context.Background(), time.Hour) },
		"a nested hold": func(l redlatch.Locker, h redlatch.Hold) error {
			inner, err := l.Lock(h.Context(), redlatch.WithLease(time.Hour))
			if err != nil {
				return err
			}
			return inner.Unlock(context.Background())
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := bed.Loaded(t)
			c := rlClient(t, s.Addr(), func(c *redlatch.Config) { c.LeaseTime, c.Tenure = leaseTime, leaseTime/3 })
			h := bed.Lock(t, t.Context(), c.RLock("l"))
			testbed.Must(t, raise(c.RLock("l"), h))
			got := next(t.Context(), t, c.RLock("l"))
			bed.Unlock(t, h)
			passed := bed.Hold(t, got)
			testbed.AtMost(t, time.Until(passed.ValidUntil()), leaseTime, "its hold is valid for")
			testbed.AtMost(t, time.Duration(s.Int(t, "PTTL", "l"))*time.Millisecond, leaseTime, "the server keeps it for")
			bed.Unlock(t, passed)
		})
	}
}
