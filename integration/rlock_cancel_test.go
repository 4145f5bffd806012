package integration

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/integration/bed"
	"github.com/redlatch/redlatch/internal/testbed"
)

// ctx ends at every point at which an acquisition waits: it returns at once and
// leaves nothing behind.

// More acquisitions than may be under way at once, on a server that does not
// answer: each hears its ctx, and those that had not sent anything never do.
func TestRLockContextEndsBehindAStuckServer(t *testing.T) {
	t.Parallel()
	s := rlLoaded(t)
	c := rlClient(t, s.Addr(), rlLease(time.Minute), func(c *redlatch.Config) {
		c.Redis.ConnWriteTimeout = 20 * time.Second
	})
	bed.Unlock(t, bed.Lock(t, t.Context(), c.RLock("warm")))
	s.Freeze(t)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for i := range 1500 {
		wg.Go(func() {
			if _, err := c.RLock(fmt.Sprintf("l%d", i)).Lock(ctx); !errors.Is(err, context.Canceled) {
				t.Errorf("Lock: %v", err)
			}
		})
	}
	bed.Eventually(t, "all under way", func() bool {
		return testbed.GoroutinesIn("(*Call).Wait") >= 1500
	})
	cancelled := time.Now()
	cancel()
	wg.Wait()
	// Who waited for an answer would wait until the connection is given up, after ConnWriteTimeout.
	if took := time.Since(cancelled); took > 6*time.Second {
		t.Errorf("1,500 acquisitions returned %v after ctx had ended", took)
	}
	s.Thaw(t)
	bed.Eventually(t, "nothing left", func() bool {
		return len(s.List(t, "KEYS", "l*")) == 0 && testbed.GoroutinesIn("(*giving).run") == 0
	})
	bed.Unlock(t, bed.Lock(t, t.Context(), c.RLock("l1")))
}
