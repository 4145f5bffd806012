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
)

// On a server that answers nobody, every wait that ends tells of it, also that of
// who stood behind others of the process, or got no place to send.
func TestFrozenServerIsUnavailableForAll(t *testing.T) {
	t.Parallel()
	s := rlLoaded(t)
	c := rlClient(t, s.Addr(), rlLease(3*time.Second)) // silence counts after a second
	bed.Unlock(t, bed.Lock(t, t.Context(), c.RLock("warm")))
	held := bed.Lock(t, t.Context(), c.RLock("held"), redlatch.WithLease(time.Minute))
	s.Freeze(t)
	const wait = 2500 * time.Millisecond
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
			if i%2 == 0 {
				_, errs[i] = l.TryLock(t.Context(), wait, 0)
				return
			}
			ctx, cancel := context.WithTimeout(t.Context(), wait)
			defer cancel()
			_, errs[i] = l.Lock(ctx)
		})
	}
	wg.Wait()
	for i, err := range errs {
		if !waited(err) {
			t.Fatalf("%d: %v, want the end of a wait", i, err)
		}
		if i%2 == 1 && !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("%d: %v, want ctx's error too", i, err)
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
