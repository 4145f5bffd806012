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

// A ForceUnlock of this very client that ended holds of its own: they are checked at once, those
// of other locks when they are due, and what the check finds decides.
func TestForcedUnlockChecksTheClientsOwnHoldsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, core := newFake(t, leaseTime)
		f.latency = time.Millisecond
		victim := take(t, t.Context(), core, "l")
		fixed := take(t, t.Context(), core, "fixed", lock.WithLease(time.Hour))
		bystander := take(t, t.Context(), core, "m")
		began := time.Now()
		forced(core, f, "l", inspect.Evicted{Count: 1})
		next := take(t, t.Context(), core, "l") // another owner of this client
		if took := lostAt(t, victim, lock.LossGone).Sub(began); took > 5*time.Millisecond {
			t.Errorf("the evicted one was told after %v", took)
		}
		began = time.Now()
		forced(core, f, "fixed", inspect.Evicted{Count: 1})
		if took := lostAt(t, fixed, lock.LossGone).Sub(began); took > 5*time.Millisecond {
			t.Errorf("the one with a fixed lease was told after %v", took)
		}
		for _, r := range f.scripts("renew") {
			if r.keys != 1 {
				t.Errorf("a check of %d locks", r.keys)
			}
		}
		core.Doubt("l")(true, inspect.Evicted{Count: 17, Owners: []string{"somebody"}}) // not all are named
		time.Sleep(10 * time.Millisecond)
		core.Doubt("l")(false, inspect.Evicted{}) // it may have run
		time.Sleep(10 * time.Millisecond)
		if n := len(f.scripts("renew")); n != 4 {
			t.Errorf("%d checks, want one for each forced unlock", n)
		}
		core.Doubt("l")(true, inspect.Evicted{Count: 1, Owners: []string{"somebody"}})
		time.Sleep(10 * time.Millisecond)
		if n := len(f.scripts("renew")); n != 4 {
			t.Errorf("%d checks: the last one ended nothing of this client's", n)
		}
		for _, h := range []lock.Hold{next, bystander} {
			if err := h.Context().Err(); err != nil {
				t.Errorf("%s: %v", h.Name(), err)
			}
			if err := h.Unlock(context.Background()); err != nil {
				t.Error(err)
			}
		}
	})
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
