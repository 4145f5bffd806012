package readwrite

import (
	"strconv"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/integration/bed"
	"github.com/redlatch/redlatch/internal/testbed"
	"github.com/redlatch/redlatch/rwlock"
)

// Tests with readers and writers of another library, played by plain commands
// in the format that both share.

// When our last reader leaves, the lock lasts as long as the longest hold of foreign readers, and
// is free when that ends.
func TestForeignReadersAreKeptAndNoLonger(t *testing.T) {
	t.Parallel()
	const lease = 4 * time.Second
	for _, longest := range []int{1, 3} {
		s := bed.Loaded(t)
		l := client(t, s, 30*time.Second).ReadWriteLock("n")
		writer := client(t, s, 0).ReadWriteLock("n", told()).WriteLock()
		a := bed.Lock(t, t.Context(), l.ReadLock())
		began := time.Now()
		foreignReads(t, s, 3, longest, lease)
		ends := time.Now().Add(lease)
		b := bed.Lock(t, t.Context(), l.ReadLock())
		next := bed.Async(t.Context(), writer)
		waiting(t, s, "writers", 1)
		bed.Unlock(t, a, b)
		if freed := time.Now(); freed.After(ends) {
			ends = freed // the writer waits for ours, too
		}
		ttl := s.Int(t, "PTTL", "n")
		if least := lease - time.Since(began); ttl > lease.Milliseconds() || ttl < least.Milliseconds() {
			t.Errorf("the lock lasts %d ms, the foreign reader's lease was %v, and %v of it are left", ttl, lease, least)
		}
		enters(t, next, began.Add(lease), ends)
	}
}

// A foreign reader is kept no longer than its lease though the server stood still in the middle of
// a script. Before Redis 7.2 the clock goes on while a script runs. If the server stands still
// between a script's TIME and its PEXPIRE, the lock's TTL ends after what the script noted as the
// hold's end. Its release lowers it all the same.
func TestForeignReaderIsKeptNoLongerThoughTheServerStoodStill(t *testing.T) {
	t.Parallel()
	const lease = 1500 * time.Millisecond
	s := bed.Loaded(t)
	h := bed.Lock(t, t.Context(), client(t, s, 30*time.Second).ReadWriteLock("n").ReadLock())
	s.Do(t, "PEXPIRE", "n", strconv.FormatInt(s.Int(t, "PTTL", "n")+50, 10)) // it stood still for 50 ms
	foreignReads(t, s, 1, 1, lease)
	bed.Unlock(t, h)
	testbed.AtMost(t, s.Int(t, "PTTL", "n"), lease.Milliseconds(), "milliseconds that the lock lasts, beside the foreign reader's lease")
	s.Do(t, "FLUSHALL")
}

// A foreign reader stays inside though leases are noted of a lock of that name that somebody
// deleted, whoever is evicted, enters or leaves beside it.
func TestForeignReaderSurvivesAnEarlierLifeOfTheLock(t *testing.T) {
	s := bed.Loaded(t)
	dead := spawn(t, s, 5*time.Second)
	for range 3 {
		dead.Lock(t, ask("read", 0))
	}
	dead.Kill(t)
	s.Do(t, "DEL", "n") // as Redisson's forceUnlock does: our leases stay behind
	foreignReads(t, s, 1, 1, time.Minute)
	const other = foreign + "8" // evicted beside it
	s.Do(t, "HSET", "n", other, "1")
	if was, err := client(t, s, 0).ForceUnlock(t.Context(), "n", redlatch.IfOwner(other)); !was || err != nil {
		t.Errorf("ForceUnlock: %v, %v", was, err)
	}
	if ttl := s.Int(t, "PTTL", "n"); ttl < 40000 || ttl > 60000 {
		t.Errorf("beside the one who was evicted the foreign reader's lock lasts %d ms, want its lease", ttl)
	}
	h := bed.Lock(t, t.Context(), client(t, s, 30*time.Second).ReadWriteLock("n").ReadLock())
	bed.Unlock(t, h)
	if ttl := s.Int(t, "PTTL", "n"); ttl < 40000 || ttl > 60000 {
		t.Errorf("the foreign reader's lock lasts %d ms, want its lease", ttl)
	}
	busy(t, t.Context(), client(t, s, 0).ReadWriteLock("n").WriteLock())
	s.Do(t, "FLUSHALL")
}

// A foreign renewal sets the lock's TTL to
// its own lease; our fixed lease is put right at the next check, and not beyond
// its end.
func TestForeignRenewalsDoNotShortenOurs(t *testing.T) {
	t.Parallel()
	s := bed.Loaded(t)
	const check = 8 * time.Second // the first one comes after half of it
	c := client(t, s, 3*check)
	h := bed.Lock(t, t.Context(), c.ReadWriteLock("n").ReadLock(), redlatch.WithLease(2*time.Minute))
	field := onlyReader(t, s)
	before := remaining(t, s, field)
	begin := time.Now()
	s.Do(t, "PEXPIRE", "n", "30000")
	s.Do(t, "PEXPIRE", "{n}:"+field+":rwlock_timeout:1", "30000")
	bed.Eventually(t, "the lease is put right", func() bool {
		return s.Int(t, "PTTL", "n") > 60000 && s.Int(t, "PTTL", "{n}:"+field+":rwlock_timeout:1") > 60000
	})
	testbed.AtMost(t, time.Since(begin), check+soon, "put right after")
	asked := time.Since(begin)
	ends := asked + time.Duration(s.Int(t, "PTTL", "n"))*time.Millisecond
	// What is left is sent, and counts from when it arrives; the whole lease anew would end half a
	// check later at least.
	testbed.AtMost(t, ends-before, check/4, "how much later the lease ends than it did")
	bed.Unlock(t, h)
}

// Renewals of foreign readers don't revive our dead ones. Redisson 3.x renews the timeout keys of
// every reader in the hash, and its unlock gives the lock the longest of them. Our writers go by
// the leases that we have noted.
func TestForeignRenewalsDoNotReviveOurDead(t *testing.T) {
	t.Parallel()
	const (
		// What follows up to the foreign unlock must happen within it: a writer that asks
		// when only the foreign reader is left waits for that one's lease, rightly.
		lease  = 5 * time.Second
		theirs = 10 * time.Minute
	)
	s := bed.Loaded(t)
	writer := client(t, s, 0).ReadWriteLock("n").WriteLock()
	dead := spawn(t, s, lease)
	dead.Lock(t, ask("read", 0))
	field := onlyReader(t, s)
	dead.Kill(t)
	foreignReads(t, s, 1, 1, theirs)
	next := bed.Async(t.Context(), writer)
	waiting(t, s, "writers", 1)
	asked := time.Now()
	left := remaining(t, s, field)
	soonest, ends := asked.Add(left), time.Now().Add(left)
	own := "{n}:" + field + ":rwlock_timeout:1"
	ms := strconv.FormatInt(theirs.Milliseconds(), 10)
	s.Do(t, "PEXPIRE", own, ms)
	s.Do(t, "HDEL", "n", foreign)
	s.Do(t, "DEL", "{n}:"+foreign+":rwlock_timeout:1")
	s.Do(t, "PEXPIRE", "n", ms)
	enters(t, next, soonest, ends)
	s.Do(t, "DEL", own)
}

// A foreign writer's unlock wakes our waiters, of both modes.
func TestForeignWriterWakesOurs(t *testing.T) {
	s := bed.Loaded(t)
	l := client(t, s, 0).ReadWriteLock("n", told())
	s.Do(t, "HSET", "n", "mode", "write", foreign+":write", "1")
	s.Do(t, "PEXPIRE", "n", "30000")
	r1, r2 := bed.Async(t.Context(), l.ReadLock()), bed.Async(t.Context(), l.ReadLock())
	waiting(t, s, "readers", 2)
	busy(t, t.Context(), l.WriteLock())
	s.AwaitQuiet(t)
	s.Do(t, "DEL", "n")
	s.Do(t, "PUBLISH", "redisson_rwlock:{n}", "1")
	h1, h2 := bed.HoldWithin(t, soon, r1), bed.HoldWithin(t, soon, r2)
	w := bed.Async(t.Context(), l.WriteLock())
	waiting(t, s, "writers", 1)
	foreignReads(t, s, 1, 1, 30*time.Second)
	bed.Unlock(t, h1, h2)
	s.AwaitQuiet(t)
	s.Do(t, "DEL", "n", "{n}:"+foreign+":rwlock_timeout:1", leases)
	s.Do(t, "PUBLISH", "redisson_rwlock:{n}", "0")
	bed.Unlock(t, bed.HoldWithin(t, soon, w))
}

// All readers of another library that wait look again when the read of a writer goes that was to end last, unlocked or
// taken away: they were told its end.
func TestTheEndOfAWritersReadIsToldToForeignReaders(t *testing.T) {
	for how, ends := range map[string]func(t *testing.T, l *rwlock.ReadWriteLock, r redlatch.Hold){
		"unlocked": func(t *testing.T, _ *rwlock.ReadWriteLock, r redlatch.Hold) { t.Helper(); bed.Unlock(t, r) },
		"taken away": func(t *testing.T, l *rwlock.ReadWriteLock, _ redlatch.Hold) {
			t.Helper()
			if was, err := l.ReadLock().ForceUnlock(t.Context()); !was || err != nil {
				t.Fatalf("%v, %v", was, err)
			}
		},
	} {
		t.Run(how, func(t *testing.T) {
			s := bed.Loaded(t)
			l := client(t, s, 30*time.Second).ReadWriteLock("n")
			w := bed.Lock(t, t.Context(), l.WriteLock())
			r := bed.Lock(t, w.Context(), l.ReadLock(), redlatch.WithLease(time.Hour))
			got := messages(t, s, "redisson_rwlock:{n}")
			ends(t, l, r)
			testbed.Equal(t, bed.Receive(t, soon, got), "1", "the message for all")
			bed.Unlock(t, w)
		})
	}
}
