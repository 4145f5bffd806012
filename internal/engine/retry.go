package engine

import (
	"context"
	"errors"
	"time"

	"github.com/cenkalti/backoff/v4"
)

// forever is a wait without a limit of its own.
const forever time.Duration = -1

var errNoAnswer = errors.New("no answer within the time limit")

// newRetry spaces the tries after transient errors: soon at first, since most
// are a single broken connection, and at most a second apart.
func newRetry() *backoff.ExponentialBackOff {
	return backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(10*time.Millisecond),
		backoff.WithMultiplier(2),
		backoff.WithMaxInterval(time.Second),
		backoff.WithMaxElapsedTime(0),
	)
}

// sleep pauses for d; false: ctx ended, stop was closed or the deadline (if not
// zero) would pass first.
func sleep(ctx context.Context, stop <-chan struct{}, deadline time.Time, d time.Duration) bool {
	if !deadline.IsZero() && time.Until(deadline) <= d {
		// There is no time for another try: the rest of the wait is spent all the
		// same, so that the caller gets what was asked for.
		d, deadline = time.Until(deadline), time.Now()
	} else {
		deadline = time.Time{}
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return deadline.IsZero()
	case <-ctx.Done():
		return false
	case <-stop:
		return false
	}
}
