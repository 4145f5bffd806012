package engine_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlatch/redlatch/internal/conn"
	"github.com/redlatch/redlatch/internal/engine"
	"github.com/redlatch/redlatch/internal/luascript"
	"github.com/redlatch/redlatch/lock"
	"github.com/redlatch/redlatch/rlock"
)

// The inner Unlock's reply is lost, and the key with it: that the field is gone
// can't be the first try's doing, which leaves the outer hold's count.
func TestPartialReleaseThatFindsTheKeyGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, core := newFake(t, leaseTime)
		outer := take(t, t.Context(), core, "l")
		inner := take(t, outer.Context(), core, "l")
		lost := false
		f.onAfter(func(cmd conn.Command) error {
			if cmd.Script == luascript.Release && !lost {
				lost = true
				f.mu.Lock()
				delete(f.keys, "l")
				f.mu.Unlock()
				return errLost
			}
			return nil
		})
		began := time.Now()
		if err := inner.Unlock(context.Background()); !errors.Is(err, lock.ErrLeaseLost) {
			t.Errorf("Unlock: %v", err)
		}
		if took := lostAt(t, outer, lock.LossGone).Sub(began); took > time.Second {
			t.Errorf("the outer hold heard of it after %v", took)
		}
	})
}

// A hold whose own lease passes while its Unlock waits behind another command is
// released all the same: the key was the owner's until then.
func TestPartialReleaseBesideAHoldThatIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, core := newFake(t, leaseTime)
		outer := take(t, t.Context(), core, "l")
		inner := take(t, outer.Context(), core, "l", lock.WithLease(time.Second))
		f.onBefore(func(cmd conn.Command) error {
			if cmd.Script == luascript.Reenter { // keeps the gate until the inner lease is over
				time.Sleep(2 * time.Second)
			}
			return nil
		})
		extended, released := make(chan error, 1), make(chan error, 2)
		go func() { extended <- outer.Extend(context.Background(), leaseTime) }()
		synctest.Wait()
		go func() { released <- outer.Unlock(context.Background()) }()
		synctest.Wait()
		go func() { released <- inner.Unlock(context.Background()) }()
		if err := <-extended; err != nil {
			t.Logf("Extend beside Unlock: %v", err)
		}
		if err := <-released; err != nil {
			t.Errorf("outer Unlock: %v", err)
		}
		if err := <-released; err != nil {
			t.Errorf("inner Unlock: %v", err)
		}
		n := 0
		f.mu.Lock()
		if f.keys["l"] != nil {
			t.Error("the key is still there")
		}
		for _, r := range f.ran {
			if r.script == "release" {
				n++
			}
		}
		f.mu.Unlock()
		if n != 2 || core.Holding() != 0 {
			t.Errorf("%d releases, %d held", n, core.Holding())
		}
	})
}

// tooLate reports whether err says that a grant of a healthy server came after its own lease.
func tooLate(err error) bool {
	return errors.Is(err, lock.ErrNotAcquired) && !errors.Is(err, lock.ErrUnavailable) &&
		strings.Contains(err.Error(), "came after the lease had run out")
}

// A lease shorter than the round trip can't be had: that is no outage, and leaves nothing behind.
func TestGrantThatIsAlwaysTooLateIsNoOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, core := newFake(t, leaseTime)
		f.latency = 5 * time.Millisecond
		for _, wait := range []time.Duration{0, time.Second} {
			if h, err := engine.Open(new(rlock.RLock), core, "l").TryLock(t.Context(), wait, 5*time.Millisecond); !tooLate(err) {
				t.Error(wait, h, err)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if h, err := engine.Open(new(rlock.RLock), core, "l").Lock(ctx, lock.WithLease(5*time.Millisecond)); !tooLate(err) || !errors.Is(err, context.DeadlineExceeded) {
			t.Error(h, err)
		}
		f.onBefore(func(conn.Command) error { return errUnsent }) // that is one
		if h, err := engine.Open(new(rlock.RLock), core, "l").TryLock(t.Context(), 0, 5*time.Millisecond); !errors.Is(err, lock.ErrUnavailable) {
			t.Error(h, err)
		}
		f.onBefore(nil)
		time.Sleep(leaseTime)
		if f.count("l") != 0 || core.Holding() != 0 {
			t.Errorf("count %d, %d held", f.count("l"), core.Holding())
		}
	})
}

// A lease shorter than the round trip can't be re-entered with: no reason to ask
// the server without pause, nor to call one unavailable that answers.
func TestReentryThatIsAlwaysTooLateIsNoHotLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, core := newFake(t, leaseTime)
		f.latency = 5 * time.Millisecond
		outer := take(t, t.Context(), core, "l")
		ctx, cancel := context.WithTimeout(outer.Context(), 10*time.Second)
		defer cancel()
		before := len(f.scripts("reenter"))
		if h, err := engine.Open(new(rlock.RLock), core, "l").Lock(ctx, lock.WithLease(5*time.Millisecond)); !errors.Is(err, lock.ErrNotAcquired) || errors.Is(err, lock.ErrUnavailable) {
			t.Fatal(h, err)
		}
		if n := len(f.scripts("reenter")) - before; n > 30 {
			t.Errorf("%d commands in ten seconds", n)
		}
		began := time.Now()
		if h, err := engine.Open(new(rlock.RLock), core, "l").TryLock(outer.Context(), 0, 5*time.Millisecond); !tooLate(err) {
			t.Fatal(h, err)
		}
		if took := time.Since(began); took > time.Second {
			t.Errorf("one attempt took %v", took)
		}
		if err := outer.Unlock(context.Background()); err != nil {
			t.Error(err)
		}
	})
}
