package engine_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlatch/redlatch/lock"
)

// TestGoneWakesThoseWhoWait: the server knows nothing of a lock any more, and no message has said that
// it is free. Whatever command of this process finds that, those of the process who wait for the lock
// go on at once, but not before the holder's context has ended.
func TestGoneWakesThoseWhoWait(t *testing.T) {
	for name, find := range map[string]func(t *testing.T, h lock.Hold) error{
		"a check": func(_ *testing.T, h lock.Hold) error {
			<-h.Context().Done()
			return context.Cause(h.Context())
		},
		"Extend": func(t *testing.T, h lock.Hold) error { return h.Extend(t.Context(), time.Hour) },
		"Unlock": func(t *testing.T, h lock.Hold) error { return h.Unlock(t.Context()) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f, core := newFake(t, leaseTime)
				h := take(t, t.Context(), core, "l", lock.WithLease(time.Hour)) // as long as those who wait would sleep
				got := make(chan time.Time, 2)
				for range cap(got) {
					go func() {
						next := take(t, t.Context(), core, "l")
						if h.Context().Err() == nil {
							t.Error("two are inside")
						}
						at := time.Now()
						if err := next.Unlock(context.Background()); err != nil {
							t.Error(err)
						}
						got <- at
					}()
				}
				time.Sleep(time.Minute)
				f.mu.Lock()
				delete(f.keys, "l")
				f.mu.Unlock()
				if err := find(t, h); !errors.Is(err, lock.ErrLeaseLost) {
					t.Errorf("it is said to be %v", err)
				}
				found := time.Now()
				for range cap(got) {
					if late := (<-got).Sub(found); late > time.Second {
						t.Errorf("the lock was free for %v since it was found to be", late)
					}
				}
				_ = h.Unlock(context.Background())
			})
		})
	}
}
