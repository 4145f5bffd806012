package integration

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/integration/bed"
	"github.com/redlatch/redlatch/internal/testbed"
)

// 10,000 holds: no goroutine and no connection more, renewals batched and spread.
func TestRLockTenThousandHolds(t *testing.T) {
	s := bed.Loaded(t)
	const n, lease, window = 10_000, 16 * time.Second, 8 * time.Second
	c := rlClient(t, s.Addr(), redlatch.WithLeaseTime(lease), redlatch.WithUnlockTimeout(time.Minute)) // 10,000 at once
	bed.Unlock(t, bed.Lock(t, t.Context(), c.RLock("warm")))
	goroutines := runtime.NumGoroutine()
	holds := make([]redlatch.Hold, n)
	each := func(f func(i int) error) { // 50 at a time
		var wg sync.WaitGroup
		for g := range 50 {
			wg.Go(func() {
				for i := g; i < n; i += 50 {
					bed.Want(t, f(i), nil)
				}
			})
		}
		wg.Wait()
	}
	each(func(i int) (err error) {
		holds[i], err = c.RLock(fmt.Sprintf("l%d", i)).Lock(context.Background())
		return err
	})
	if t.Failed() {
		return
	}
	bed.Eventually(t, fmt.Sprintf("not many more goroutines for %d holds than the %d before", n, goroutines), func() bool {
		return runtime.NumGoroutine() <= goroutines+20 // the 50 may be on their way out still
	})
	testbed.AtMost(t, len(s.ForeignClients(t)), 1, "connections")
	// Within the window every hold is renewed once or twice, also if the machine stands still for a part of it.
	before := s.CommandStats(t)
	most := 0
	for end := time.Now().Add(window); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		most = max(most, runtime.NumGoroutine())
	}
	calls := s.CommandStats(t).Sub(before).Calls
	testbed.Between(t, calls["pexpire"], n, 3*n, "leases that were set within", window)
	testbed.AtLeast(t, float64(calls["pexpire"])/float64(calls["evalsha"]), 50, "renewals per command")
	testbed.AtMost(t, most, goroutines+30, "goroutines while renewing,", goroutines, "before")
	t.Logf("%d renewals in %d commands, at most %d goroutines (%d before)", calls["pexpire"], calls["evalsha"], most, goroutines)
	for _, h := range holds {
		bed.Alive(t, h)
	}
	each(func(i int) error { return holds[i].Unlock(context.Background()) })
}
