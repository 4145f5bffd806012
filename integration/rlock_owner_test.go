package integration

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
)

// Ownership: who re-enters and who is excluded.

// Goroutines that share a lock object exclude each other.
func TestRLockGoroutinesThatShareALockObjectExcludeEachOther(t *testing.T) {
	s := rlServer(t)
	l := rlClient(t, s.Addr()).RLock("shared")
	var inside, most atomic.Int32
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 20 {
				h, err := l.Lock(t.Context())
				if err != nil {
					t.Error(err)
					return
				}
				if n := inside.Add(1); n > most.Load() {
					most.Store(n)
				}
				runtime.Gosched()
				inside.Add(-1)
				if err := h.Unlock(t.Context()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if most.Load() != 1 {
		t.Errorf("%d goroutines were inside at once", most.Load())
	}
}

// Whoever has the hold's context re-enters, and the lock is free when each hold is unlocked.
func TestRLockReentersThroughTheHoldsContext(t *testing.T) {
	s := rlServer(t)
	c := rlClient(t, s.Addr())
	first := rlLock(t, t.Context(), c.RLock("orders"))
	second := rlLock(t, first.Context(), c.RLock("orders")) // another lock object
	third := rlLock(t, second.Context(), c.RLock("orders"))
	if n := rlCount(t, s, "orders"); n != 3 {
		t.Fatalf("count %d on the server, want 3", n)
	}
	st, err := c.RLock("orders").State(t.Context())
	if err != nil || !st.Held || len(st.Owners) != 1 || st.Owners[0].Count != 3 || st.Mode != redlatch.ModeLock {
		t.Fatalf("State %+v, %v", st, err)
	}
	// In any order, each once; a stranger stays out until the last.
	for i, h := range []redlatch.Hold{first, third, second} {
		if _, err := c.RLock("orders").TryLock(t.Context(), 0, 0); !errors.Is(err, redlatch.ErrNotAcquired) {
			t.Fatalf("a stranger's TryLock: %v", err)
		}
		rlUnlock(t, h)
		if n := rlCount(t, s, "orders"); n != 2-i {
			t.Fatalf("count %d after %d unlocks", n, i+1)
		}
		if h.Context().Err() == nil {
			t.Fatal("the hold's context lives after Unlock")
		}
		rlWant(t, h.Unlock(t.Context()), redlatch.ErrNotHeld)
	}
	rlUnlock(t, rlLock(t, t.Context(), c.RLock("orders")))
}

// The inner unlock must not stop the renewal of the outer hold, nor a nested
// acquisition leak a second renewal.
func TestRLockInnerUnlockKeepsTheOuterHoldRenewed(t *testing.T) {
	t.Parallel()
	s := rlServer(t)
	c := rlClient(t, s.Addr(), rlLease(5*time.Second))
	outer := rlLock(t, t.Context(), c.RLock("l"))
	for range 3 {
		rlUnlock(t, rlLock(t, outer.Context(), c.RLock("l")))
	}
	for end := time.Now().Add(11 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		rlAlive(t, outer)
		if s.Int(t, "EXISTS", "l") != 1 {
			t.Fatal("the key is gone")
		}
	}
	rlUnlock(t, outer)
}

// Any goroutine may unlock a hold.
func TestRLockUnlockFromAnotherGoroutine(t *testing.T) {
	s := rlServer(t)
	h := rlLock(t, t.Context(), rlClient(t, s.Addr()).RLock("l"))
	done := make(chan error)
	go func() { done <- h.Unlock(context.Background()) }()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

// Nested holds that are unlocked at the same time are released one after the
// other; none of them may hear that the lease was lost.
func TestRLockNestedHoldsUnlockedAtTheSameTime(t *testing.T) {
	s := rlServer(t)
	l := rlClient(t, s.Addr()).RLock("l")
	for range 50 {
		holds := []redlatch.Hold{rlLock(t, t.Context(), l)}
		for len(holds) < 4 {
			holds = append(holds, rlLock(t, holds[0].Context(), l))
		}
		var wg sync.WaitGroup
		for _, h := range holds {
			wg.Go(func() {
				if err := h.Unlock(context.Background()); err != nil {
					t.Errorf("Unlock: %v", err)
				}
			})
		}
		wg.Wait()
		if n := s.Int(t, "EXISTS", "l"); n != 0 {
			t.Fatal("the key is still there")
		}
	}
}

// An owner of one's own re-enters wherever its id is given.
func TestRLockExplicitOwnerReenters(t *testing.T) {
	s := rlServer(t)
	c := rlClient(t, s.Addr())
	ctx := redlatch.WithOwner(t.Context(), "job 7:a-b{}é")
	h1 := rlLock(t, ctx, c.RLock("l"))
	h2 := rlLock(t, ctx, c.RLock("l"))
	h3 := rlLock(t, h2.Context(), c.RLock("l")) // the hold's context carries it, too
	if n := rlCount(t, s, "l"); n != 3 {
		t.Fatalf("count %d", n)
	}
	other := redlatch.WithOwner(t.Context(), "job 8")
	if _, err := c.RLock("l").TryLock(other, 0, 0); !errors.Is(err, redlatch.ErrNotAcquired) {
		t.Fatalf("another owner: %v", err)
	}
	for _, h := range []redlatch.Hold{h1, h2, h3} {
		rlUnlock(t, h)
	}
	rlUnlock(t, rlLock(t, other, c.RLock("l")))
	for _, id := range []string{"", string(make([]byte, 257))} {
		_, err := c.RLock("l").Lock(redlatch.WithOwner(t.Context(), id))
		rlWant(t, err, redlatch.ErrInvalidOption)
	}
}

// Goroutines of one owner acquire, re-enter and release at random: the count on
// the server is right at every moment that can be looked at.
func TestRLockOneOwnerInManyGoroutines(t *testing.T) {
	s := rlServer(t)
	c := rlClient(t, s.Addr())
	ctx := redlatch.WithOwner(t.Context(), "one")
	for range 20 {
		start := make(chan struct{})
		holds := make(chan redlatch.Hold, 8)
		for range cap(holds) {
			go func() {
				<-start
				h, err := c.RLock("l").Lock(ctx)
				if err != nil {
					t.Error(err)
				}
				holds <- h
			}()
		}
		close(start)
		var all []redlatch.Hold
		for range cap(holds) {
			h := <-holds
			if h == nil {
				t.FailNow()
			}
			all = append(all, h)
		}
		if n := rlCount(t, s, "l"); n != len(all) {
			t.Fatalf("count %d, want %d", n, len(all))
		}
		var wg sync.WaitGroup
		for _, h := range all[1:] {
			wg.Go(func() {
				if err := h.Unlock(ctx); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if n := rlCount(t, s, "l"); n != 1 {
			t.Fatalf("count %d, want 1", n)
		}
		rlUnlock(t, all[0])
	}
}

// Two goroutines of one owner that wait for a stranger enter together: the one that gets the lock
// first lets the other in at once, although no message comes and the new holder's lease is long.
func TestRLockWaitersOfOneOwnerEnterTogether(t *testing.T) {
	s := rlServer(t)
	c := rlClient(t, s.Addr())
	for range 10 {
		stranger := rlLock(t, t.Context(), c.RLock("l"))
		ctx := redlatch.WithOwner(t.Context(), "one")
		a, b := rlAsync(ctx, c.RLock("l")), rlAsync(ctx, c.RLock("l"))
		rlSubscribed(t, s, "l", 1)
		rlUnlock(t, stranger)
		ra, rb := rlGet(t, a), rlGet(t, b)
		if ra.err != nil || rb.err != nil {
			t.Fatal(ra.err, rb.err)
		}
		rlUnlock(t, ra.hold)
		rlUnlock(t, rb.hold)
	}
}

// A new owner is excluded, also within the context of a hold.
func TestRLockNewOwnerIsExcluded(t *testing.T) {
	s := rlServer(t)
	c := rlClient(t, s.Addr())
	h := rlLock(t, t.Context(), c.RLock("l"))
	if _, err := c.RLock("l").TryLock(redlatch.NewOwner(h.Context()), 0, 0); !errors.Is(err, redlatch.ErrNotAcquired) {
		t.Fatalf("a child with an owner of its own: %v", err)
	}
	// The owner flows on to other locks; the end of h's context does not.
	child := rlLock(t, context.WithoutCancel(h.Context()), c.RLock("other"))
	rlUnlock(t, h)
	again := rlLock(t, child.Context(), c.RLock("other"))
	if n := rlCount(t, s, "other"); n != 2 {
		t.Errorf("count %d: a hold that lives carries its owner", n)
	}
	rlUnlock(t, again)
	rlUnlock(t, child)
}

// An inherited owner means nothing once its last hold is gone: contexts that
// were kept exclude each other then.
func TestRLockInheritedOwnerEndsWithItsHolds(t *testing.T) {
	s := rlServer(t)
	c := rlClient(t, s.Addr())
	h := rlLock(t, t.Context(), c.RLock("first"))
	kept := context.WithoutCancel(h.Context())
	rlUnlock(t, h)
	a := rlLock(t, kept, c.RLock("l"))
	if _, err := c.RLock("l").TryLock(kept, 0, 0); !errors.Is(err, redlatch.ErrNotAcquired) {
		t.Fatalf("a context whose owner is gone: %v", err)
	}
	rlUnlock(t, a)
}

// Two clients exclude each other, though both have the hold's context.
func TestRLockTwoClientsWithOneContextExclude(t *testing.T) {
	s := rlServer(t)
	c1, c2 := rlClient(t, s.Addr()), rlClient(t, s.Addr())
	for name, ctx := range map[string]context.Context{
		"inherited": t.Context(), "explicit": redlatch.WithOwner(t.Context(), "same"),
	} {
		t.Run(name, func(t *testing.T) {
			h1 := rlLock(t, ctx, c1.RLock("l"))
			if _, err := c2.RLock("l").TryLock(h1.Context(), 0, 0); !errors.Is(err, redlatch.ErrNotAcquired) {
				t.Fatalf("the other client: %v", err)
			}
			// The same context on both clients, on locks of their own.
			a := rlLock(t, h1.Context(), c1.RLock("a"))
			b := rlLock(t, h1.Context(), c2.RLock("b"))
			a2, b2 := rlLock(t, b.Context(), c1.RLock("a")), rlLock(t, a.Context(), c2.RLock("b"))
			if rlCount(t, s, "a") != 2 || rlCount(t, s, "b") != 2 || rlCount(t, s, "l") != 1 {
				t.Errorf("counts %d %d %d", rlCount(t, s, "a"), rlCount(t, s, "b"), rlCount(t, s, "l"))
			}
			for _, h := range []redlatch.Hold{a, b, a2, b2, h1} {
				rlUnlock(t, h)
			}
			rlUnlock(t, rlLock(t, ctx, c2.RLock("l")))
		})
	}
}
