package integration

import (
	"testing"
	"time"

	"github.com/redlatch/redlatch"
)

// Two Unlocks gave up waiting on a frozen server; the next one is told what came of
// them: the lock was released.
func TestUnlockTellsAThirdTimeWhatCameOfIt(t *testing.T) {
	t.Parallel()
	s := rlServer(t)
	c := rlClient(t, s.Addr(), rlUnlockTimeout(time.Second))
	h := rlLock(t, t.Context(), c.RLock("l"))
	s.Freeze(t)
	for range 2 {
		rlWant(t, h.Unlock(t.Context()), redlatch.ErrUnavailable)
	}
	s.Thaw(t)
	rlUntil(t, "the release", func() bool { return s.Int(t, "EXISTS", "l") == 0 })
	if err := h.Unlock(t.Context()); err != nil {
		t.Errorf("the lock was released by this hold, and its Unlock says: %v", err)
	}
}
