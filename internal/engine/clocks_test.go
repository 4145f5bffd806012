package engine_test

import (
	"testing"
	"time"
	"unsafe"

	"github.com/redlatch/redlatch/internal/conn"
	"github.com/redlatch/redlatch/internal/held"
	"github.com/redlatch/redlatch/lock"
)

// wallAt is an instant at which the wall clock alone has moved on by d: the machine slept, or somebody
// set the clock.
func wallAt(t *testing.T, now time.Time, d time.Duration) time.Time {
	t.Helper()
	type raw struct { // a time.Time: a flag, 33 bits of seconds and 30 of nanoseconds, then the monotonic reading
		wall uint64
		ext  int64
		loc  *time.Location
	}
	moved := now
	r := (*raw)(unsafe.Pointer(&moved)) //nolint:gosec // there is no other way to have clocks that disagree
	nanos := int64(r.wall&(1<<30-1)) + int64(d%time.Second)
	secs := int64(d / time.Second)
	if nanos < 0 {
		nanos, secs = nanos+1e9, secs-1
	} else if nanos >= 1e9 {
		nanos, secs = nanos-1e9, secs+1
	}
	r.wall = r.wall&^(1<<30-1) + uint64(secs<<30) + uint64(nanos) //nolint:gosec // as above
	if moved.Sub(now) != 0 || moved.Round(0).Sub(now.Round(0)) != d {
		t.Fatalf("the clocks say %v and %v, want 0 and %v", moved.Sub(now), moved.Round(0).Sub(now.Round(0)), d)
	}
	return moved
}

// TestADeadlinePassesOnEitherClock: whichever is first.
func TestADeadlinePassesOnEitherClock(t *testing.T) {
	began := time.Now()
	at := began.Add(10 * time.Second)
	for what, c := range map[string]struct {
		mono, wall time.Duration // since began
		want       bool
	}{
		"neither":                        {9 * time.Second, 9 * time.Second, false},
		"both":                           {10 * time.Second, 10 * time.Second, true},
		"the wall clock was set back":    {10 * time.Second, -time.Hour, true},
		"the machine slept":              {time.Second, 10 * time.Second, true},
		"the machine slept a little":     {time.Second, 9 * time.Second, false},
		"the wall clock is set back now": {9 * time.Second, time.Second, false},
	} {
		if now := wallAt(t, began.Add(c.mono), c.wall-c.mono); held.Passed(now, at) != c.want {
			t.Errorf("%s: passed should be %t", what, c.want)
		}
	}
}

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
	core.Look(wallAt(t, time.Now(), leaseTime/2))
	if h.Context().Err() != nil {
		t.Fatal("lost after half a lease")
	}
	core.Look(wallAt(t, time.Now(), leaseTime))
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
				core.Look(wallAt(t, time.Now(), slept*time.Duration(n+1)/time.Duration(naps)))
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
