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

// What was asked of the old server for longer than its last write that the new one has is
// asked of that one, too: else it would free the lock while the holder counts on it.
func TestLongLeasesAreAskedForAgainAfterAMove(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, core := newFake(t, leaseTime)
		fixed := take(t, t.Context(), core, "fixed", lock.WithLease(time.Hour))
		longer := take(t, t.Context(), core, "longer")
		if err := longer.Extend(t.Context(), time.Hour); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		f.mu.Lock()
		for _, k := range f.keys {
			k.ends = time.Now().Add(leaseTime / 2)
		}
		f.mu.Unlock()
		core.Moved()
		synctest.Wait()
		f.mu.Lock()
		for name, h := range map[string]lock.Hold{"fixed": fixed, "longer": longer} {
			if early := h.ValidUntil().Sub(f.keys[name].ends); early > 0 {
				t.Errorf("%s: the server frees it %v before its holder's deadline", name, early)
			}
			if late := f.keys[name].ends.Sub(h.ValidUntil()); late > time.Hour/50 {
				t.Errorf("%s: it lasts for %v after its holder's deadline", name, late)
			}
		}
		f.mu.Unlock()
	})
}

// An Extend that the old server answered does not count: the new one is asked.
func TestExtendUnderWayAtAMoveAsksTheNewServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, core := newFake(t, leaseTime)
		h := take(t, t.Context(), core, "l", lock.WithLease(leaseTime))
		f.latency = 100 * time.Millisecond
		old := time.Now().Add(leaseTime)
		time.AfterFunc(f.latency*3/2, func() {
			f.mu.Lock()
			f.keys["l"].ends = old
			f.mu.Unlock()
			core.Moved()
		})
		if err := h.Extend(t.Context(), time.Hour); err != nil {
			t.Fatal(err)
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		if early := h.ValidUntil().Sub(f.keys["l"].ends); early > 0 {
			t.Errorf("the server frees it %v before its holder's deadline", early)
		}
	})
}
