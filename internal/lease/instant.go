package lease

import "time"

// Instant is a reading of both clocks, each since a beginning of its own: for whoever is told the time. It owns
// nothing; the zero value is the beginning.
type Instant struct {
	Mono time.Duration // stands still while the machine sleeps
	Wall time.Duration // may be set
}

// Add is so much later on both clocks.
func (i Instant) Add(d time.Duration) Instant { return Instant{i.Mono + d, i.Wall + d} }

// Deadline is [LocalDeadline] of a lease that was asked for at this instant.
func (i Instant) Deadline(length time.Duration) Instant { return i.Add(length - Drift(length)) }

// Passed reports whether the instant has passed on either clock, as [Passed] does.
func (i Instant) Passed(now Instant) bool { return now.Mono >= i.Mono || now.Wall >= i.Wall }

// OnTimers is when a timer, which runs by the monotonic clock, has to fire for it, as [OnBoth] says.
func (i Instant) OnTimers(now Instant) time.Duration {
	return now.Mono + min(i.Mono-now.Mono, i.Wall-now.Wall)
}

// Raised is the later of two deadlines, by the monotonic clock; one that has passed, on either clock, is none.
func (i Instant) Raised(now, o Instant) Instant {
	if o.Mono > i.Mono || i.Passed(now) {
		return o
	}
	return i
}
