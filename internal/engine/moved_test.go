package engine_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlatch/redlatch/internal/conn"
	"github.com/redlatch/redlatch/internal/luascript"
	"github.com/redlatch/redlatch/lock"
)

// The keys are on another server, where the lease ends earlier than what the last
// answer promised: it is renewed there at once.
func TestMovedLocksAreRenewedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, core := newFake(t, leaseTime)
		h := take(t, t.Context(), core, "l")
		fixed := take(t, t.Context(), core, "fixed", lock.WithLease(leaseTime))
		time.Sleep(4 * time.Second)
		f.mu.Lock()
		f.keys["l"].ends = time.Now().Add(10 * time.Millisecond)
		delete(f.keys, "fixed")
		f.mu.Unlock()
		core.Moved()
		began := time.Now()
		if at := lostAt(t, fixed, lock.LossGone); at != began {
			t.Errorf("a lock that is not there was found out after %v", at.Sub(began))
		}
		time.Sleep(time.Second)
		if f.count("l") != 1 || h.Context().Err() != nil {
			t.Fatal("lost: it was not renewed at once")
		}
		if err := h.Unlock(context.Background()); err != nil {
			t.Error(err)
		}
	})
}

// A renewal under way at the move may have been answered by the old server: it does
// not count, and another follows at once.
func TestRenewalUnderWayAtAMoveDoesNotCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, core := newFake(t, leaseTime)
		h := take(t, t.Context(), core, "l")
		const held = 3 * time.Second
		stuck := make(chan struct{})
		first := true
		f.onAfter(func(cmd conn.Command) error {
			if cmd.Script == luascript.Renew && first {
				first = false
				close(stuck)
				time.Sleep(held)
			}
			return nil
		})
		before := h.ValidUntil()
		<-stuck
		time.Sleep(held / 2)
		core.Moved()
		// From here on the new server answers: nothing.
		f.onBefore(func(conn.Command) error { return errLost })
		time.Sleep(held)
		if !h.ValidUntil().Equal(before) {
			t.Errorf("the old server's answer moved the deadline by %v", h.ValidUntil().Sub(before))
		}
		f.onBefore(nil)
		time.Sleep(2 * time.Second)
		renewed := f.scripts("renew")
		if len(renewed) < 2 || !h.ValidUntil().After(before) {
			t.Errorf("%d renewals; the deadline moved by %v", len(renewed), h.ValidUntil().Sub(before))
		}
	})
}

// A grant of the old server that arrives after the move was noticed is checked at once.
func TestGrantUnderWayAtAMoveIsChecked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, core := newFake(t, leaseTime)
		f.latency = 100 * time.Millisecond
		time.AfterFunc(150*time.Millisecond, core.Moved)
		h := take(t, t.Context(), core, "l")
		f.mu.Lock()
		delete(f.keys, "l") // the new server never heard of it
		f.mu.Unlock()
		began := time.Now()
		if took := lostAt(t, h, lock.LossGone).Sub(began); took > 3*f.latency {
			t.Errorf("found out after %v", took)
		}
	})
}
