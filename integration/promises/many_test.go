package promises

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/integration/bed"
)

// Many goroutines that are one owner, with holds of all sorts, some of which are given up, never meet another owner.
func TestOneOwnerInManyGoroutines(t *testing.T) {
	t.Parallel()
	overKinds(t, nil, cases{
		"meets no other": func(t *testing.T, x *bed.Site, name string) {
			ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
			defer cancel()
			var ours, theirs, met, held atomic.Int64
			var all sync.WaitGroup
			enter := func(mine, yours *atomic.Int64) {
				mine.Add(1)
				held.Add(1)
				met.Add(min(yours.Load(), 1))
				time.Sleep(rand.N(500 * time.Microsecond))
				mine.Add(-1)
			}
			for range 4 {
				all.Go(func() {
					for ctx.Err() == nil {
						octx, end := context.WithCancel(redlatch.WithOwner(ctx, "one"))
						if rand.IntN(5) == 0 {
							time.AfterFunc(rand.N(2*time.Millisecond), end)
						}
						l := x.Lock(name)
						if x.Kind.Name == "write" && rand.IntN(2) == 0 {
							l = x.Through[0].ReadWriteLock(name).ReadLock()
						}
						h, err := l.Lock(octx, redlatch.WithLease(time.Duration(rand.IntN(2))*bed.Lease/2))
						if err == nil {
							enter(&ours, &theirs)
							if rand.IntN(4) == 0 {
								if again, err := l.Lock(h.Context()); err == nil {
									defer bed.Unlock(t, again) // out of order, at the end
								}
							}
							bed.Unlock(t, h)
						} else if ctx.Err() == nil && !errors.Is(err, context.Canceled) && !errors.Is(err, redlatch.ErrUpgrade) {
							t.Error(err)
						}
						end()
						if rand.IntN(8) == 0 {
							return // what it still holds goes now
						}
					}
				})
			}
			for range 2 {
				all.Go(func() {
					for ctx.Err() == nil {
						if h, err := x.Beside(name).Lock(ctx); err == nil {
							enter(&theirs, &ours)
							bed.Unlock(t, h)
						}
					}
				})
			}
			all.Wait()
			if met.Load() > 0 {
				t.Errorf("they met %d times", met.Load())
			}
			t.Logf("%d sections", held.Load())
		},
	})
}
