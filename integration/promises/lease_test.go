package promises

import (
	"context"
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/fairlock"
	"github.com/redlatch/redlatch/integration/bed"
	"github.com/redlatch/redlatch/internal/testbed"
)

// A lease of its own is kept to: the watchdog renews what has none, Extend only lengthens, nothing but the last
// unlock takes a lease back, and a lease or wait that can't be meant is refused before anything is asked.
func TestLeases(t *testing.T) {
	t.Parallel()
	besideEachOther(t, []func(*redlatch.Config){short}, cases{
		"the watchdog renews, whatever becomes of inner holds and of the caller's context": func(t *testing.T, x *bed.Site, name string) {
			held := bed.Lock(t, t.Context(), x.Lock(name))
			waits := bed.Async(t.Context(), x.Kind.Excluded(x.Through, name)) // beyond the holder's first lease
			outer := bed.Lock(t, t.Context(), x.Lock(name+"outer"))
			for range 3 {
				bed.Unlock(t, bed.Lock(t, outer.Context(), x.Lock(name+"outer")))
			}
			ctx, leave := context.WithCancel(t.Context())
			left := bed.Lock(t, ctx, x.Lock(name+"left"))
			leave()
			ended(t, left, context.Canceled)
			for end := held.ValidUntil().Add(time.Second); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
				bed.Alive(t, held)
				bed.Alive(t, outer)
				for _, n := range []string{name, name + "outer", name + "left"} {
					refused(t, x.Beside(n))
				}
			}
			if len(waits) > 0 {
				t.Fatalf("a wait without a limit ended: %+v", <-waits)
			}
			want(t, "Unlock with a context that has ended", left.Unlock(ctx), nil)
			bed.Unlock(t, outer)
			bed.Unlock(t, held)
			bed.Unlock(t, bed.Hold(t, waits))
		},
		"a fixed lease is not remembered by the next hold": func(t *testing.T, x *bed.Site, name string) {
			bed.Unlock(t, bed.Lock(t, t.Context(), x.Lock(name), redlatch.WithLease(time.Hour)))
			h := bed.Lock(t, t.Context(), x.Lock(name))
			if first, last := x.Left(t, name); first <= 0 || last > 6*time.Second {
				t.Errorf("between %v and %v are left of its lease", first, last)
			}
			bed.Unlock(t, h)
		},
		"nested holds last as long as the one that ends last": func(t *testing.T, x *bed.Site, name string) {
			if x.Kind.Servers > 2 {
				return // no copy of a quorum is asked for more than LeaseTime
			}
			l := x.Lock(name)
			left := func(want time.Duration) {
				t.Helper()
				if first, last := x.Left(t, name); first < want-slack || last > want {
					t.Errorf("between %v and %v are left, want %v", first, last, want)
				}
			}
			atMost := func(h redlatch.Hold, most time.Duration) {
				t.Helper()
				testbed.AtMost(t, time.Until(h.ValidUntil()), most, "a hold is valid for")
			}
			outer := bed.Lock(t, t.Context(), l, redlatch.WithLease(time.Minute))
			left(time.Minute)
			shorter := bed.Lock(t, outer.Context(), l, redlatch.WithLease(10*time.Second))
			left(time.Minute) // not shortened
			longer := bed.Lock(t, outer.Context(), l, redlatch.WithLease(5*time.Minute))
			left(5 * time.Minute) // not added up
			atMost(outer, time.Minute)
			bed.Unlock(t, longer)
			left(5 * time.Minute) // nothing but the last unlock takes it back
			atMost(outer, time.Minute)
			watched := bed.Lock(t, context.WithoutCancel(outer.Context()), l)
			bed.Unlock(t, outer)
			left(5 * time.Minute)
			atMost(watched, time.Minute)
			testbed.Must(t, watched.Extend(t.Context(), 10*time.Minute))
			bed.Unlock(t, shorter)
			left(10 * time.Minute) // the unlock of another hold keeps what Extend promised
			testbed.AtLeast(t, time.Until(watched.ValidUntil()), 9*time.Minute, "the extended hold is valid for")
			bed.Unlock(t, watched)
		},
		"Extend lengthens and never shortens": func(t *testing.T, x *bed.Site, name string) {
			h := bed.Lock(t, t.Context(), x.Lock(name), redlatch.WithLease(2*time.Second))
			first := h.ValidUntil()
			testbed.Must(t, h.Extend(t.Context(), 4*time.Second))
			second := h.ValidUntil()
			testbed.AtLeast(t, second.Sub(first), time.Second, "extended by")
			testbed.Must(t, h.Extend(t.Context(), time.Millisecond))
			if h.ValidUntil().Before(second) {
				t.Errorf("shortened by %v", second.Sub(h.ValidUntil()))
			}
			for _, bad := range []time.Duration{0, -1, time.Microsecond} {
				want(t, "Extend by what can't be meant", h.Extend(t.Context(), bad), redlatch.ErrInvalidOption)
			}
			ctx, leave := context.WithCancel(t.Context())
			leave()
			want(t, "Extend with an ended context", h.Extend(ctx, time.Second), context.Canceled)
			refused(t, x.Beside(name))
			bed.Unlock(t, h)
			want(t, "Extend after Unlock", h.Extend(t.Context(), time.Second), redlatch.ErrNotHeld)
		},
		"what can't be meant is refused": func(t *testing.T, x *bed.Site, name string) {
			l := x.Lock(name)
			over, leave := context.WithCancel(t.Context())
			leave() // the value is wrong whether or not ctx has ended
			for _, bad := range []struct{ wait, lease time.Duration }{
				{-1, 0}, {math.MinInt64, 0}, {0, -1}, {0, math.MinInt64}, {0, 1}, {0, time.Millisecond - 1}, {-1, -1},
			} {
				for _, ctx := range []context.Context{t.Context(), over} {
					_, err := l.TryLock(ctx, bad.wait, bad.lease)
					if !errors.Is(err, redlatch.ErrInvalidOption) || errors.Is(err, redlatch.ErrNotAcquired) {
						t.Errorf("TryLock(%v, %v): %v", bad.wait, bad.lease, err)
					}
				}
			}
			_, err := l.Lock(t.Context(), redlatch.WithLease(-1))
			want(t, "Lock with a lease of -1", err, redlatch.ErrInvalidOption)
			for _, bad := range []time.Duration{-time.Second, 0, fairlock.MinSkipAfter - 1, math.MaxInt64} {
				_, err := x.Kind.New(x.Through, name, redlatch.WithSkipAfter(bad)).TryLock(t.Context(), 0, 0)
				want(t, fmt.Sprint("a skip time of ", bad), err, redlatch.ErrInvalidOption)
			}
			if x.Kind.Queues {
				bed.Unlock(t, bed.Lock(t, t.Context(), x.Kind.New(x.Through, name, redlatch.WithSkipAfter(fairlock.MinSkipAfter))))
			}
		},
	})
}

// An outage that is shorter than the lease costs nothing: a renewal that failed is tried again until the deadline, and
// scripts that the server has forgotten are sent again; a renewal that arrives after the unlock makes nobody's lease longer.
func TestRenewals(t *testing.T) {
	t.Parallel()
	const lease = 10 * time.Second // six are left for a retry and for a stall when the outage is over
	overKinds(t, []func(*redlatch.Config){func(c *redlatch.Config) { c.LeaseTime = lease }}, cases{
		"an outage that is shorter than the lease": func(t *testing.T, x *bed.Site, name string) {
			h := bed.Lock(t, t.Context(), x.Lock(name))
			for range 2 {
				before := h.ValidUntil()
				cutOff(x)
				bed.Eventually(t, "a renewal that fails", func() bool { return time.Until(h.ValidUntil()) < lease*6/10 })
				admit(t, x)
				bed.Eventually(t, "a renewal", func() bool { return h.ValidUntil().After(before.Add(lease / 10)) })
				bed.Alive(t, h)
			}
			refused(t, x.Beside(name))
			bed.Unlock(t, h)
		},
		"the scripts are gone before each command": func(t *testing.T, x *bed.Site, name string) {
			flush := func() { t.Helper(); onAll(t, x, "SCRIPT", "FLUSH") }
			flush()
			h := bed.Lock(t, t.Context(), x.Lock(name))
			flush()
			inner := bed.Lock(t, h.Context(), x.Lock(name))
			flush()
			before := h.ValidUntil()
			bed.Eventually(t, "a renewal", func() bool { return h.ValidUntil().After(before) })
			flush()
			_, err := x.Lock(name).(operated).State(t.Context())
			want(t, "State", err, nil)
			flush()
			bed.Unlock(t, inner)
			flush()
			bed.Unlock(t, h)
			flush()
			_, err = x.Lock(name).(operated).ForceUnlock(t.Context())
			want(t, "ForceUnlock", err, nil)
		},
		"a renewal that arrives late": func(t *testing.T, x *bed.Site, name string) {
			h := bed.Lock(t, t.Context(), x.Lock(name))
			copies := make([]*testbed.Trap, len(x.Proxies))
			for i, p := range x.Proxies {
				copies[i] = p.CopyRequest(bed.Of(name))
			}
			for _, c := range copies {
				c.Wait(t) // nothing but a renewal is sent
			}
			bed.Unlock(t, h)
			next := bed.Lock(t, t.Context(), x.Beside(name), redlatch.WithLease(2*time.Second))
			for _, c := range copies {
				c.DeliverAll(t)
			}
			if _, last := x.Left(t, name); last > 2*time.Second {
				t.Errorf("it made the next one's lease %v", last)
			}
			ended(t, next, redlatch.ErrLeaseLost)
			want(t, "Unlock", next.Unlock(t.Context()), redlatch.ErrLeaseLost)
		},
	})
}
