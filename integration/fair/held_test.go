package fair

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/fairlock"
	"github.com/redlatch/redlatch/integration/bed"
	"github.com/redlatch/redlatch/internal/testbed"
)

// handed takes a fair lock by being handed it.
func handed(t *testing.T, s *testbed.Server, l redlatch.Locker, opts ...redlatch.AcquireOption) redlatch.Hold {
	t.Helper()
	first := bed.Lock(t, t.Context(), bed.Client(t, s.Addr()).FairLock(name))
	waiting := bed.Async(t.Context(), l, opts...)
	queued(t, s, 1)
	bed.Unlock(t, first)
	a := bed.Get(t, waiting)
	if a.Err != nil {
		t.Fatal(a.Err)
	}
	return a.Hold
}

// A grant that is confirmed up to its lease does not lengthen a shorter fixed lease that re-entered it.
func TestConfirmationLeavesReentriesAlone(t *testing.T) {
	s := bed.Server(t)
	l := bed.Client(t, s.Addr()).FairLock(name)
	outer := handed(t, s, l)
	inner := bed.Lock(t, outer.Context(), l, redlatch.WithLease(3*time.Second))
	ends := inner.ValidUntil()
	bed.Eventually(t, "the confirmation", func() bool { return time.Until(outer.ValidUntil()) > 10*time.Second })
	if d := inner.ValidUntil().Sub(ends); d > 0 {
		t.Errorf("the inner hold's lease became %v longer", d)
	}
	_ = inner.Unlock(context.Background())
	bed.Unlock(t, outer)
}

// A hold that was handed over, which only the watchdog confirms, lasts for as long as it was asked for while its owner
// re-enters without a pause.
func TestReenteringInALoopKeepsAGrant(t *testing.T) {
	for what, opts := range map[string][]redlatch.AcquireOption{"fixed": {redlatch.WithLease(time.Minute)}, "renewed": nil} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			const skip = 2 * time.Second
			s := bed.Server(t)
			l := bed.Client(t, s.Addr()).FairLock(name, fairlock.WithSkipAfter(skip))
			h := handed(t, s, l, opts...)
			for end := time.Now().Add(2 * skip); time.Now().Before(end); {
				again := bed.Lock(t, h.Context(), l, redlatch.WithLease(100*time.Millisecond))
				_ = again.Unlock(context.Background()) // on a busy machine its own short lease may be over
			}
			if h.Context().Err() != nil {
				t.Errorf("the hold was lost: %v", context.Cause(h.Context()))
			}
			bed.Unlock(t, h)
		})
	}
}

// While the server has no memory, whoever waits for a fair lock does not sleep past
// the end of the holder's lease: the lock is handed over, which takes no more memory
// than the place did, and is a lock like any other; or the waiter hears of it.
func TestFairWaiterHearsOfNoMemory(t *testing.T) {
	s := bed.Server(t)
	c := bed.Client(t, s.Addr(), func(c *redlatch.Config) { c.LeaseTime = 2 * time.Second })
	holder := bed.Client(t, s.Addr())
	h := bed.Lock(t, t.Context(), holder.FairLock(name), redlatch.WithLease(3*time.Second))
	waiting := bed.Async(t.Context(), c.FairLock(name))
	queued(t, s, 1)
	s.Do(t, "CONFIG", "SET", "maxmemory", "1")
	<-h.Context().Done()
	r := bed.Get(t, waiting)
	if r.Err != nil {
		var server *redlatch.ServerError
		if !errors.As(r.Err, &server) {
			t.Errorf("%v, want what the server says", r.Err)
		}
		s.Do(t, "CONFIG", "SET", "maxmemory", "0")
		return
	}
	until := r.Hold.ValidUntil()
	bed.Eventually(t, "a renewal", func() bool {
		return r.Hold.ValidUntil().After(until.Add(2*time.Second)) || r.Hold.Context().Err() != nil
	})
	bed.Unlock(t, bed.Lock(t, r.Hold.Context(), c.FairLock(name)))
	bed.Unlock(t, r.Hold)
	s.Do(t, "CONFIG", "SET", "maxmemory", "0")
	if s.Int(t, "EXISTS", name) != 0 {
		t.Error("the lock is not free")
	}
}
