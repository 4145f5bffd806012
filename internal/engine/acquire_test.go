package engine_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlatch/redlatch/internal/conn"
	"github.com/redlatch/redlatch/internal/engine"
	"github.com/redlatch/redlatch/internal/held"
	"github.com/redlatch/redlatch/internal/luascript"
	"github.com/redlatch/redlatch/lock"
	"github.com/redlatch/redlatch/rlock"
)

// Transient errors are retried, soon at first and at most about a second apart,
// until ctx or the wait ends, and are never taken for busy.
func TestTransientErrorsAreRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, core := newFake(t, leaseTime)
		var tries atomic.Int32
		down := time.Now().Add(time.Minute)
		f.onBefore(func(conn.Command) error {
			if time.Now().Before(down) {
				tries.Add(1)
				return errUnsent
			}
			return nil
		})
		h := take(t, t.Context(), core, "l")
		if late := time.Since(down); late > 2*time.Second {
			t.Errorf("%v after the server was back", late)
		}
		if n := tries.Load(); n < 40 || n > 130 {
			t.Errorf("%d tries in a minute", n)
		}
		if err := h.Unlock(t.Context()); err != nil {
			t.Error(err)
		}

		down = time.Now().Add(time.Hour)
		began := time.Now()
		_, err := engine.Open(new(rlock.RLock), core, "l").TryLock(t.Context(), 10*time.Second, 0)
		if !errors.Is(err, lock.ErrUnavailable) || errors.Is(err, lock.ErrNotAcquired) || !errors.Is(err, errUnsent) {
			t.Errorf("TryLock: %v", err)
		}
		if took := time.Since(began); took != 10*time.Second {
			t.Errorf("a wait of 10 s took %v", took)
		}
		began = time.Now()
		_, err = engine.Open(new(rlock.RLock), core, "l").TryLock(t.Context(), 0, 0)
		if !errors.Is(err, lock.ErrUnavailable) || time.Since(began) != 0 {
			t.Errorf("TryLock without a wait: %v after %v", err, time.Since(began))
		}
		ctx, cancel := context.WithTimeout(t.Context(), 7*time.Second)
		defer cancel()
		_, err = engine.Open(new(rlock.RLock), core, "l").Lock(ctx)
		if !errors.Is(err, lock.ErrUnavailable) || errors.Is(err, lock.ErrNotAcquired) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Lock: %v", err)
		}
		if took := time.Since(began); took != 7*time.Second {
			t.Errorf("ctx of 7 s was heard after %v", took)
		}
	})
}

// A waiter tries, once more when its subscription stands, and then sleeps until
// the holder's lease ends; it looks once a second, for what nobody calls it for.
func TestWaiterLooksWhenTheLeaseEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, core := newFake(t, leaseTime)
		other := second(t, f, leaseTime)
		take(t, t.Context(), other, "l", lock.WithLease(100*time.Second)) // never unlocked
		before := len(f.scripts("acquire"))
		began := time.Now()
		h := take(t, t.Context(), core, "l")
		if took := time.Since(began); took < 100*time.Second || took > 100*time.Second+2*time.Millisecond {
			t.Errorf("waited %v for a lease of 100 s", took)
		}
		if n := len(f.scripts("acquire")) - before; n < 80 || n > 140 {
			t.Errorf("%d tries in 100 s", n)
		}
		if err := h.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

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

// The head of the line gives up at the very moment of the message: the next one
// gets it.
func TestWakeUpIsPassedOn(t *testing.T) {
	for _, delay := range []time.Duration{0, time.Millisecond, 2 * time.Millisecond, 3 * time.Millisecond, 5 * time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			f, core := newFake(t, leaseTime)
			f.latency = time.Millisecond
			h := take(t, t.Context(), core, "l", lock.WithLease(time.Hour))
			ctx, cancel := context.WithCancel(t.Context())
			var wg sync.WaitGroup
			wg.Go(func() {
				if h, err := engine.Open(new(rlock.RLock), core, "l").Lock(ctx); err == nil {
					_ = h.Unlock(ctx)
				}
			})
			time.Sleep(time.Second)
			began := time.Now()
			wg.Go(func() {
				h, err := engine.Open(new(rlock.RLock), core, "l").Lock(context.Background())
				if err != nil {
					t.Error(err)
					return
				}
				if waited := time.Since(began); waited > 2*time.Second {
					t.Errorf("the second waiter entered after %v", waited)
				}
				_ = h.Unlock(context.Background())
			})
			time.Sleep(time.Second)
			go func() { _ = h.Unlock(context.Background()) }()
			time.Sleep(delay)
			cancel()
			wg.Wait()
		})
	}
}

// A grant that arrives after its caller has gone is given back.
func TestLateGrantIsGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, core := newFake(t, leaseTime)
		f.latency = time.Second
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		began := time.Now()
		_, err := engine.Open(new(rlock.RLock), core, "l").Lock(ctx)
		if !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != 500*time.Millisecond {
			t.Fatalf("Lock: %v after %v", err, time.Since(began))
		}
		time.Sleep(501 * time.Millisecond)
		if f.count("l") != 1 {
			t.Fatal("the late grant did not happen, the test shows nothing")
		}
		time.Sleep(2 * time.Second)
		if f.count("l") != 0 {
			t.Error("the late grant was not given back")
		}
	})
}

// The same when its answer is lost: the undoing is repeated until it is answered,
// and late commands of the acquisition are refused.
func TestGivingBackIsRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, core := newFake(t, leaseTime)
		up := time.Now().Add(10 * time.Second)
		f.onAfter(func(conn.Command) error {
			if time.Now().Before(up) {
				return errLost
			}
			return nil
		})
		f.onBefore(func(cmd conn.Command) error {
			if cmd.Script == luascript.Release && time.Now().Before(up) {
				return errUnsent
			}
			return nil
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := engine.Open(new(rlock.RLock), core, "l").Lock(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		if f.count("l") != 1 {
			t.Fatal("nothing to give back, the test shows nothing")
		}
		time.Sleep(13 * time.Second)
		f.mu.Lock()
		voided := len(f.void)
		f.mu.Unlock()
		if f.count("l") != 0 || voided != 1 {
			t.Errorf("count %d, %d acquisitions refused from now on", f.count("l"), voided)
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

// An Unlock whose replies are lost works; one that gets no answer says so after
// UnlockTimeout, and a later one tells what came of it.
func TestUnlockIsRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, core := newFake(t, leaseTime)
		h := take(t, t.Context(), core, "l")
		up := time.Now().Add(2 * time.Second)
		f.onAfter(func(conn.Command) error {
			if time.Now().Before(up) {
				return errLost
			}
			return nil
		})
		if err := h.Unlock(t.Context()); err != nil {
			t.Errorf("a release that worked says %v", err)
		}
		if n := len(f.scripts("release")); n < 3 {
			t.Errorf("%d tries", n)
		}
		f.onAfter(nil)

		h = take(t, t.Context(), core, "l")
		up = time.Now().Add(8 * time.Second)
		f.onBefore(func(conn.Command) error {
			if time.Now().Before(up) {
				return errUnsent
			}
			return nil
		})
		began := time.Now()
		err := h.Unlock(t.Context())
		if !errors.Is(err, lock.ErrUnavailable) || time.Since(began) != 5*time.Second {
			t.Errorf("Unlock: %v after %v", err, time.Since(began))
		}
		if h.Context().Err() == nil {
			t.Error("the hold's context lives on")
		}
		time.Sleep(5 * time.Second)
		if f.count("l") != 0 {
			t.Error("the release did not go on in the background")
		}
		if err := h.Unlock(t.Context()); err != nil {
			t.Errorf("the second Unlock: %v", err)
		}
		if err := h.Unlock(t.Context()); !errors.Is(err, lock.ErrNotHeld) {
			t.Errorf("the third Unlock: %v", err)
		}
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

// What waits for an answer is bounded: acquisitions beyond it have sent nothing
// when they give up.
func TestAcquisitionsUnderWayAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, core := newFake(t, leaseTime)
		var sent atomic.Int32
		f.onBefore(func(cmd conn.Command) error {
			if cmd.Script == luascript.Acquire {
				sent.Add(1)
				time.Sleep(time.Minute)
			}
			return nil
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		var wg sync.WaitGroup
		for i := range 2 * engine.MaxInFlight {
			wg.Go(func() {
				if _, err := engine.Open(new(rlock.RLock), core, fmt.Sprint(i)).Lock(ctx); !errors.Is(err, context.DeadlineExceeded) {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if n := sent.Load(); n == 0 || n > engine.MaxInFlight {
			t.Errorf("%d were sent", n)
		}
		time.Sleep(2 * time.Minute)
		f.mu.Lock()
		defer f.mu.Unlock()
		if len(f.keys) != 0 {
			t.Errorf("%d locks are held", len(f.keys))
		}
	})
}

// Shutdown returns when the last hold is gone; Close beside it frees it.
func TestDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, core := newFake(t, leaseTime)
		h := take(t, t.Context(), core, "l")
		began := time.Now()
		time.AfterFunc(time.Minute, func() { _ = h.Unlock(context.Background()) })
		if err := core.Drain(t.Context()); err != nil || time.Since(began) != time.Minute {
			t.Errorf("Drain: %v after %v", err, time.Since(began))
		}
	})
	synctest.Test(t, func(t *testing.T) {
		f, core := newFake(t, leaseTime)
		h := take(t, t.Context(), core, "l")
		inner := take(t, h.Context(), core, "l")
		f.onBefore(func(conn.Command) error { return errUnsent })
		for _, h := range []lock.Hold{h, inner} { // one can't be delivered, the other waits behind it
			go func() { _ = h.Unlock(context.Background()) }()
		}
		time.AfterFunc(time.Second, func() { core.Close() })
		began := time.Now()
		if err := core.Drain(t.Context()); err != nil || time.Since(began) != time.Second {
			t.Errorf("Drain beside Close: %v after %v", err, time.Since(began))
		}
	})
}

// The gate lets in one at a time, in order; who stops waiting passes it on.
func TestGate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g held.Gate
		if !g.TryEnter() || g.TryEnter() {
			t.Fatal("TryEnter")
		}
		var order []int
		var wg sync.WaitGroup
		ctx, cancel := context.WithCancel(t.Context())
		stop := make(chan struct{})
		for i := range 6 {
			wg.Go(func() {
				switch i {
				case 2:
					if g.Enter(ctx, nil) {
						t.Error("entered after ctx had ended")
					}
				case 4:
					if g.Enter(context.Background(), stop) {
						t.Error("entered after the stop")
					}
				default:
					if !g.Enter(context.Background(), nil) {
						t.Error("not entered")
					}
					order = append(order, i)
					g.Leave()
				}
			})
			synctest.Wait()
		}
		cancel()
		close(stop)
		synctest.Wait()
		g.Leave()
		wg.Wait()
		if fmt.Sprint(order) != "[0 1 3 5]" {
			t.Errorf("order %v", order)
		}
		if !g.TryEnter() {
			t.Error("the gate was not left")
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
			owner := field[:len(field)-len(field[lastDash(field):])]
			if other, ok := seen[owner]; ok {
				t.Errorf("%q and %q share %q", id, other, owner)
			}
			seen[owner] = id
			rest := owner[len("00000000-0000-0000-0000-00000000000c:"):]
			for _, ch := range rest {
				if ch == ' ' || ch == ':' || ch == '-' {
					t.Errorf("%q has %q", owner, ch)
				}
			}
			if rest[0] != 'g' {
				t.Errorf("%q does not begin with g", rest)
			}
		}
	})
}

func lastDash(s string) int {
	for i := len(s) - 1; i >= 0; i-- {
		if s[i] == '-' {
			return i
		}
	}
	return len(s)
}
