package readwrite

import (
	"context"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/integration/bed"
	"github.com/redlatch/redlatch/internal/luascript"
	"github.com/redlatch/redlatch/internal/testbed"
	"github.com/redlatch/redlatch/rwlock"
)

// Tests of leases: each reader's own, the watchdog, loss.

// A dead reader blocks no longer than its lease, whatever living readers do: they renew, come and
// go, and hold longer leases. Nobody raises its own.
func TestDeadReaderBlocksNoLongerThanItsLease(t *testing.T) {
	const lease = 8 * time.Second
	for name, tc := range map[string]struct {
		// a living reader's lease, how long before the end of the dead one's it leaves; the writer's
		fixed, leave, skip time.Duration
	}{
		// Only a message can tell the writer: it looks by itself in a minute.
		"others leave early": {time.Minute, lease * 3 / 4, 10 * time.Minute},
		"others leave late":  {time.Minute, 100 * time.Millisecond, 10 * time.Minute},
		// No message comes for so little: its refreshes tell it.
		"others end little later": {lease + lease/2, lease * 3 / 4, rwlock.DefaultSkipAfter},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := bed.Loaded(t)
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
			got := bed.Async(t.Context(), long.ReadWriteLock("n", rwlock.WithSkipAfter(tc.skip)).WriteLock())
			waiting(t, s, "writers", 1)
			time.Sleep(time.Until(ends.Add(-tc.leave)))
			bed.Unlock(t, fixed)
			testbed.AtMost(t, s.Int(t, "PTTL", "n"), lease.Milliseconds(), "ms that it lasts after the long reader")
			bed.Unlock(t, live)
			if freed := time.Now(); freed.After(ends) {
				ends = freed // the writer waits for the living ones, too
			}
			enters(t, got, soonest, ends)
		})
	}
}

// enters waits for a writer that must enter when a lease has ended, between these, and soon.
func enters(t *testing.T, got <-chan bed.Attempt, soonest, ends time.Time) {
	t.Helper()
	a := bed.Get(t, got)
	testbed.Must(t, a.Err)
	if early, late := soonest.Sub(a.At), a.At.Sub(ends); early > 10*time.Millisecond || late > soon {
		t.Errorf("the writer entered %v before the lease had ended, %v after that", early, late)
	}
	bed.Unlock(t, a.Hold)
}

// A short reader never shortens a long one's lease, by its renewals, its end or its unlock.
func TestShortReaderNeverShortensALongOnes(t *testing.T) {
	t.Parallel()
	s := bed.Loaded(t)
	long := bed.Lock(t, t.Context(), client(t, s, 30*time.Second).ReadWriteLock("n").ReadLock())
	least := func(when string) {
		t.Helper()
		testbed.AtLeast(t, s.Int(t, "PTTL", "n"), 15000, when, "ms that the lock lasts") // renewed when 20 s are left
	}
	quick := client(t, s, 5*time.Second).ReadWriteLock("n").ReadLock()
	a := bed.Lock(t, t.Context(), quick)
	least("a short one entered")
	until := a.ValidUntil()
	bed.Eventually(t, "it renews", func() bool { return a.ValidUntil().After(until) })
	least("it has renewed")
	b := bed.Lock(t, a.Context(), quick)
	bed.Unlock(t, b)
	least("it has given back one of two")
	bed.Unlock(t, a)
	least("it has left")
	fixed := bed.Lock(t, t.Context(), quick, redlatch.WithLease(50*time.Millisecond))
	<-fixed.Context().Done()
	bed.Want(t, fixed.Unlock(t.Context()), redlatch.ErrLeaseLost)
	least("a fixed one has ended")
	bed.Unlock(t, long)
	bed.Eventually(t, "nothing is left", func() bool { return s.Int(t, "DBSIZE") == 0 })
}

// The holds that stay count on a whole lease from
// then on, so the lock must last as long, although another reader ends later than
// they did before.
func TestPartialReleaseRenewsTheLock(t *testing.T) {
	t.Parallel()
	s := bed.Loaded(t)
	const lease = 30 * time.Second
	l := client(t, s, lease).ReadWriteLock("n").ReadLock()
	outer := bed.Lock(t, t.Context(), l)
	inner := bed.Lock(t, outer.Context(), l)
	time.Sleep(300 * time.Millisecond)
	other := bed.Lock(t, t.Context(), client(t, s, lease).ReadWriteLock("n").ReadLock())
	time.Sleep(time.Second)
	bed.Unlock(t, inner)
	counts := outer.ValidUntil()
	// The answer may be late: the lock ends no later than this.
	ends := time.Now().Add(time.Duration(s.Int(t, "PTTL", "n")) * time.Millisecond)
	testbed.AtMost(t, counts.Sub(ends), 0, "how long the lock ends before the instant that its holder counts on")
	bed.Unlock(t, outer, other)
}

// A writer's fixed lease ends while its
// read hold lives: other readers enter then, though nobody unlocked.
func TestWriteLeaseEndsUnderItsOwnersRead(t *testing.T) {
	t.Parallel()
	const lease = 4 * time.Second
	s := bed.Loaded(t)
	l := client(t, s, 30*time.Second).ReadWriteLock("n")
	waits := client(t, s, 0).ReadWriteLock("n").ReadLock()
	start := time.Now()
	w := bed.Lock(t, t.Context(), l.WriteLock(), redlatch.WithLease(lease))
	r := bed.Lock(t, w.Context(), l.ReadLock())
	other := bed.Lock(t, t.Context(), waits)
	if took := time.Since(start); took < lease || took > lease+soon {
		t.Errorf("a reader entered after %v, the write lease was %v", took, lease)
	}
	bed.Want(t, w.Unlock(t.Context()), redlatch.ErrLeaseLost)
	busy(t, t.Context(), l.WriteLock())
	bed.Unlock(t, other, r)
}

// One of several readers is evicted, of this client or another one, and the others stay: the lock lasts for as long as
// they need, no longer, and is theirs though somebody took its TTL away.
func TestOneReaderIsEvicted(t *testing.T) {
	s := bed.Loaded(t)
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
			bed.Want(t, long.Unlock(t.Context()), redlatch.ErrLeaseLost)
			bed.Unlock(t, stays)
		}
	}
	empty(t, s)
}

// A writer's reads are evicted: the lock lasts for as long as its write hold, no longer. Where that has ended, who waits
// enters: readers beside a read of the writer that stays, and writers.
func TestReadsOfAWriterAreEvicted(t *testing.T) {
	s := bed.Loaded(t)
	c := client(t, s, 30*time.Second)
	l := c.ReadWriteLock("n")
	reads := func(lease time.Duration) (owner string, w, r redlatch.Hold) {
		w = bed.Lock(t, t.Context(), l.WriteLock(), redlatch.WithLease(lease))
		r = bed.Lock(t, w.Context(), l.ReadLock(), redlatch.WithLease(time.Hour))
		return s.List(t, "ZRANGE", leases, "-1", "-1")[0], w, r
	}
	evict := func(owner string) {
		t.Helper()
		if was, err := c.ForceUnlock(t.Context(), "n", redlatch.IfOwner(owner)); !was || err != nil {
			t.Fatalf("%v, %v", was, err)
		}
	}
	owner, w, r := reads(20 * time.Second)
	evict(owner)
	if ttl := s.Int(t, "PTTL", "n"); ttl > 20_000 || ttl < 10_000 {
		t.Errorf("the lock lasts %d ms", ttl)
	}
	bed.Want(t, r.Unlock(t.Context()), redlatch.ErrLeaseLost)
	bed.Unlock(t, w)

	const lease = 100 * time.Millisecond
	owner, _, _ = reads(lease)
	bed.Eventually(t, "the write lease has ended", func() bool { return remaining(t, s, s.List(t, "ZRANGE", leases, "0", "0")[0]) <= 0 })
	stays := owner + "x"
	s.Do(t, "HSET", "n", stays, "1")
	s.Do(t, "ZADD", leases, "9999999999999", stays)
	evict(owner)
	bed.Unlock(t, bed.Lock(t, t.Context(), l.ReadLock()))
	evict(stays)
	bed.Unlock(t, bed.Lock(t, t.Context(), l.WriteLock()))

	const writer = foreign + ":write" // whose end nobody knows
	s.Do(t, "HSET", "n", "mode", "write", writer, "1", foreign, "1")
	s.Do(t, "PEXPIRE", "n", "60000")
	if was, err := l.ReadLock().ForceUnlock(t.Context()); !was || err != nil {
		t.Errorf("of another library: %v, %v", was, err)
	}
	testbed.AtLeast(t, s.Int(t, "PTTL", "n"), 40_000, "milliseconds that another library's writer keeps the lock")
	s.Do(t, "FLUSHALL")
}

// What a neighbour has put at a key of one lock costs no other lock its lease, though a command renews many; who
// unlocks that one leaves it free.
func TestAKeyOfALockHoldsSomethingElse(t *testing.T) {
	s := bed.Loaded(t)
	c := client(t, s, time.Hour)
	args := []string{"EVAL", luascript.RWRenew.Body, "6"}
	var fields []string
	var holds []redlatch.Hold
	for _, name := range []string{"n", "b"} {
		holds = append(holds, bed.Lock(t, t.Context(), c.ReadWriteLock(name).ReadLock()))
		field := s.List(t, "ZRANGE", luascript.RWLeasesKey(name), "0", "0")[0]
		args = append(args, name, luascript.RWLeasesKey(name), luascript.RWTimeoutKey(name, field))
		fields = append(fields, field, "7200000")
	}
	s.Do(t, "SET", leases, "no set")
	s.Do(t, append(args, fields...)...)
	testbed.AtLeast(t, s.Int(t, "PTTL", "b"), 7_000_000, "milliseconds that the other lock lasts")
	bed.Unlock(t, holds...)
	bed.Unlock(t, bed.Lock(t, t.Context(), c.ReadWriteLock("n").WriteLock()))
	empty(t, s)
}
