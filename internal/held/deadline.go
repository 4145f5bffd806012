package held

import "time"

// drift is what is taken off a lease for clocks that run at different rates and
// for rounding, as the Redlock description has it.
// https://redis.io/docs/latest/develop/use/patterns/distributed-locks/
func drift(lease time.Duration) time.Duration {
	return min(lease/100+2*time.Millisecond, lease/2)
}

// Margin is lease, and what clocks that run at different rates may add to it.
func Margin(lease time.Duration) time.Duration { return lease + drift(lease) }

// LocalDeadline is when a lease that was asked for at an instant ends here.
func LocalDeadline(sent time.Time, lease time.Duration) time.Time {
	return sent.Add(lease - drift(lease))
}

// leaseUntil is the lease to ask for at an instant so that its local deadline is until, or just
// after it. Of a lease that was granted before, it asks for a little less with time, as less of
// it is left to drift in: so a server that still has it need not raise anything, if the command
// takes no longer than a hundredth of the time that has passed since.
func leaseUntil(at, until time.Time) time.Duration {
	left := until.Sub(at)
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

// onBoth is an instant as timers see it: it comes as early on the monotonic clock as on the wall clock.
func onBoth(now, at time.Time) time.Time {
	if left := at.Round(0).Sub(now.Round(0)); !at.IsZero() && left < at.Sub(now) {
		return now.Add(left)
	}
	return at
}

func earlier(a, b time.Time) time.Time {
	if a.IsZero() || (!b.IsZero() && b.Before(a)) {
		return b
	}
	return a
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
