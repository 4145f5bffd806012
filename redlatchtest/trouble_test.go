package redlatchtest_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/redlatchtest"
)

func TestDownAndUp(t *testing.T) {
	where(t, func(t *testing.T) {
		s := redlatchtest.NewServer(t)
		c := s.Client(redlatch.WithUnlockTimeout(25 * time.Second)) // a process may stand still for seconds
		h := mustLock(t, t.Context(), c.RLock("a"))
		s.Down()
		unavailable(t, c.RLock("b"))
		s.Up()
		mustUnlock(t, h) // the data is there
		// Away for longer than a lease.
		c = s.Client(redlatch.WithLeaseTime(300 * time.Millisecond))
		h = mustLock(t, t.Context(), c.RLock("a"))
		s.Down()
		lost(t, h)
		s.Up()
		passes(t, c.RLock("a"), redlatch.WithLease(time.Minute)) // a lease that a busy machine does not end
	})
}

// unavailable waits for a lock whose server is down, until the error says so. A wait in which the machine left
// no time for an attempt says nothing of the server: the next one is longer.
func unavailable(t *testing.T, l redlatch.Locker) {
	t.Helper()
	var err error
	for wait := outage; wait <= 16*outage; wait *= 4 {
		if _, err = l.TryLock(t.Context(), wait, 0); errors.Is(err, redlatch.ErrUnavailable) {
			return
		}
	}
	t.Errorf("a wait for a server that is down ended with: %v", err)
}

func TestFreezeAndThaw(t *testing.T) {
	where(t, func(t *testing.T) {
		s := redlatchtest.NewServer(t)
		c := s.Client()
		s.Freeze()
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		_, err := c.RLock("a").Lock(ctx)
		wants(t, err, redlatch.ErrNotAcquired)
		wants(t, err, context.DeadlineExceeded)
		s.Thaw()
		passes(t, c.RLock("a"))
	})
}

func TestRestart(t *testing.T) {
	s := redlatchtest.NewServer(t)
	c := s.Client(redlatch.WithLeaseTime(300 * time.Millisecond))
	h := mustLock(t, t.Context(), c.RLock("a"))
	s.Restart()
	lost(t, h)
}
