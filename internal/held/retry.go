package held

import (
	"context"
	"errors"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/redlatch/redlatch/lock"
)

// ErrNoAnswer is why an operation failed that gave up waiting.
var ErrNoAnswer = errors.New("no answer within the time limit")

// ErrMoved is why an answer does not count: the command was sent before it was noticed that the
// keys are on another server. That one is to be asked.
var ErrMoved = errors.New("answered by a server that another one has replaced meanwhile")

// NewRetry spaces the tries after transient errors: soon at first, since most
// are a single broken connection, and at most a second apart.
func NewRetry() *backoff.ExponentialBackOff {
	return backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(10*time.Millisecond),
		backoff.WithMultiplier(2),
		backoff.WithMaxInterval(time.Second),
		backoff.WithMaxElapsedTime(0),
	)
}

// Sleep pauses for d; false: ctx ended, stop was closed or the deadline (if not
// zero) would pass first.
func Sleep(ctx context.Context, stop <-chan struct{}, deadline time.Time, d time.Duration) bool {
	slept, _ := SleepOr(ctx, stop, nil, deadline, d)
	return slept
}

// SleepOr is Sleep that a signal ends, too.
func SleepOr(ctx context.Context, stop, signal <-chan struct{}, deadline time.Time, d time.Duration) (slept, signalled bool) {
	over := false
	if !deadline.IsZero() && time.Until(deadline) <= d {
		// There is no time for another try: the rest of the wait is spent all the
		// same, so that the caller gets what was asked for.
		d, over = time.Until(deadline), true
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return !over, false
	case <-signal:
		return false, true
	case <-ctx.Done():
	case <-stop:
	}
	return false, false
}

// errRefused is a renewal that a server answered with an error for this lock.
var errRefused error = refusedError{}

type refusedError struct{}

func (refusedError) Error() string { return "the server refused" }

// ErrorType is a short, stable name for telemetry.
func (refusedError) ErrorType() string { return "refused" }

// errGone is a renewal whose answer was that nothing is held.
var errGone = lock.ErrLeaseLost
