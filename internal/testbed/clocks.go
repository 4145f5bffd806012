package testbed

import (
	"time"
	"unsafe"
)

// WallAt is an instant at which the wall clock alone has moved on by d: the machine slept, or somebody
// set the clock.
func WallAt(t TB, now time.Time, d time.Duration) time.Time {
	t.Helper()
	type raw struct { // a time.Time: a flag, 33 bits of seconds and 30 of nanoseconds, then the monotonic reading
		wall uint64
		ext  int64
		loc  *time.Location
	}
	moved := now
	r := (*raw)(unsafe.Pointer(&moved)) // #nosec G103 -- there is no other way to have clocks that disagree
	nanos := int64(r.wall&(1<<30-1)) + int64(d%time.Second)
	secs := int64(d / time.Second)
	if nanos < 0 {
		nanos, secs = nanos+1e9, secs-1
	} else if nanos >= 1e9 {
		nanos, secs = nanos-1e9, secs+1
	}
	r.wall = r.wall&^(1<<30-1) + uint64(secs<<30) + uint64(nanos) // #nosec G115 -- as above
	if moved.Sub(now) != 0 || moved.Round(0).Sub(now.Round(0)) != d {
		t.Fatalf("the clocks say %v and %v, want 0 and %v", moved.Sub(now), moved.Round(0).Sub(now.Round(0)), d)
	}
	return moved
}
