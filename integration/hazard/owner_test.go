package hazard

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
)

// Several goroutines of one explicit owner enter together, in both modes of a read-write lock and
// with holds of all sorts, and another owner never meets them.
func TestOneOwnerInManyGoroutines(t *testing.T) {
	s := server(t)
	c, other := dial(t, s.Addr(), leaseTime(3*time.Second)), dial(t, s.Addr(), leaseTime(3*time.Second))
	for _, kind := range []string{"rlock", "fair", "write", "multi"} {
		t.Run(kind, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
			defer cancel()
			var ours, theirs, met, held atomic.Int64
			var wg sync.WaitGroup
			enter := func(mine, yours *atomic.Int64) {
				mine.Add(1)
				held.Add(1)
				if yours.Load() > 0 {
					met.Add(1)
				}
				time.Sleep(time.Duration(rand.Int64N(int64(500 * time.Microsecond))))
				mine.Add(-1)
			}
			for range 4 {
				wg.Go(func() {
					for ctx.Err() == nil {
						octx, end := context.WithCancel(redlatch.WithOwner(ctx, "one"))
						if rand.IntN(5) == 0 {
							time.AfterFunc(time.Duration(rand.Int64N(int64(2*time.Millisecond))), end)
						}
						l := exclusive(c, kind, "l")
						if kind == "write" && rand.IntN(2) == 0 {
							l = c.ReadWriteLock("l").ReadLock()
						}
						h, err := l.Lock(octx, redlatch.WithLease(time.Duration(rand.IntN(2))*5*time.Second))
						if err != nil {
							if !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, redlatch.ErrUpgrade) {
								t.Error(err)
							}
						} else {
							enter(&ours, &theirs)
							if rand.IntN(4) == 0 {
								if again, err := l.Lock(h.Context()); err == nil {
									defer unlock(t, again) // out of order, at the end
								}
							}
							unlock(t, h)
						}
						end()
						if rand.IntN(8) == 0 {
							return // what it still holds goes now
						}
					}
				})
			}
			for range 2 {
				wg.Go(func() {
					for ctx.Err() == nil {
						if h, err := exclusive(other, kind, "l").Lock(ctx); err == nil {
							enter(&theirs, &ours)
							unlock(t, h)
						}
					}
				})
			}
			wg.Wait()
			if met.Load() > 0 {
				t.Errorf("they met %d times", met.Load())
			}
			t.Logf("%d sections", held.Load())
		})
	}
}
