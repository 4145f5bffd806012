package promises

import (
	"math"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/integration/bed"
)

// A wait or lease that is not refused works, up to the largest value that Go has.
func TestTheLongestWaitsAndLeases(t *testing.T) {
	t.Parallel()
	besideEachOther(t, nil, cases{
		"the largest ones": func(t *testing.T, x *bed.Site, name string) {
			for _, lease := range []time.Duration{math.MaxInt64, math.MaxInt64 - time.Millisecond, math.MaxInt64 / 2} {
				h, err := x.Lock(name).TryLock(t.Context(), math.MaxInt64, lease)
				if err != nil {
					t.Fatalf("a wait and lease of %v: %v", lease, err)
				}
				lasts := func(h redlatch.Hold) {
					t.Helper()
					long := asked(x, 30*365*24*time.Hour)
					if left, until := stands(t, x, name), time.Until(h.ValidUntil()); left < long-time.Minute/4 || until < long-time.Minute/4 {
						t.Errorf("a lease of %v: the lock lasts for %v, the hold for %v", lease, left, until)
					}
				}
				lasts(h)
				before := x.Servers[0].CommandStats(t)
				other, err := x.Beside(name).TryLock(t.Context(), 300*time.Millisecond, 0)
				if want(t, "the other's TryLock", err, redlatch.ErrNotAcquired); err == nil {
					bed.Unlock(t, other)
				}
				if n := x.Servers[0].CommandStats(t).Sub(before).Calls["evalsha"]; n > 300 { // of all cases beside
					t.Errorf("%d commands to wait for 300 ms", n)
				}
				until := h.ValidUntil()
				if err := h.Extend(t.Context(), time.Minute); err != nil || !quorum(x) && h.ValidUntil().Before(until) {
					t.Errorf("after a shorter Extend valid until %v, before %v: %v", h.ValidUntil(), until, err)
				}
				bed.Unlock(t, h)
				extended := bed.Lock(t, t.Context(), x.Lock(name), redlatch.WithLease(time.Minute))
				want(t, "Extend", extended.Extend(t.Context(), lease), nil)
				lasts(extended)
				bed.Unlock(t, extended)
			}
		},
	})
}

// The shortest lease is one: nobody enters before its holder counts it as over.
func TestTheShortestLease(t *testing.T) {
	t.Parallel()
	besideEachOther(t, nil, cases{
		"a millisecond": func(t *testing.T, x *bed.Site, name string) {
			l, other := x.Lock(name), x.Beside(name)
			for range 300 { // the server's clock is between two milliseconds, more or less
				h, err := l.TryLock(t.Context(), 0, time.Millisecond)
				if err != nil {
					continue // its answer was too late
				}
				if next, err := other.TryLock(t.Context(), 0, 0); err == nil {
					if early := time.Until(h.ValidUntil()); early > 0 && h.Context().Err() == nil {
						t.Errorf("another one is inside, the hold counts for %v more", early)
					}
					bed.Unlock(t, next)
				}
				_ = h.Unlock(t.Context()) // lost or not
			}
		},
	})
}
