package integration

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/integration/bed"
	"github.com/redlatch/redlatch/internal/testbed"
)

// While the server loads its data it refuses everything; that passes, so Lock
// waits for it.
func TestRLockServerIsLoading(t *testing.T) {
	t.Parallel()
	testbed.Needs(t, 7, 0, "a setting that lets a server answer while it loads little data")
	// For 20 seconds, unless it is told to hurry: it loads still when TryLock asks, however slow the machine is.
	s := testbed.Standalone(t, "--key-load-delay", "10000", "--loading-process-events-interval-bytes", "1024")
	testbed.LeakCheck(t, s)
	for i := range 2000 {
		s.Do(t, "SET", fmt.Sprintf("k%d", i), strings.Repeat("x", 20))
	}
	c := rlClient(t, s.Addr(), rlLease(10*time.Minute))
	h := bed.Lock(t, t.Context(), c.RLock("l"))
	s.Restart(t, testbed.Keep)
	if _, err := s.Try("GET", "k1"); err == nil || !strings.Contains(err.Error(), "LOADING") {
		t.Fatalf("the server does not load slowly: %v", err)
	}
	_, err := c.RLock("y").TryLock(t.Context(), 0, 0)
	rlWant(t, err, redlatch.ErrUnavailable)
	waits := bed.Async(t.Context(), c.RLock("x"))
	if len(waits) > 0 {
		t.Fatalf("Lock returned early: %v", (<-waits).Err)
	}
	s.Do(t, "CONFIG", "SET", "key-load-delay", "0")
	bed.Unlock(t, bed.Hold(t, waits))
	bed.Unlock(t, h) // it was kept
	s.Do(t, "FLUSHALL")
}
