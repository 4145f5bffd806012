package engine_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlatch/redlatch/internal/conn"
	"github.com/redlatch/redlatch/internal/engine"
	"github.com/redlatch/redlatch/internal/luascript"
	"github.com/redlatch/redlatch/lock"
	"github.com/redlatch/redlatch/rlock"
)

// A release that can't be delivered is tried until the latest end that a command may have set: one that ran
// long after it was sent set it from then on. So nothing stays held for nobody.
func TestAReleaseIsTriedAsLongAsALateCommandLasts(t *testing.T) {
	const lease = 30 * time.Second
	late := func(t *testing.T, script *luascript.Script, began func(*testing.T, *engine.Core) lock.Hold, answered time.Duration, answer error) {
		t.Helper()
		synctest.Test(t, func(t *testing.T) {
			f, core := newFake(t, lease)
			start := time.Now()
			at := func(d time.Duration) { time.Sleep(time.Until(start.Add(d))) }
			var cut atomic.Bool // nothing but the late command reaches the server
			f.onBefore(func(cmd conn.Command) error {
				switch {
				case cmd.Script == script:
					at(19 * time.Second) // it is held back
				case cut.Load():
					return errUnsent
				}
				return nil
			})
			f.onAfter(func(cmd conn.Command) error {
				if cmd.Script != script {
					return nil
				}
				at(answered)
				return answer
			})
			h := began(t, core)
			at(20 * time.Second)
			cut.Store(true)
			if err := h.Unlock(context.Background()); !errors.Is(err, lock.ErrUnavailable) {
				t.Errorf("Unlock: %v", err)
			}
			at(45 * time.Second) // a lease and more after the sending; the late command's lasts until 49 s
			if f.count("l") == 0 {
				t.Fatal("the late command did not keep the lock")
			}
			cut.Store(false)
			at(47 * time.Second)
			if f.count("l") != 0 {
				t.Error("the lock is held for nobody")
			}
		})
	}
	t.Run("acquisition", func(t *testing.T) {
		late(t, luascript.Acquire, func(t *testing.T, core *engine.Core) lock.Hold {
			return take(t, t.Context(), core, "l", lock.WithLease(lease))
		}, 0, nil)
	})
	for _, c := range []struct {
		name     string
		answered time.Duration
		answer   error
	}{{"answered", 0, nil}, {"answer lost", 0, errLost}, {"no answer for a lease", 43 * time.Second, errLost}} {
		t.Run("renewal/"+c.name, func(t *testing.T) {
			late(t, luascript.Renew, func(t *testing.T, core *engine.Core) lock.Hold {
				return take(t, t.Context(), core, "l")
			}, c.answered, c.answer)
		})
		t.Run("re-entry that nobody waits for/"+c.name, func(t *testing.T) {
			late(t, luascript.Reenter, func(t *testing.T, core *engine.Core) lock.Hold {
				h := take(t, t.Context(), core, "l", lock.WithLease(lease))
				ctx, cancel := context.WithTimeout(h.Context(), 10*time.Second)
				defer cancel()
				if _, err := engine.Open(new(rlock.RLock), core, "l").Lock(ctx); err == nil {
					t.Error("the re-entry was answered")
				}
				return h
			}, c.answered, c.answer)
		})
		t.Run("extension that nobody waits for/"+c.name, func(t *testing.T) {
			late(t, luascript.Reenter, func(t *testing.T, core *engine.Core) lock.Hold {
				h := take(t, t.Context(), core, "l", lock.WithLease(lease))
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				if err := h.Extend(ctx, lease); err == nil {
					t.Error("Extend was answered")
				}
				return h
			}, c.answered, c.answer)
		})
	}
}
