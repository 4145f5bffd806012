package integration

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/integration/bed"
	"github.com/redlatch/redlatch/internal/testbed"
)

// On a server that answers nobody, every wait that ends tells of it, whatever ends it, also that of who stood behind
// others of the process, or got no place to send; and nothing is left of any, nor sent for it any more.
func TestFrozenServerIsUnavailableForAll(t *testing.T) {
	t.Parallel()
	s := bed.Loaded(t)
	c := rlClient(t, s.Addr(), redlatch.WithLeaseTime(time.Minute), func(c *redlatch.Config) {
		c.Redis.ConnWriteTimeout = 20 * time.Second // until the connection is given up; silence counts after a second
	})
	bed.Unlock(t, bed.Lock(t, t.Context(), c.RLock("warm")))
	held := bed.Lock(t, t.Context(), c.RLock("held"), redlatch.WithLease(time.Minute))
	s.Freeze(t)
	const wait = 2500 * time.Millisecond
	cancelled, leave := context.WithCancel(t.Context())
	defer time.AfterFunc(wait, leave).Stop()
	ways := []error{nil, context.DeadlineExceeded, context.Canceled} // what ends the wait besides
	var wg sync.WaitGroup
	errs := make([]error, 900)
	for i := range errs {
		var l redlatch.Locker
		name := fmt.Sprintf("l%d", i)
		switch i % 9 {
		case 0:
			l = c.RLock("line") // one line of waiters
		case 1:
			l = c.FairLock("fair line")
		case 2:
			l = c.ReadWriteLock("rw line").WriteLock()
		case 3:
			l = redlatch.MultiLock(c.RLock(name), c.RLock("{"+name+"}2"))
		default: // more than have a place to send
			l = c.RLock(name)
		}
		wg.Go(func() {
			const lease = time.Hour // what is left behind stays
			ctx, cancel := context.WithTimeout(t.Context(), wait)
			defer cancel()
			switch i / 9 % 3 {
			case 0:
				_, errs[i] = l.TryLock(t.Context(), wait, lease)
			case 1:
				_, errs[i] = l.Lock(ctx, redlatch.WithLease(lease))
			default:
				_, errs[i] = l.Lock(cancelled, redlatch.WithLease(lease))
			}
		})
	}
	began := time.Now()
	wg.Wait()
	testbed.AtMost(t, time.Since(began), wait+6*time.Second, "the waits of", wait, "ended after")
	for i, err := range errs {
		if !waited(err) {
			t.Fatalf("%d: %v, want the end of a wait", i, err)
		}
		if way := ways[i/9%3]; way != nil && !errors.Is(err, way) {
			t.Fatalf("%d: %v, want ctx's error too, %v", i, err, way)
		}
		if !errors.Is(err, redlatch.ErrUnavailable) {
			t.Errorf("%d was told that a lock is busy, nothing else: %v", i, err)
		}
	}
	s.Thaw(t)
	bed.Unlock(t, held)
	bed.Eventually(t, "all undone", func() bool {
		for _, key := range s.List(t, "KEYS", "*") {
			if s.Text(t, "TYPE", key) == "hash" {
				return false
			}
		}
		return true
	})
	bed.Unlock(t, bed.Lock(t, t.Context(), c.RLock("line")))
}
