package promises

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/integration/bed"
	"github.com/redlatch/redlatch/internal/testbed"
)

// A hold counts for no longer than the lock stands, and for as long as its holder was promised, whatever he does
// and whatever becomes of the server.
func TestAHoldInTrouble(t *testing.T) {
	t.Parallel()
	const lease = 2 * time.Second
	brief := []func(*redlatch.Config){func(c *redlatch.Config) { c.LeaseTime = lease }}
	all := cases{
		"its server comes back with old data": func(t *testing.T, x *bed.Site, name string) {
			h := bed.Lock(t, t.Context(), x.Lock(name))
			ctx, leave := context.WithCancel(t.Context())
			left := begun(t, ctx, x, name, x.Kind.Excluded(x.Through, name))
			quiet(t, x) // it stands in the queue, if there is one
			onAll(t, x, "SAVE")
			leave()
			want(t, "the one who left", bed.Get(t, left).Err, context.Canceled)
			bed.Unlock(t, h)
			other := bed.Lock(t, t.Context(), x.Beside(name)) // of which the old data says nothing
			began := time.Now()
			for _, s := range x.Servers {
				s.Restart(t, testbed.Stale)
			}
			third := bed.Async(t.Context(), x.Kind.Excluded(x.Through, name))
			ended(t, other, redlatch.ErrLeaseLost)
			testbed.AtMost(t, time.Since(began), lease+slack, "the holder heard of it after")
			want(t, "Unlock", other.Unlock(context.Background()), redlatch.ErrLeaseLost)
			bed.Unlock(t, bed.Hold(t, third))
		},
		"its server has no memory": func(t *testing.T, x *bed.Site, name string) {
			l := x.Lock(name)
			h := bed.Lock(t, t.Context(), l)
			onAll(t, x, "CONFIG", "SET", "maxmemory", "1")
			defer onAll(t, x, "CONFIG", "SET", "maxmemory", "0")
			for end := time.Now().Add(2 * lease); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
				bed.Alive(t, h)
			}
			want(t, "Extend", h.Extend(t.Context(), time.Minute), nil)
			if left := time.Until(h.ValidUntil()); !quorum(x) && left < 50*time.Second {
				t.Errorf("extended, it counts for %v", left)
			}
			believes(t, x, name, h)
			bed.Unlock(t, bed.Lock(t, h.Context(), l))
			bed.Unlock(t, h)
		},
		"its owner does this and that": func(t *testing.T, x *bed.Site, name string) {
			seed := rand.Uint64()
			random, l, job := rand.New(rand.NewPCG(seed, 0)), x.Lock(name), redlatch.WithOwner(t.Context(), "job")
			var holds []redlatch.Hold
			for step := range 150 {
				did, err := "let time pass", error(nil)
				lease := time.Duration(50+random.IntN(1500)) * time.Millisecond
				if quorum(x) { // whose nodes have a part of it to answer
					lease *= 8
				}
				switch n := random.IntN(10); {
				case len(holds) == 0 || n < 3 && len(holds) < 4:
					if random.IntN(2) == 0 {
						lease = 0
					}
					did = fmt.Sprintf("lock for %v", lease)
					var h redlatch.Hold
					if h, err = l.TryLock(job, time.Second, lease); err == nil {
						holds = append(holds, h)
					}
				case n < 6:
					did = fmt.Sprintf("extend by %v", lease)
					err = holds[random.IntN(len(holds))].Extend(t.Context(), lease)
				case n < 8:
					did = "unlock"
					i := random.IntN(len(holds))
					err = holds[i].Unlock(t.Context())
					holds = append(holds[:i], holds[i+1:]...)
				default:
					time.Sleep(time.Duration(random.IntN(40)) * time.Millisecond)
				}
				slow := quorum(x) && errors.Is(err, redlatch.ErrUnavailable) // a busy machine's nodes
				if err != nil && !errors.Is(err, redlatch.ErrLeaseLost) && !slow {
					t.Fatalf("seed %d, step %d, %s: %v", seed, step, did, err)
				}
				for _, h := range holds {
					believes(t, x, name, h)
				}
				if t.Failed() {
					t.Fatalf("seed %d, step %d, after %s", seed, step, did)
				}
			}
			for _, h := range holds {
				_ = h.Unlock(context.Background()) // lost or not
			}
		},
	}
	for does, reads := range map[string]bool{"re-enters": false, "reads": true} {
		all["its owner "+does+" without a pause"] = func(t *testing.T, x *bed.Site, name string) {
			l, inner := x.Lock(name), x.Lock(name)
			opts := []redlatch.AcquireOption{redlatch.WithLease(asked(x, lease/15))} // too short to keep the outer one
			switch {
			case reads && x.Kind.Name != "write":
				return
			case reads: // holds of their own, whatever their leases
				inner, opts = x.Through[0].ReadWriteLock(name).ReadLock(), nil
			case quorum(x):
				opts = []redlatch.AcquireOption{redlatch.WithLease(lease / 2)}
			}
			h := bed.Lock(t, t.Context(), l)
			var loops sync.WaitGroup
			stop := time.Now().Add(3 * lease)
			for range 3 {
				loops.Go(func() {
					for time.Now().Before(stop) && h.Context().Err() == nil {
						again, err := inner.Lock(h.Context(), opts...)
						if err != nil {
							t.Errorf("re-entry: %v", err)
							return
						}
						ends := again.ValidUntil()
						err = again.Unlock(context.Background())
						late := errors.Is(err, redlatch.ErrLeaseLost) || errors.Is(err, redlatch.ErrUnavailable) // on a busy machine
						if err != nil && (!late || time.Now().Before(ends)) {
							t.Errorf("inner Unlock: %v", err) // its own short lease was not over
							return
						}
					}
				})
			}
			loops.Wait()
			bed.Alive(t, h)
			bed.Unlock(t, h)
		}
	}
	overKinds(t, brief, all)
}
