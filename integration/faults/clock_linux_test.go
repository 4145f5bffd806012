package faults

import (
	"time"

	"golang.org/x/sys/unix"
)

// mono is the time since the machine started, on the clock that all its processes
// share; it goes on while they stand still.
func mono() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic(err)
	}
	return time.Duration(ts.Nano())
}
