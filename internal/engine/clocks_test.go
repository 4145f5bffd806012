package engine_test

import (
	"testing"
	"time"

	"github.com/redlatch/redlatch/internal/conn"
	"github.com/redlatch/redlatch/internal/testbed"
	"github.com/redlatch/redlatch/lock"
)

// ends fails the test if the hold goes on.
func ends(t *testing.T, h lock.Hold) {
	t.Helper()
	select {
	case <-h.Context().Done():
	case <-time.After(20 * time.Second):
		t.Fatal("the hold goes on")
	}
}

// A bubble's times have one clock: these run on the machine's.

// TestSleepingMachineLosesItsHolds: the watchdog sees that the monotonic clock stood still.
func TestSleepingMachineLosesItsHolds(t *testing.T) {
	_, core := newFake(t, leaseTime)
	h := take(t, t.Context(), core, "l")
	core.Look(testbed.WallAt(t, time.Now(), leaseTime/2))
	if h.Context().Err() != nil {
		t.Fatal("lost after half a lease")
	}
	core.Look(testbed.WallAt(t, time.Now(), leaseTime))
	ends(t, h)
	lostAt(t, h, lock.LossExpired)
}

// TestDeadlineAfterASleepComesByTheWallClock: what the machine slept of a lease is gone, though no timer has
// seen it pass. So it is with one long sleep and with many short ones, each of which looks like nothing.
func TestDeadlineAfterASleepComesByTheWallClock(t *testing.T) {
	const lease, slept = 8 * time.Second, 6 * time.Second
	for what, naps := range map[string]int{"one sleep": 1, "short ones": 300} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			f, core := newFake(t, lease)
			h := take(t, t.Context(), core, "l")
			want := h.ValidUntil().Add(-slept)
			f.onBefore(func(conn.Command) error { return errUnsent })
			for n := range naps {
				core.Look(testbed.WallAt(t, time.Now(), slept*time.Duration(n+1)/time.Duration(naps)))
			}
			ends(t, h)
			at := lostAt(t, h, lock.LossExpired)
			// A busy machine may be late; without the wall clock it is later by what was slept.
			if off := at.Sub(want); off < -10*time.Millisecond || off > slept/2 {
				t.Errorf("it ended %v off its deadline", off)
			}
		})
	}
}
