//go:build unix

package redisson

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redlatch/redlatch/internal/testbed"
)

// The driver's owners exclude each other, and only the holder unlocks.
func TestOwnersOfOneDriverExcludeEachOther(t *testing.T) {
	eachVersion(t, func(t *testing.T, v Version) {
		b := sharedBed(t, v)
		n := name(t)
		a, c := b.java.Owner("a"), b.java.Owner("c")
		if a.Field(t) == c.Field(t) {
			t.Fatal("two owners have one field")
		}
		a.RLock(n).Lock(t, 0)
		if c.RLock(n).TryLock(t, -1, 0) {
			t.Fatal("the lock was taken twice")
		}
		a.RLock(n).Lock(t, 0)
		if s := a.RLock(n).State(t); s.Count != 2 || !s.Locked {
			t.Fatalf("after re-entry: %+v", s)
		}
		c.RLock(n).UnlockRefused(t)
		a.RLock(n).Unlock(t)
		a.RLock(n).Unlock(t)
		a.RLock(n).UnlockRefused(t)
	})
}

// An owner of the driver that waits holds up no other.
func TestBlockedOwnerHoldsUpNobodyElse(t *testing.T) {
	eachVersion(t, func(t *testing.T, v Version) {
		b := sharedBed(t, v)
		n := name(t)
		a, c := b.java.Owner("a"), b.java.Owner("c")
		a.RLock(n).Lock(t, 0)
		waits := c.RLock(n).GoLock(0)
		b.waitingOn(t, "redisson_lock__channel:{"+n+"}")
		if !waits.Pending() {
			t.Fatal("the lock was taken twice")
		}
		unlocked := a.RLock(n).Unlock(t)
		got := waits.Wait(t)
		if got.At.Before(unlocked.At.Add(-unlocked.Took)) {
			t.Fatalf("granted at %v, before the unlock began at %v", got.At, unlocked.At.Add(-unlocked.Took))
		}
		c.RLock(n).Unlock(t)
	})
}

// An interrupt ends a wait of the driver's, and its thread lives on.
func TestInterruptEndsAWait(t *testing.T) {
	eachVersion(t, func(t *testing.T, v Version) {
		b := sharedBed(t, v)
		n := name(t)
		a, c := b.java.Owner("a"), b.java.Owner("c")
		a.RLock(n).Lock(t, 0)
		waits := c.RLock(n).GoLock(0)
		b.waitingOn(t, "redisson_lock__channel:{"+n+"}")
		c.Interrupt(t)
		_, err := waits.Result()
		var java *Error
		if !errors.As(err, &java) || java.Exception != "InterruptedException" {
			t.Fatalf("got %v, want InterruptedException", err)
		}
		// The thread must have lived through it.
		a.RLock(n).Unlock(t)
		c.RLock(n).Lock(t, 0)
		c.RLock(n).Unlock(t)
	})
}

// Calls of a killed driver say that it is gone, and its lease stays.
func TestKilledDriverAnswersGone(t *testing.T) {
	needJava(t)
	b := ownBed(t, V4, Options{})
	a := b.java.Owner("a")
	n := name(t)
	a.RLock(n).Lock(t, 0)
	waits := b.java.Owner("c").RLock(n).GoLock(0)
	b.java.Kill(t)
	if _, err := waits.Result(); !errors.Is(err, ErrGone) {
		t.Fatalf("got %v, want ErrGone", err)
	}
	if _, err := a.RLock(n).GoUnlock().Result(); !errors.Is(err, ErrGone) {
		t.Fatalf("got %v, want ErrGone", err)
	}
	between(t, "the lease of the killed holder", b.pttl(t, n), 25*time.Second, 30*time.Second)
}

// A frozen driver renews nothing, and hears of it at its unlock.
func TestFrozenDriverStopsRenewing(t *testing.T) {
	needJava(t)
	b := ownBed(t, V4, Options{Watchdog: shortLease})
	n := name(t)
	a := b.java.Owner("a").RLock(n)
	a.Lock(t, 0)
	time.Sleep(shortLease * 3 / 2) // well over a lease: only the watchdog can have kept it
	if !a.State(t).Locked {
		t.Fatal("the watchdog did not keep the lock")
	}
	b.java.Freeze(t)
	eventually(t, "the lease of the frozen holder ends", func() bool { return b.pttl(t, n) < 0 })
	b.java.Thaw(t)
	a.UnlockRefused(t)
}

// A loop of the driver's records each begin and end of its sections.
func TestLoopRecordsItsSections(t *testing.T) {
	eachVersion(t, func(t *testing.T, v Version) {
		b := sharedBed(t, v)
		n, record := name(t), name(t)
		calls := make([]*Call, 4)
		for i := range calls {
			calls[i] = b.java.Owner("loop" + string(rune('a'+i))).GoLoop(Loop{
				Specs: []string{Spec("rlock", n)}, Rounds: 10, Record: record, Tag: "j", Wait: -1, Twice: true,
			})
		}
		for _, c := range calls {
			if r := c.LoopResult(t); r.Acquired != 10 || r.Lost != 0 || r.Failed != 0 {
				t.Fatalf("%+v", r)
			}
		}
		lines := b.server.List(t, "LRANGE", record, "0", "-1")
		if len(lines) != 80 {
			t.Fatalf("%d lines, want 80", len(lines))
		}
		for i := 0; i < len(lines); i += 2 {
			enter, ok1 := strings.CutPrefix(lines[i], "E ")
			exit, ok2 := strings.CutPrefix(lines[i+1], "X ")
			if !ok1 || !ok2 || enter != exit {
				t.Fatalf("sections overlap: %q then %q", lines[i], lines[i+1])
			}
			if f := strings.Fields(enter); !slices.Equal(f[2:], []string{"w", n}) {
				t.Fatalf("line %q", lines[i])
			}
		}
	})
}

// The driver locks the key that it was told, whatever bytes that has.
func TestNamesSurviveTheProtocol(t *testing.T) {
	eachVersion(t, func(t *testing.T, v Version) {
		b := sharedBed(t, v)
		for _, n := range []string{"a b", "50%", "x+y,z", "ümlaut/слово", "tab\tnew\nline"} {
			l := b.java.Owner("a").RLock(n)
			l.Lock(t, 0)
			if b.server.Int(t, "EXISTS", n) != 1 {
				t.Errorf("no key %q", n)
			}
			l.Unlock(t)
		}
	})
}

// The driver's multi-lock takes all members, and frees them.
func TestMultiLockTakesAllMembers(t *testing.T) {
	eachVersion(t, func(t *testing.T, v Version) {
		b := sharedBed(t, v)
		n1, n2 := name(t), name(t)
		m := b.java.Owner("a").Multi(Spec("rlock", n1), Spec("fair", n2))
		if !m.TryLock(t, time.Second, 20*time.Second) {
			t.Fatal("not acquired")
		}
		for _, n := range []string{n1, n2} {
			between(t, "lease of "+n, b.pttl(t, n), 15*time.Second, 20*time.Second)
		}
		m.Unlock(t)
		if left := b.server.Int(t, "EXISTS", n1, n2); left != 0 {
			t.Fatalf("%d members still locked", left)
		}
	})
}

// The clients of one driver use their own servers.
func TestClientsOfOneDriverUseTheirOwnServers(t *testing.T) {
	needJava(t)
	servers := testbed.Masters(t, 2)
	java := Start(t, V4, Options{Addresses: []string{servers[0].Addr(), servers[1].Addr()}})
	n := name(t)
	m := java.Owner("a").Multi(Spec("rlock@0", n), Spec("rlock@1", n))
	m.Lock(t, 0)
	for i, s := range servers {
		if s.Int(t, "EXISTS", n) != 1 {
			t.Errorf("no key on server %d", i)
		}
	}
	m.Unlock(t)
}

// A driver that is told to quit ends.
func TestQuitEndsTheProcess(t *testing.T) {
	needJava(t)
	b := ownBed(t, V4, Options{})
	b.java.Quit(t)
	if _, err := b.java.Go("ping").Result(); !errors.Is(err, ErrGone) {
		t.Fatalf("got %v, want ErrGone", err)
	}
}
