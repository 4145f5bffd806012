package lease

import (
	"time"

	"github.com/redlatch/redlatch/lock"
)

// Drift is what is taken off a lease for clocks that run at different rates and
// for rounding, as the Redlock description has it.
// https://redis.io/docs/latest/develop/use/patterns/distributed-locks/
func Drift(length time.Duration) time.Duration {
	return min(length/100+2*time.Millisecond, length/2)
}

// Margin is a lease, and what clocks that run at different rates may add to it.
func Margin(length time.Duration) time.Duration { return length + Drift(length) }

// LocalDeadline is when a lease that was asked for at an instant ends here.
func LocalDeadline(sent time.Time, length time.Duration) time.Time {
	return sent.Add(length - Drift(length))
}

// Until is the lease to ask for at an instant so that its local deadline is end, or just
// after it. Of a lease that was granted before, it asks for a little less with time, as less of
// it is left to drift in: so a server that still has it need not raise anything, if the command
// takes no longer than a hundredth of the time that has passed since.
func Until(at, end time.Time) time.Duration { return For(end.Sub(at)) }

// For is the lease to ask for that has its local deadline so much later, or just after that; 0 if that is over.
func For(left time.Duration) time.Duration {
	if left <= 0 {
		return 0
	}
	most := left + 2*time.Millisecond
	return min(most+most/99+1, 2*left)
}

// Passed reports whether an instant has passed on the monotonic or on the wall
// clock: the former stands still while a machine sleeps.
func Passed(now, at time.Time) bool {
	return !now.Before(at) || !now.Round(0).Before(at.Round(0))
}

// OnBoth is an instant as timers see it: it comes as early on the monotonic clock as on the wall clock.
func OnBoth(now, at time.Time) time.Time {
	if left := at.Round(0).Sub(now.Round(0)); !at.IsZero() && left < at.Sub(now) {
		return now.Add(left)
	}
	return at
}

// Anew is an instant that is as far away on the wall clock, which was set, as it is on the monotonic clock.
func Anew(now, at time.Time) time.Time {
	if at.IsZero() {
		return at
	}
	return now.Add(at.Sub(now))
}

// Earlier is the earlier of two instants; a zero one does not count.
func Earlier(a, b time.Time) time.Time {
	if a.IsZero() || (!b.IsZero() && b.Before(a)) {
		return b
	}
	return a
}

// Later is the later of two instants.
func Later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// Check refuses leases that make no sense; 0 is none.
func Check(length time.Duration) error {
	switch {
	case length < 0:
		return &lock.InvalidOptionError{Option: "lease", Reason: "it is negative"}
	case length > 0 && length < time.Millisecond:
		return &lock.InvalidOptionError{Option: "lease", Reason: "it is below the server's resolution of 1ms"}
	}
	return nil
}
