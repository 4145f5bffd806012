package integration

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
)

// load locks and unlocks n locks of their own until ctx ends, and tells what the
// unlocks came to.
func load(ctx context.Context, t *testing.T, c *redlatch.Client, n int) {
	t.Helper()
	var turns, lost, silent atomic.Int64
	var longest atomic.Int64
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			l := c.RLock(fmt.Sprintf("load-%d", i))
			for ctx.Err() == nil {
				h, err := l.Lock(ctx)
				if err != nil {
					return
				}
				began := time.Now()
				err = h.Unlock(context.WithoutCancel(ctx))
				if d := int64(time.Since(began)); d > longest.Load() {
					longest.Store(d)
				}
				turns.Add(1)
				switch {
				case errors.Is(err, redlatch.ErrLeaseLost):
					lost.Add(1)
				case errors.Is(err, redlatch.ErrUnavailable):
					silent.Add(1)
				case err != nil:
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	t.Logf("%d turns, %d lost, %d unlocks unavailable, the longest unlock took %v", turns.Load(), lost.Load(), silent.Load(), time.Duration(longest.Load()))
	if lost.Load() > 0 || silent.Load() > 0 {
		t.Errorf("%d locks were lost and %d unlocks gave up, on a healthy server", lost.Load(), silent.Load())
	}
}
