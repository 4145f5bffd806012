package engine_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlatch/redlatch/internal/conn"
	"github.com/redlatch/redlatch/internal/engine"
	"github.com/redlatch/redlatch/lock"
)

// A living process leaves no lease behind that is longer than what its last hold
// lasted, whichever hold had asked for it.
func TestTheLongerLeaseOfAReleasedHoldIsNotLeftBehind(t *testing.T) {
	t.Run("a watched one's", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			f, core := newFake(t, leaseTime)
			own := engine.WithOwner(t.Context(), "x")
			outer := take(t, own, core, "l")
			inner := take(t, own, core, "l", lock.WithLease(leaseTime+time.Second))
			time.Sleep(leaseTime) // renewed
			if err := outer.Unlock(context.Background()); err != nil {
				t.Error(err)
			}
			lostAt(t, inner, lock.LossExpired)
			time.Sleep(time.Second)
			if f.count("l") != 0 {
				t.Error("the key is left")
			}
		})
	})
	t.Run("the server was away at the last Unlock", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			f, core := newFake(t, leaseTime)
			outer := take(t, t.Context(), core, "l", lock.WithLease(2*time.Second))
			inner := take(t, outer.Context(), core, "l", lock.WithLease(time.Hour))
			if err := inner.Unlock(context.Background()); err != nil {
				t.Error(err)
			}
			f.onBefore(func(conn.Command) error { return errUnsent })
			if err := outer.Unlock(context.Background()); !errors.Is(err, lock.ErrUnavailable) {
				t.Errorf("Unlock: %v", err)
			}
			f.onBefore(nil)
			time.Sleep(5 * time.Second)
			if f.count("l") != 0 {
				t.Error("the key is left for an hour")
			}
		})
	})
}

// An Unlock that gave up waiting, whose release then found the lock gone: the next
// Unlock says so.
func TestALossFoundByAnUnlockThatGaveUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, core := newFake(t, time.Minute)
		h := take(t, t.Context(), core, "l")
		f.mu.Lock()
		delete(f.keys, "l")
		f.mu.Unlock()
		f.onBefore(func(conn.Command) error {
			time.Sleep(6 * time.Second) // UnlockTimeout is 5 s
			return nil
		})
		if err := h.Unlock(context.Background()); !errors.Is(err, lock.ErrUnavailable) {
			t.Errorf("Unlock: %v", err)
		}
		time.Sleep(2 * time.Second)
		if err := h.Unlock(context.Background()); !errors.Is(err, lock.ErrLeaseLost) {
			t.Errorf("the next Unlock: %v", err)
		}
		if err := h.Unlock(context.Background()); !errors.Is(err, lock.ErrNotHeld) {
			t.Errorf("the one after that: %v", err)
		}
	})
}
