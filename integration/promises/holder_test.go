package promises

import (
	"strings"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/integration/bed"
	"github.com/redlatch/redlatch/internal/testbed"
)

// A process that dies keeps others out until its lease ends, no longer; one that stands still for less than its
// lease keeps the lock; one that stands still for longer is told as soon as it runs again, and its Unlock
// leaves the next one's hold alone.
func TestAHolderThatDiesOrStandsStill(t *testing.T) {
	t.Parallel()
	const lease = 9 * time.Second // two thirds of it are more than a stall of the machine
	start := func(t *testing.T, x *bed.Site, name string, lease time.Duration) (*bed.Worker, int) {
		t.Helper()
		w := bed.Spawn(t, bed.Setup{Addrs: x.Addrs(), Lease: lease})
		return w, w.Lock(t, bed.Command{Kind: x.Kind.Name, Name: name})
	}
	besideEachOther(t, nil, cases{
		"is killed": func(t *testing.T, x *bed.Site, name string) {
			w, _ := start(t, x, name, lease)
			next := begun(t, t.Context(), x, name, x.Kind.Excluded(x.Through, name))
			w.Kill(t)
			asking := time.Now()
			first, last := x.Left(t, name)
			soonest, latest := asking.Add(first-2*time.Millisecond), time.Now().Add(last)
			a := entered(t, next)
			testbed.AtMost(t, soonest.Sub(a.At), 0, "before the end of the lease the next one entered by")
			testbed.AtMost(t, a.At.Sub(latest), slack, "after the end of the lease the next one entered by")
			bed.Unlock(t, a.Hold)
		},
		"stands still for longer than its lease": func(t *testing.T, x *bed.Site, name string) {
			w, id := start(t, x, name, lease/4)
			w.Freeze(t)
			next := bed.Lock(t, t.Context(), x.Beside(name))
			w.Thaw(t)
			if got := w.Await(t, id, "ended").Text; !strings.Contains(got, " lost (") {
				t.Errorf("its hold ended with %q", got)
			}
			w.Start(t, bed.Command{ID: id, Do: "unlock"})
			if got := w.Await(t, id, "failed").Text; !strings.Contains(got, " lost (") {
				t.Errorf("its Unlock said %q", got)
			}
			untouched(t, x, name, next)
			bed.Unlock(t, next)
			bed.End(t, w)
		},
		"stands still for less": func(t *testing.T, x *bed.Site, name string) {
			w, id := start(t, x, name, lease)
			renewed := func() bool { first, _ := x.Left(t, name); return first > lease*9/10 }
			for range 2 {
				bed.Eventually(t, "a renewal", renewed)
				time.Sleep(lease/3 - lease/10) // so that the next one is due while it stands still
				w.Freeze(t)
				time.Sleep(lease * 4 / 10)
				w.Thaw(t)
				bed.Eventually(t, "a renewal, not a loss", renewed)
			}
			refused(t, x.Beside(name))
			w.Unlock(t, id) // fails if it was told of a loss
			bed.End(t, w)
		},
	})
}

// untouched fails if somebody took away or shortened the hold.
func untouched(t *testing.T, x *bed.Site, name string, h redlatch.Hold) {
	t.Helper()
	if err := h.Extend(t.Context(), time.Millisecond); err != nil {
		t.Errorf("the next one's hold: %v", err)
	}
	bed.Alive(t, h)
	refused(t, x.Lock(name))
}
