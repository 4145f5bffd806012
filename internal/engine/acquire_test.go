package engine_test

import (
	"context"
	"errors"
	"strings"
	"sync"
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

// Waiters of a process are served in their order, each with two commands, and
// those who come later don't jump the line.
func TestWaitersAreServedInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, core := newFake(t, leaseTime)
		f.latency = time.Millisecond
		h := take(t, t.Context(), core, "l")
		var mu sync.Mutex
		var order []int
		var wg sync.WaitGroup
		const n = 100
		for i := range n {
			wg.Go(func() {
				h, err := engine.Open(new(rlock.RLock), core, "l").Lock(context.Background())
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				order = append(order, i)
				mu.Unlock()
				time.Sleep(time.Millisecond)
				if err := h.Unlock(context.Background()); err != nil {
					t.Error(err)
				}
			})
			time.Sleep(10 * time.Millisecond) // in line before the next one comes
		}
		time.Sleep(5 * time.Second)
		// The holder, the first waiter, and that one again once it listens and once a second:
		// those behind it ask nothing.
		before := len(f.scripts("acquire"))
		if before > 3+8 {
			t.Errorf("%d tries by %d waiters", before-1, n)
		}
		if err := h.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
		wg.Wait()
		for i, got := range order {
			if got != i {
				t.Fatalf("place %d went to waiter %d", i, got)
			}
		}
		if tries := len(f.scripts("acquire")) - before; tries > 2*n {
			t.Errorf("%d tries for %d turns", tries, n)
		}
	})
}

// An answer that comes after the lease it grants is no grant.
func TestGrantThatCameTooLateIsNoGrant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, core := newFake(t, leaseTime)
		var slow atomic.Bool
		slow.Store(true)
		f.onAfter(func(cmd conn.Command) error {
			if cmd.Script == luascript.Acquire && slow.CompareAndSwap(true, false) {
				time.Sleep(2 * time.Second)
			}
			return nil
		})
		h := take(t, t.Context(), core, "l", lock.WithLease(time.Second))
		if left := time.Until(h.ValidUntil()); left < 900*time.Millisecond {
			t.Errorf("the hold is valid for %v", left)
		}
		if f.count("l") != 1 {
			t.Error("the server knows of no hold")
		}
		lostAt(t, h, lock.LossExpired)
	})
}

// A release that can't be delivered is tried until the lease has run out, and no
// longer; nothing renews the key meanwhile.
func TestUnlockGivesUpWithTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, core := newFake(t, leaseTime)
		h := take(t, t.Context(), core, "l")
		f.onBefore(func(conn.Command) error { return errUnsent })
		if err := h.Unlock(t.Context()); !errors.Is(err, lock.ErrUnavailable) {
			t.Errorf("Unlock: %v", err)
		}
		time.Sleep(leaseTime)
		if core.Holding() != 0 || core.Scheduled() != 0 || f.count("l") != 0 {
			t.Errorf("%d held, %d scheduled, count %d", core.Holding(), core.Scheduled(), f.count("l"))
		}
		if err := h.Unlock(t.Context()); !errors.Is(err, lock.ErrUnavailable) {
			t.Errorf("the second Unlock: %v", err)
		}
	})
}

// While the server can't be reached it is asked again soon at first, and then about once a second.
func TestAServerThatIsAwayIsAskedOnceASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, core := newFake(t, leaseTime)
		tries, down := 0, time.Now().Add(time.Minute)
		f.onBefore(func(conn.Command) error {
			if time.Now().Before(down) {
				tries++
				return errUnsent
			}
			return nil
		})
		h := take(t, t.Context(), core, "l")
		if late := time.Since(down); late > 2*time.Second || tries < 40 || tries > 130 {
			t.Errorf("%d tries in a minute, the last one %v after the server was back", tries, late)
		}
		if err := h.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// No two owner ids share a hash field, and none of them is a generated owner's.
func TestOwnersFields(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, core := newFake(t, leaseTime)
		seen := map[string]string{}
		for _, id := range []string{"a", "A", "a-b", "a b", "a:b", "a%20b", "a%b", "é", "1", "g1", "=", "\x00", ""} {
			ctx := t.Context()
			if id != "" {
				ctx = engine.WithOwner(ctx, id)
			}
			h := take(t, ctx, core, "l")
			f.mu.Lock()
			field := f.keys["l"].field
			f.mu.Unlock()
			if err := h.Unlock(ctx); err != nil {
				t.Error(err)
			}
			owner := strings.TrimPrefix(field[:strings.LastIndexByte(field, '-')], core.ID()+":")
			if other, ok := seen[owner]; ok {
				t.Errorf("%q and %q share %q", id, other, owner)
			}
			seen[owner] = id
			if owner[0] != 'g' || strings.ContainsAny(owner, " :-") {
				t.Errorf("%q is the owner %q", id, owner)
			}
		}
	})
}
