package readwrite

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/integration/bed"
	"github.com/redlatch/redlatch/rwlock"
)

// Tests of leases: each reader's own, the watchdog, loss.

// A dead reader blocks no longer than its lease, whatever living readers do: they renew, come and
// go, and hold longer leases.
func TestDeadReaderBlocksNoLongerThanItsLease(t *testing.T) {
	t.Parallel()
	const lease = 8 * time.Second
	for name, tc := range map[string]struct {
		// a living reader's lease, how long before the end of the dead one's it leaves; the writer's
		fixed, leave, skip time.Duration
	}{
		// Only a message can tell the writer: it looks by itself in a minute.
		"others leave early": {time.Minute, lease * 3 / 4, 10 * time.Minute},
		"others leave late":  {time.Minute, 100 * time.Millisecond, 10 * time.Minute},
		// No message comes for so little: its refreshes tell it.
		"others end little later": {lease + lease/2, lease * 3 / 4, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := server(t)
			dead := spawn(t, s, lease)
			dead.Lock(t, ask("read", 0))
			field := onlyReader(t, s)
			quick, long := client(t, s, 5*time.Second), client(t, s, 30*time.Second)
			live := bed.Lock(t, t.Context(), quick.ReadWriteLock("n").ReadLock()) // renews every 1.7 s
			fixed := bed.Lock(t, t.Context(), long.ReadWriteLock("n").ReadLock(), redlatch.WithLease(tc.fixed))
			dead.Kill(t)
			asked := time.Now()
			left := remaining(t, s, field)
			soonest, ends := asked.Add(left), time.Now().Add(left)
			var opts []redlatch.Option
			if tc.skip > 0 {
				opts = append(opts, rwlock.WithSkipAfter(tc.skip))
			}
			got := bed.Async(t.Context(), client(t, s, 30*time.Second).ReadWriteLock("n", opts...).WriteLock())
			waiting(t, s, "writers", 1)
			time.Sleep(time.Until(ends.Add(-tc.leave)))
			unlock(t, fixed)
			if ttl := s.Int(t, "PTTL", "n"); ttl > int64(lease/time.Millisecond) {
				t.Errorf("TTL %d ms after the long reader has left", ttl)
			}
			unlock(t, live)
			if freed := time.Now(); freed.After(ends) {
				ends = freed // the writer waits for the living ones, too
			}
			w := within(t, left+2*soon, got)
			entered := time.Now()
			t.Logf("the writer entered %v after the dead reader's lease", entered.Sub(ends))
			if early := soonest.Sub(entered); early > 10*time.Millisecond {
				t.Errorf("the writer entered %v before the dead reader's lease had ended", early)
			}
			if late := entered.Sub(ends); late > soon {
				t.Errorf("the writer entered %v after the dead reader's lease had ended", late)
			}
			unlock(t, w)
		})
	}
}

// A dead reader is not revived by others that renew for longer than its lease, then leave: nothing
// is left of it, though its field stood in the hash meanwhile.
func TestDeadReaderIsNotRevived(t *testing.T) {
	t.Parallel()
	const lease = 5 * time.Second
	s := server(t)
	dead := spawn(t, s, lease)
	dead.Lock(t, ask("read", 0))
	field := onlyReader(t, s)
	c := client(t, s, 6*time.Second)
	live := bed.Lock(t, t.Context(), c.ReadWriteLock("n").ReadLock())
	dead.Kill(t)
	before := remaining(t, s, field)
	for end := time.Now().Add(before); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		now := remaining(t, s, field)
		if now > before+5*time.Millisecond {
			t.Fatalf("somebody raised the dead reader's lease from %v to %v", before, now)
		}
		before = now
	}
	bed.Eventually(t, "its timeout key ends", func() bool {
		return s.Int(t, "EXISTS", "{n}:"+field+":rwlock_timeout:1") == 0
	})
	start := time.Now()
	got := bed.Async(t.Context(), client(t, s, 30*time.Second).ReadWriteLock("n", told()).WriteLock())
	waiting(t, s, "writers", 1)
	unlock(t, live)
	w := within(t, soon, got)
	if s.Int(t, "HEXISTS", "n", field) == 1 {
		t.Error("the dead reader's field is still there")
	}
	t.Logf("a writer entered within %v", time.Since(start))
	unlock(t, w)
}

// A short reader never shortens a long one's lease, by its renewals, its end or its unlock.
func TestShortReaderNeverShortensALongOnes(t *testing.T) {
	t.Parallel()
	s := server(t)
	long := bed.Lock(t, t.Context(), client(t, s, 30*time.Second).ReadWriteLock("n").ReadLock())
	least := func(when string) {
		t.Helper()
		if ttl := s.Int(t, "PTTL", "n"); ttl < 15000 { // it is renewed when 20 s are left
			t.Errorf("%s: the lock lasts %d ms", when, ttl)
		}
	}
	quick := client(t, s, 5*time.Second).ReadWriteLock("n").ReadLock()
	a := bed.Lock(t, t.Context(), quick)
	least("a short one entered")
	until := a.ValidUntil()
	bed.Eventually(t, "it renews", func() bool { return a.ValidUntil().After(until) })
	least("it has renewed")
	b := bed.Lock(t, a.Context(), quick)
	unlock(t, b)
	least("it has given back one of two")
	unlock(t, a)
	least("it has left")
	fixed := bed.Lock(t, t.Context(), quick, redlatch.WithLease(50*time.Millisecond))
	<-fixed.Context().Done()
	if err := fixed.Unlock(t.Context()); !errors.Is(err, redlatch.ErrLeaseLost) {
		t.Error(err)
	}
	least("a fixed one has ended")
	unlock(t, long)
	bed.Eventually(t, "nothing is left", func() bool { return s.Int(t, "DBSIZE") == 0 })
}

// The holds that stay count on a whole lease from
// then on, so the lock must last as long, although another reader ends later than
// they did before.
func TestPartialReleaseRenewsTheLock(t *testing.T) {
	t.Parallel()
	s := server(t)
	const lease = 30 * time.Second
	l := client(t, s, lease).ReadWriteLock("n").ReadLock()
	outer := bed.Lock(t, t.Context(), l)
	inner := bed.Lock(t, outer.Context(), l)
	time.Sleep(300 * time.Millisecond)
	other := bed.Lock(t, t.Context(), client(t, s, lease).ReadWriteLock("n").ReadLock())
	time.Sleep(time.Second)
	unlock(t, inner)
	counts := outer.ValidUntil()
	// The answer may be late: the lock ends no later than this.
	if ends := time.Now().Add(time.Duration(s.Int(t, "PTTL", "n")) * time.Millisecond); ends.Before(counts) {
		t.Errorf("the lock ends %v before the instant that its holder counts on", counts.Sub(ends))
	}
	unlock(t, outer)
	unlock(t, other)
}

// Holders are kept by the watchdog for longer than their leases, in both modes at once.
func TestHoldersAreKeptByTheWatchdog(t *testing.T) {
	t.Parallel()
	const lease = 6 * time.Second // a stall of two thirds of it would lose them, rightly
	s := server(t)
	c := client(t, s, lease)
	l := c.ReadWriteLock("n")
	job := redlatch.WithOwner(t.Context(), "job")
	w := bed.Lock(t, job, l.WriteLock())
	r := bed.Lock(t, job, l.ReadLock())
	other := client(t, s, lease).ReadWriteLock("n")
	for end := time.Now().Add(lease * 3 / 2); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		busy(t, t.Context(), other.ReadLock())
	}
	unlock(t, w)
	for end := time.Now().Add(lease); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		busy(t, t.Context(), other.WriteLock())
	}
	if r.Context().Err() != nil {
		t.Error(context.Cause(r.Context()))
	}
	unlock(t, r)
}

// A writer's fixed lease ends while its
// read hold lives: other readers enter then, though nobody unlocked.
func TestWriteLeaseEndsUnderItsOwnersRead(t *testing.T) {
	t.Parallel()
	const lease = 4 * time.Second
	s := server(t)
	l := client(t, s, 30*time.Second).ReadWriteLock("n")
	waits := client(t, s, 0).ReadWriteLock("n").ReadLock()
	start := time.Now()
	w := bed.Lock(t, t.Context(), l.WriteLock(), redlatch.WithLease(lease))
	r := bed.Lock(t, w.Context(), l.ReadLock())
	other := bed.Lock(t, t.Context(), waits)
	if took := time.Since(start); took < lease || took > lease+soon {
		t.Errorf("a reader entered after %v, the write lease was %v", took, lease)
	}
	if err := w.Unlock(t.Context()); !errors.Is(err, redlatch.ErrLeaseLost) {
		t.Error(err)
	}
	busy(t, t.Context(), l.WriteLock())
	unlock(t, other, r)
}

// One of several readers is evicted, of this client or another one, and the others stay: the lock lasts for as long as
// they need, no longer, and is theirs though somebody took its TTL away.
func TestOneReaderIsEvicted(t *testing.T) {
	s := server(t)
	a, b := client(t, s, time.Hour), client(t, s, time.Hour)
	for _, evicts := range []*redlatch.Client{a, b} {
		for _, persists := range []bool{false, true} {
			long := bed.Lock(t, t.Context(), a.ReadWriteLock("n").ReadLock())
			owner := onlyReader(t, s)
			stays := bed.Lock(t, t.Context(), b.ReadWriteLock("n").ReadLock(), redlatch.WithLease(20*time.Second))
			if persists {
				s.Do(t, "PERSIST", "n")
			}
			if was, err := evicts.ForceUnlock(t.Context(), "n", redlatch.IfOwner(owner)); !was || err != nil {
				t.Fatalf("%v, %v", was, err)
			}
			if ttl := s.Int(t, "PTTL", "n"); (!persists || ttl != -1) && (ttl > 20_000 || ttl < 10_000) {
				t.Errorf("the lock lasts %d ms", ttl)
			}
			in, err := a.Inspect(t.Context(), "n")
			if err != nil || in.HolderCount != 1 || in.Holders[0].ClientID != b.ID() || stays.Context().Err() != nil {
				t.Errorf("%+v, %v; %v", in, err, context.Cause(stays.Context()))
			}
			if err := long.Unlock(t.Context()); !errors.Is(err, redlatch.ErrLeaseLost) {
				t.Errorf("the evicted one's Unlock: %v", err)
			}
			unlock(t, stays)
		}
	}
	empty(t, s)
}
