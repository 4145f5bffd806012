package multi

import (
	"context"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/integration/bed"
)

// TestPatienceGoesByTheLeaseAskedFor: a MultiLock that has got one fair lock queues for the other
// for a tenth of the lease at most: of the one that the caller asked for, or it would hold the
// first for a good part of it, or beyond its end, for nothing.
func TestPatienceGoesByTheLeaseAskedFor(t *testing.T) {
	t.Parallel()
	const fixed = 4 * time.Second
	s := bed.Server(t)
	c, other := bed.Client(t, s.Addr(), lease(time.Minute)), bed.Client(t, s.Addr(), lease(time.Minute))
	fair := map[string]redlatch.Member{"f": other.FairLock("f"), "g": other.FairLock("g")}
	busy := map[string]redlatch.Hold{"f": bed.Lock(t, t.Context(), fair["f"]), "g": bed.Lock(t, t.Context(), fair["g"])}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	got := bed.Async(ctx, redlatch.MultiLock(c.FairLock("f"), c.FairLock("g")), redlatch.WithLease(fixed))
	for turn := range 12 { // its bed.Patience grows from round to round; a place that it just left costs a turn
		var name string
		bed.Eventually(t, "the MultiLock waits for one of them", func() bool {
			for _, name = range []string{"f", "g"} {
				if st, err := other.FairLock(name).State(t.Context()); err == nil && st.QueueLength == 1 {
					return true
				}
			}
			return false
		})
		bed.Unlock(t, busy[name])
		began := time.Now()
		busy[name] = bed.Lock(t, t.Context(), fair[name])
		if took := time.Since(began); took > fixed*3/4 {
			t.Errorf("turn %d: it held %s for %v of a lease of %v, and waited", turn, name, took, fixed)
		}
	}
	cancel()
	want(t, (<-got).Err, context.Canceled)
	for _, h := range busy {
		bed.Unlock(t, h)
	}
}
