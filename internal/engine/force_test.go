package engine_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlatch/redlatch/internal/conn"
	"github.com/redlatch/redlatch/internal/engine"
	"github.com/redlatch/redlatch/internal/inspect"
	"github.com/redlatch/redlatch/internal/luascript"
	"github.com/redlatch/redlatch/lock"
)

// forced takes a lock away as a ForceUnlock of the client does; e is what it is told, without the owners.
func forced(core *engine.Core, f *fakeRedis, key string, e inspect.Evicted) {
	over := core.Doubt(key)
	f.mu.Lock()
	if k := f.find(key); k != nil {
		e.Owners = append(e.Owners, k.field)
		delete(f.keys, key)
	}
	f.mu.Unlock()
	over(true, e)
}

// A renewal that ran before the lock was taken away, and has no answer yet, does not put the
// check off.
func TestForcedUnlockBesideARenewalUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, core := newFake(t, leaseTime)
		f.latency = time.Millisecond
		victim := take(t, t.Context(), core, "l")
		renewing := make(chan struct{})
		held := false
		f.onAfter(func(cmd conn.Command) error {
			if cmd.Script == luascript.Renew && !held {
				held = true
				close(renewing)
				time.Sleep(leaseTime / 6)
			}
			return nil
		})
		<-renewing
		began := time.Now()
		forced(core, f, "l", inspect.Evicted{Count: 1})
		if took := lostAt(t, victim, lock.LossGone).Sub(began); took > 5*time.Millisecond {
			t.Errorf("the evicted one was told after %v", took)
		}
		time.Sleep(leaseTime) // the answer came, and changed nothing
		if core.Holding() != 0 || core.Scheduled() != 0 {
			t.Errorf("%d held, %d scheduled", core.Holding(), core.Scheduled())
		}
	})
}

// The check of a server that does not answer ends nothing by itself.
func TestForcedUnlockWhoseCheckFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, core := newFake(t, leaseTime)
		h := take(t, t.Context(), core, "l")
		field := func() string {
			f.mu.Lock()
			defer f.mu.Unlock()
			return f.keys["l"].field
		}()
		f.onBefore(func(cmd conn.Command) error {
			if cmd.Script == luascript.Renew {
				return errUnsent
			}
			return nil
		})
		core.Doubt("l")(true, inspect.Evicted{Count: 1, Owners: []string{field}}) // of a reader who stays, say
		time.Sleep(leaseTime / 2)
		f.onBefore(nil)
		time.Sleep(2 * leaseTime)
		if err := h.Context().Err(); err != nil {
			t.Error(err, context.Cause(h.Context()))
		}
		if err := h.Unlock(context.Background()); err != nil {
			t.Error(err)
		}
	})
}
