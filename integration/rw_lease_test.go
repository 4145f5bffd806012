package integration

import (
	"context"
	"errors"
	"strconv"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/testbed"
	"github.com/redlatch/redlatch/rwlock"
)

// Tests of leases: each reader's own, the watchdog, loss.

const rwLeases = "redlatch_rw_leases:{n}"

// rwRemaining is what is left of a hold's lease, as redlatch has noted it.
func rwRemaining(t testing.TB, s *testbed.Server, field string) time.Duration {
	t.Helper()
	score := s.Text(t, "ZSCORE", rwLeases, field)
	ends, err := strconv.ParseInt(score, 10, 64)
	if err != nil {
		t.Fatalf("no lease of %s: %q", field, score)
	}
	now := s.List(t, "TIME")
	sec, _ := strconv.ParseInt(now[0], 10, 64)
	us, _ := strconv.ParseInt(now[1], 10, 64)
	return time.Duration(ends)*time.Millisecond - time.Duration(sec)*time.Second - time.Duration(us)*time.Microsecond
}

// rwOnlyReader is the field of the only reader.
func rwOnlyReader(t testing.TB, s *testbed.Server) string {
	t.Helper()
	list := s.List(t, "ZRANGE", rwLeases, "0", "-1")
	if len(list) != 1 {
		t.Fatalf("readers: %v, want one", list)
	}
	return list[0]
}

// A dead reader blocks no longer than its lease, whatever living readers do: they renew, come and
// go, and hold longer leases.
func TestRWDeadReaderBlocksNoLongerThanItsLease(t *testing.T) {
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
			s := rwServer(t)
			dead := rwSpawn(t, s, lease)
			dead.Lock(t, rwAsk("read", 0))
			field := rwOnlyReader(t, s)
			quick, long := rwClient(t, s, 5*time.Second), rwClient(t, s, 30*time.Second)
			live := rwLock(t, quick.ReadWriteLock("n").ReadLock(), t.Context()) // renews every 1.7 s
			fixed := rwLock(t, long.ReadWriteLock("n").ReadLock(), t.Context(), redlatch.WithLease(tc.fixed))
			dead.Kill(t)
			asked := time.Now()
			left := rwRemaining(t, s, field)
			soonest, ends := asked.Add(left), time.Now().Add(left)
			var opts []redlatch.Option
			if tc.skip > 0 {
				opts = append(opts, rwlock.WithSkipAfter(tc.skip))
			}
			got := rwAsync(t, rwClient(t, s, 30*time.Second).ReadWriteLock("n", opts...).WriteLock(), t.Context())
			rwWaiting(t, s, "writers", 1)
			time.Sleep(time.Until(ends.Add(-tc.leave)))
			rwUnlock(t, fixed)
			if ttl := s.Int(t, "PTTL", "n"); ttl > int64(lease/time.Millisecond) {
				t.Errorf("TTL %d ms after the long reader has left", ttl)
			}
			rwUnlock(t, live)
			if freed := time.Now(); freed.After(ends) {
				ends = freed // the writer waits for the living ones, too
			}
			w := rwGot(t, got, left+2*rwSoon)
			entered := time.Now()
			t.Logf("the writer entered %v after the dead reader's lease", entered.Sub(ends))
			if early := soonest.Sub(entered); early > 10*time.Millisecond {
				t.Errorf("the writer entered %v before the dead reader's lease had ended", early)
			}
			if late := entered.Sub(ends); late > rwSoon {
				t.Errorf("the writer entered %v after the dead reader's lease had ended", late)
			}
			rwUnlock(t, w)
		})
	}
}

// A dead reader is not revived by others that renew for longer than its lease, then leave: nothing
// is left of it, though its field stood in the hash meanwhile.
func TestRWDeadReaderIsNotRevived(t *testing.T) {
	t.Parallel()
	const lease = 5 * time.Second
	s := rwServer(t)
	dead := rwSpawn(t, s, lease)
	dead.Lock(t, rwAsk("read", 0))
	field := rwOnlyReader(t, s)
	c := rwClient(t, s, 6*time.Second)
	live := rwLock(t, c.ReadWriteLock("n").ReadLock(), t.Context())
	dead.Kill(t)
	before := rwRemaining(t, s, field)
	for end := time.Now().Add(before); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		now := rwRemaining(t, s, field)
		if now > before+5*time.Millisecond {
			t.Fatalf("somebody raised the dead reader's lease from %v to %v", before, now)
		}
		before = now
	}
	rwEventually(t, "its timeout key ends", func() bool {
		return s.Int(t, "EXISTS", "{n}:"+field+":rwlock_timeout:1") == 0
	})
	start := time.Now()
	got := rwAsync(t, rwClient(t, s, 30*time.Second).ReadWriteLock("n", rwTold()).WriteLock(), t.Context())
	rwWaiting(t, s, "writers", 1)
	rwUnlock(t, live)
	w := rwGot(t, got, rwSoon)
	if s.Int(t, "HEXISTS", "n", field) == 1 {
		t.Error("the dead reader's field is still there")
	}
	t.Logf("a writer entered within %v", time.Since(start))
	rwUnlock(t, w)
}

// A short reader never shortens a long one's lease, by its renewals, its end or its unlock.
func TestRWShortReaderNeverShortensALongOnes(t *testing.T) {
	t.Parallel()
	s := rwServer(t)
	long := rwLock(t, rwClient(t, s, 30*time.Second).ReadWriteLock("n").ReadLock(), t.Context())
	least := func(when string) {
		t.Helper()
		if ttl := s.Int(t, "PTTL", "n"); ttl < 15000 { // it is renewed when 20 s are left
			t.Errorf("%s: the lock lasts %d ms", when, ttl)
		}
	}
	quick := rwClient(t, s, 5*time.Second).ReadWriteLock("n").ReadLock()
	a := rwLock(t, quick, t.Context())
	least("a short one entered")
	until := a.ValidUntil()
	rwEventually(t, "it renews", func() bool { return a.ValidUntil().After(until) })
	least("it has renewed")
	b := rwLock(t, quick, a.Context())
	rwUnlock(t, b)
	least("it has given back one of two")
	rwUnlock(t, a)
	least("it has left")
	fixed := rwLock(t, quick, t.Context(), redlatch.WithLease(50*time.Millisecond))
	<-fixed.Context().Done()
	if err := fixed.Unlock(t.Context()); !errors.Is(err, redlatch.ErrLeaseLost) {
		t.Error(err)
	}
	least("a fixed one has ended")
	rwUnlock(t, long)
	rwEventually(t, "nothing is left", func() bool { return s.Int(t, "DBSIZE") == 0 })
}

// TestRWPartialReleaseRenewsTheLock: the holds that stay count on a whole lease from
// then on, so the lock must last as long, although another reader ends later than
// they did before.
func TestRWPartialReleaseRenewsTheLock(t *testing.T) {
	t.Parallel()
	s := rwServer(t)
	const lease = 30 * time.Second
	l := rwClient(t, s, lease).ReadWriteLock("n").ReadLock()
	outer := rwLock(t, l, t.Context())
	inner := rwLock(t, l, outer.Context())
	time.Sleep(300 * time.Millisecond)
	other := rwLock(t, rwClient(t, s, lease).ReadWriteLock("n").ReadLock(), t.Context())
	time.Sleep(time.Second)
	rwUnlock(t, inner)
	counts := outer.ValidUntil()
	// The answer may be late: the lock ends no later than this.
	if ends := time.Now().Add(time.Duration(s.Int(t, "PTTL", "n")) * time.Millisecond); ends.Before(counts) {
		t.Errorf("the lock ends %v before the instant that its holder counts on", counts.Sub(ends))
	}
	rwUnlock(t, outer)
	rwUnlock(t, other)
}

// Holders are kept by the watchdog for longer than their leases, in both modes at once.
func TestRWHoldersAreKeptByTheWatchdog(t *testing.T) {
	t.Parallel()
	const lease = 6 * time.Second // a stall of two thirds of it would lose them, rightly
	s := rwServer(t)
	c := rwClient(t, s, lease)
	l := c.ReadWriteLock("n")
	job := redlatch.WithOwner(t.Context(), "job")
	w := rwLock(t, l.WriteLock(), job)
	r := rwLock(t, l.ReadLock(), job)
	other := rwClient(t, s, lease).ReadWriteLock("n")
	for end := time.Now().Add(lease * 3 / 2); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		rwBusy(t, other.ReadLock(), t.Context())
	}
	rwUnlock(t, w)
	for end := time.Now().Add(lease); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		rwBusy(t, other.WriteLock(), t.Context())
	}
	if r.Context().Err() != nil {
		t.Error(context.Cause(r.Context()))
	}
	rwUnlock(t, r)
}

// TestRWWriteLeaseEndsUnderItsOwnersRead: a writer's fixed lease ends while its
// read hold lives: other readers enter then, though nobody unlocked.
func TestRWWriteLeaseEndsUnderItsOwnersRead(t *testing.T) {
	t.Parallel()
	const lease = 4 * time.Second
	s := rwServer(t)
	l := rwClient(t, s, 30*time.Second).ReadWriteLock("n")
	waits := rwClient(t, s, 0).ReadWriteLock("n").ReadLock()
	start := time.Now()
	w := rwLock(t, l.WriteLock(), t.Context(), redlatch.WithLease(lease))
	r := rwLock(t, l.ReadLock(), w.Context())
	other := rwLock(t, waits, t.Context())
	if took := time.Since(start); took < lease || took > lease+rwSoon {
		t.Errorf("a reader entered after %v, the write lease was %v", took, lease)
	}
	if err := w.Unlock(t.Context()); !errors.Is(err, redlatch.ErrLeaseLost) {
		t.Error(err)
	}
	rwBusy(t, l.WriteLock(), t.Context())
	rwUnlock(t, other, r)
}
