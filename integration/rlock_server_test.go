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

// Servers in a bad state, and names that are unusual.

// While the server loads its data it refuses everything; that passes, so Lock
// waits for it.
func TestRLockServerIsLoading(t *testing.T) {
	t.Parallel()
	testbed.Needs(t, 7, 0, "a setting that lets a server answer while it loads little data")
	// For 20 seconds, unless it is told to hurry: it loads still when TryLock asks, however slow the machine is.
	s := rlServer(t, "--key-load-delay", "10000", "--loading-process-events-interval-bytes", "1024")
	for i := range 2000 {
		s.Do(t, "SET", fmt.Sprintf("k%d", i), strings.Repeat("x", 20))
	}
	c := rlClient(t, s.Addr(), rlLease(10*time.Minute))
	h := bed.Lock(t, t.Context(), c.RLock("l"))
	s.Restart(t, testbed.Keep)
	_, err := s.Try("GET", "k1")
	if err == nil || !strings.Contains(err.Error(), "LOADING") {
		t.Fatalf("the server does not load slowly: %v", err)
	}
	_, err = c.RLock("y").TryLock(t.Context(), 0, 0)
	rlWant(t, err, redlatch.ErrUnavailable)
	waits := bed.Async(t.Context(), c.RLock("x"))
	rlBlocked(t, waits)
	s.Do(t, "CONFIG", "SET", "key-load-delay", "0")
	got := bed.Get(t, waits)
	if got.Err != nil {
		t.Fatal(got.Err)
	}
	bed.Unlock(t, got.Hold)
	bed.Unlock(t, h) // it was kept
	s.Do(t, "FLUSHALL")
}
