package hazard

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/luascript"
	"github.com/redlatch/redlatch/internal/testbed"
)

// The release of an inner hold lowers the lease to what the outer one needs. When
// a network holds such a command back, so that it comes after the same owner has
// re-entered for longer, it must not lower that lease: nobody would know.
func TestLatePartialReleaseDoesNotShortenALease(t *testing.T) {
	s := server(t)
	p := testbed.NewProxy(t, s.Addr())
	c := dial(t, p.Addr(), leaseTime(20*time.Second))
	scripts := []*luascript.Script{luascript.Release, luascript.RWReadRelease, luascript.RWWriteRelease, luascript.GroupRelease}
	for _, kind := range kinds {
		// A release is up to two commands: one asks how long the lease lasts, the
		// next lowers it.
		for held := range 2 {
			t.Run(fmt.Sprintf("%s/%d", kind.name, held), func(t *testing.T) {
				name := fmt.Sprintf("%s-%d", kind.name, held)
				l := kind.make(c, name)
				warm(t, l)
				outer := take(t, t.Context(), l, redlatch.WithLease(15*time.Second))
				inner := take(t, outer.Context(), l, redlatch.WithLease(time.Hour))
				seen := 0
				late := p.DropRequest(func(args []string) bool {
					for _, script := range scripts {
						if len(args) > 1 && args[1] == script.SHA {
							seen++
							return seen == held+1
						}
					}
					return false
				})
				unlock(t, inner)
				late.Wait(t)
				if left := s.Int(t, "PTTL", name); left > 15_000 || left < 10_000 {
					t.Errorf("after the inner Unlock the key lasts for %d ms, the outer hold's lease is 15 s", left)
				}
				again := take(t, outer.Context(), l, redlatch.WithLease(time.Hour))
				late.Deliver(t)
				if left := s.Int(t, "PTTL", name); left < 3_590_000 {
					t.Errorf("the late release has cut the lease of the next hold to %d ms", left)
				}
				if held == 0 && seen < 3 {
					t.Errorf("%d commands, want the lost one, its retry and the one that lowers", seen)
				}
				unlock(t, again)
				if left := s.Int(t, "PTTL", name); left > 15_000 {
					t.Errorf("after the second inner Unlock the key lasts for %d ms", left)
				}
				unlock(t, outer)
			})
		}
	}
}

// warm puts the kind's scripts on the server, so that each command is one.
func warm(t *testing.T, l redlatch.Locker) {
	t.Helper()
	outer := take(t, t.Context(), l)
	inner := take(t, outer.Context(), l, redlatch.WithLease(time.Hour))
	unlock(t, inner)
	unlock(t, outer)
}

// Nested holds under one watchdog cost one command to release, as ever: there is
// nothing to lower.
func TestPartialReleaseIsOneCommandWhereNothingIsLowered(t *testing.T) {
	s := server(t)
	c := dial(t, s.Addr())
	for _, kind := range kinds {
		l := kind.make(c, kind.name)
		warm(t, l)
		outer := take(t, t.Context(), l)
		inner := take(t, outer.Context(), l)
		before := s.CommandStats(t)
		unlock(t, inner)
		if n := s.CommandStats(t).Sub(before).Calls["evalsha"]; n != 1 {
			t.Errorf("%s: %d commands", kind.name, n)
		}
		unlock(t, outer)
	}
}

// While an inner hold's release gets no answer, it is tried for as long as the
// outer hold lives: were it given up at the inner one's short lease, a command of
// it could come later.
func TestPartialReleaseIsTriedAsLongAsTheOuterHoldLives(t *testing.T) {
	s := server(t)
	p := testbed.NewProxy(t, s.Addr())
	c := dial(t, p.Addr(), leaseTime(20*time.Second), func(c *redlatch.Config) { c.UnlockTimeout = 300 * time.Millisecond })
	l := c.RLock("l")
	outer := take(t, t.Context(), l)
	inner := take(t, outer.Context(), l, redlatch.WithLease(500*time.Millisecond))
	p.Refuse()
	p.Cut()
	is(t, "Unlock", inner.Unlock(context.Background()), redlatch.ErrUnavailable)
	time.Sleep(time.Second) // beyond the inner lease
	if got := s.List(t, "HVALS", "l"); len(got) != 1 || got[0] != "2" {
		t.Fatalf("count %q before the server can be reached again", got)
	}
	p.Admit(t)
	eventually(t, "the release", func() bool { return s.List(t, "HVALS", "l")[0] == "1" })
	if outer.Context().Err() != nil {
		t.Error("the outer hold was lost")
	}
	is(t, "the second Unlock", inner.Unlock(context.Background()), nil)
	unlock(t, outer)
}

// Who gives up a re-entry for a long lease, or an extension, while its answer is on
// the way, leaves nothing of it behind: the lock lasts as long as the holds that
// live need it.
func TestReentryGivenUpLeavesNoLease(t *testing.T) {
	s := server(t)
	p := testbed.NewProxy(t, s.Addr())
	c := dial(t, p.Addr(), leaseTime(20*time.Second))
	reenters := func(args []string) bool {
		return len(args) > 1 && (args[1] == luascript.Reenter.SHA || args[1] == luascript.RWReenter.SHA || args[1] == luascript.GroupAcquire.SHA)
	}
	for _, kind := range kinds {
		for what, give := range map[string]func(t *testing.T, outer redlatch.Hold, l redlatch.Locker){
			"late answer": func(t *testing.T, outer redlatch.Hold, l redlatch.Locker) {
				t.Helper()
				ctx, cancel := context.WithCancel(outer.Context())
				trap := p.StallReply(reenters)
				got := async(ctx, l, redlatch.WithLease(time.Hour))
				trap.Wait(t)
				cancel()
				is(t, "Lock", await(t, got).err, context.Canceled)
				trap.Release()
			},
			"lost answer": func(t *testing.T, outer redlatch.Hold, l redlatch.Locker) {
				t.Helper()
				ctx, cancel := context.WithCancel(outer.Context())
				trap := p.DropReply(reenters)
				p.Refuse()
				got := async(ctx, l, redlatch.WithLease(time.Hour))
				trap.Wait(t)
				time.Sleep(50 * time.Millisecond) // it knows
				cancel()
				is(t, "Lock", await(t, got).err, context.Canceled)
				p.Admit(t)
			},
			"extension": func(t *testing.T, outer redlatch.Hold, _ redlatch.Locker) {
				t.Helper()
				ctx, cancel := context.WithCancel(t.Context())
				trap := p.StallReply(reenters)
				errs := make(chan error, 1)
				go func() { errs <- outer.Extend(ctx, time.Hour) }()
				trap.Wait(t)
				cancel()
				is(t, "Extend", <-errs, context.Canceled)
				trap.Release()
			},
		} {
			t.Run(kind.name+"/"+what, func(t *testing.T) {
				name := kind.name + what[:4]
				l := kind.make(c, name)
				warm(t, l)
				outer := take(t, t.Context(), l)
				give(t, outer, l)
				deadline := time.Now().Add(3 * time.Second) // before a renewal
				for left := int64(0); ; time.Sleep(5 * time.Millisecond) {
					if left = s.Int(t, "PTTL", name); left <= 20_000 {
						break
					}
					if time.Now().After(deadline) {
						t.Errorf("the key lasts for %d ms", left)
						break
					}
				}
				for field, n := range s.Hash(t, "HGETALL", name) {
					if field != "mode" && n != "1" {
						t.Errorf("count %s of %s", n, field)
					}
				}
				unlock(t, outer)
			})
		}
	}
}
