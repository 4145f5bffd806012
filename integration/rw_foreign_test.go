package integration

import (
	"strconv"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/integration/bed"
	"github.com/redlatch/redlatch/internal/testbed"
)

// Tests with readers and writers of another library, played by plain commands
// in the format that both share.

const rwForeign = "0a6c1d1e-6f5b-4c5e-9d61-1f2a3b4c5d6e:57"

// rwForeignReads takes count read holds; the last-ending one is the given one.
func rwForeignReads(t testing.TB, s *testbed.Server, count, longest int, lease time.Duration) {
	t.Helper()
	s.Do(t, "HSETNX", "n", "mode", "read")
	s.Do(t, "HSET", "n", rwForeign, strconv.Itoa(count))
	for i := 1; i <= count; i++ {
		ms := lease.Milliseconds()
		if i != longest {
			ms /= 4
		}
		s.Do(t, "SET", "{n}:"+rwForeign+":rwlock_timeout:"+strconv.Itoa(i), "1", "PX", strconv.FormatInt(ms, 10))
	}
	if s.Int(t, "PTTL", "n") < lease.Milliseconds() {
		s.Do(t, "PEXPIRE", "n", strconv.FormatInt(lease.Milliseconds(), 10))
	}
}

// When our last reader leaves, the lock lasts as long as the longest hold of foreign readers, and
// is free when that ends.
func TestRWForeignReadersAreKeptAndNoLonger(t *testing.T) {
	t.Parallel()
	const lease = 4 * time.Second
	for _, longest := range []int{1, 3} {
		s := rwServer(t)
		l := rwClient(t, s, 30*time.Second).ReadWriteLock("n")
		writer := rwClient(t, s, 0).ReadWriteLock("n", rwTold()).WriteLock()
		a := rwLock(t, l.ReadLock(), t.Context())
		began := time.Now()
		rwForeignReads(t, s, 3, longest, lease)
		ends := time.Now().Add(lease)
		b := rwLock(t, l.ReadLock(), t.Context())
		next := rwAsync(t, writer, t.Context())
		rwWaiting(t, s, "writers", 1)
		rwUnlock(t, a, b)
		if freed := time.Now(); freed.After(ends) {
			ends = freed // the writer waits for ours, too
		}
		ttl := s.Int(t, "PTTL", "n")
		if least := lease - time.Since(began); ttl > lease.Milliseconds() || ttl < least.Milliseconds() {
			t.Errorf("the lock lasts %d ms, the foreign reader's lease was %v, and %v of it are left", ttl, lease, least)
		}
		w := rwGot(t, next, lease+rwSoon)
		entered := time.Now() // their leases began after began, and were over at ends
		t.Logf("the writer entered %v after the foreign reader's lease", entered.Sub(ends))
		if early := began.Add(lease).Sub(entered); early > 10*time.Millisecond {
			t.Errorf("the writer entered %v before the end of the foreign reader's lease", early)
		}
		if late := entered.Sub(ends); late > rwSoon {
			t.Errorf("the writer entered %v after the end of the foreign reader's lease", late)
		}
		rwUnlock(t, w)
	}
}

// A foreign reader is kept no longer than its lease though the server stood still in the middle of
// a script. Before Redis 7.2 the clock goes on while a script runs. If the server stands still
// between a script's TIME and its PEXPIRE, the lock's TTL ends after what the script noted as the
// hold's end. Its release lowers it all the same.
func TestRWForeignReaderIsKeptNoLongerThoughTheServerStoodStill(t *testing.T) {
	t.Parallel()
	const lease = 1500 * time.Millisecond
	s := rwServer(t)
	h := rwLock(t, rwClient(t, s, 30*time.Second).ReadWriteLock("n").ReadLock(), t.Context())
	s.Do(t, "PEXPIRE", "n", strconv.FormatInt(s.Int(t, "PTTL", "n")+50, 10)) // it stood still for 50 ms
	rwForeignReads(t, s, 1, 1, lease)
	rwUnlock(t, h)
	if ttl := s.Int(t, "PTTL", "n"); ttl > lease.Milliseconds() {
		t.Errorf("the lock lasts %d ms, the foreign reader's lease was %v", ttl, lease)
	}
	s.Do(t, "FLUSHALL")
}

// A foreign reader stays inside though leases are noted of a lock of that name that somebody
// deleted.
func TestRWForeignReaderSurvivesAnEarlierLifeOfTheLock(t *testing.T) {
	s := rwServer(t)
	dead := rwSpawn(t, s, 5*time.Second)
	for range 3 {
		dead.Lock(t, rwAsk("read", 0))
	}
	dead.Kill(t)
	s.Do(t, "DEL", "n") // as Redisson's forceUnlock does: our leases stay behind
	rwForeignReads(t, s, 1, 1, time.Minute)
	h := rwLock(t, rwClient(t, s, 30*time.Second).ReadWriteLock("n").ReadLock(), t.Context())
	rwUnlock(t, h)
	if ttl := s.Int(t, "PTTL", "n"); ttl < 40000 || ttl > 60000 {
		t.Errorf("the foreign reader's lock lasts %d ms, want its lease", ttl)
	}
	rwBusy(t, rwClient(t, s, 0).ReadWriteLock("n").WriteLock(), t.Context())
	s.Do(t, "FLUSHALL")
}

// TestRWForeignRenewalsDoNotShortenOurs: a foreign renewal sets the lock's TTL to
// its own lease; our fixed lease is put right at the next check, and not beyond
// its end.
func TestRWForeignRenewalsDoNotShortenOurs(t *testing.T) {
	t.Parallel()
	s := rwServer(t)
	const check = 8 * time.Second // the first one comes after half of it
	c := rwClient(t, s, 3*check)
	h := rwLock(t, c.ReadWriteLock("n").ReadLock(), t.Context(), redlatch.WithLease(2*time.Minute))
	field := rwOnlyReader(t, s)
	before := rwRemaining(t, s, field)
	begin := time.Now()
	s.Do(t, "PEXPIRE", "n", "30000")
	s.Do(t, "PEXPIRE", "{n}:"+field+":rwlock_timeout:1", "30000")
	bed.Eventually(t, "the lease is put right", func() bool {
		return s.Int(t, "PTTL", "n") > 60000 && s.Int(t, "PTTL", "{n}:"+field+":rwlock_timeout:1") > 60000
	})
	if took := time.Since(begin); took > check+rwSoon {
		t.Errorf("put right after %v", took)
	}
	asked := time.Since(begin)
	ends := asked + time.Duration(s.Int(t, "PTTL", "n"))*time.Millisecond
	// What is left is sent, and counts from when it arrives; the whole lease anew would end half a
	// check later at least.
	if ends > before+check/4 {
		t.Errorf("the lease ends %v later than it did", ends-before)
	}
	rwUnlock(t, h)
}

// Renewals of foreign readers don't revive our dead ones. Redisson 3.x renews the timeout keys of
// every reader in the hash, and its unlock gives the lock the longest of them. Our writers go by
// the leases that we have noted.
func TestRWForeignRenewalsDoNotReviveOurDead(t *testing.T) {
	t.Parallel()
	const (
		// What follows up to the foreign unlock must happen within it: a writer that asks
		// when only the foreign reader is left waits for that one's lease, rightly.
		lease   = 5 * time.Second
		foreign = 10 * time.Minute
		late    = 5 * time.Second // far from the lease that the dead one seems to have
	)
	s := rwServer(t)
	writer := rwClient(t, s, 0).ReadWriteLock("n").WriteLock()
	dead := rwSpawn(t, s, lease)
	dead.Lock(t, rwAsk("read", 0))
	field := rwOnlyReader(t, s)
	dead.Kill(t)
	rwForeignReads(t, s, 1, 1, foreign)
	next := rwAsync(t, writer, t.Context())
	rwWaiting(t, s, "writers", 1)
	asked := time.Now()
	left := rwRemaining(t, s, field)
	soonest, ends := asked.Add(left), time.Now().Add(left)
	own := "{n}:" + field + ":rwlock_timeout:1"
	ms := strconv.FormatInt(foreign.Milliseconds(), 10)
	s.Do(t, "PEXPIRE", own, ms)
	s.Do(t, "HDEL", "n", rwForeign)
	s.Do(t, "DEL", "{n}:"+rwForeign+":rwlock_timeout:1")
	s.Do(t, "PEXPIRE", "n", ms)
	w := rwGot(t, next, lease+2*late)
	entered := time.Now()
	t.Logf("the writer entered %v after the dead reader's lease", entered.Sub(ends))
	if early := soonest.Sub(entered); early > 10*time.Millisecond {
		t.Errorf("the writer entered %v before the end of the dead reader's lease", early)
	}
	if after := entered.Sub(ends); after > late {
		t.Errorf("the writer entered %v after the end of the dead reader's lease", after)
	}
	rwUnlock(t, w)
	s.Do(t, "DEL", own)
}

// A foreign writer's unlock wakes our waiters, of both modes.
func TestRWForeignWriterWakesOurs(t *testing.T) {
	s := rwServer(t)
	l := rwClient(t, s, 0).ReadWriteLock("n", rwTold())
	s.Do(t, "HSET", "n", "mode", "write", rwForeign+":write", "1")
	s.Do(t, "PEXPIRE", "n", "30000")
	r1, r2 := rwAsync(t, l.ReadLock(), t.Context()), rwAsync(t, l.ReadLock(), t.Context())
	rwWaiting(t, s, "readers", 2)
	rwBusy(t, l.WriteLock(), t.Context())
	rwQuiet(t, s)
	s.Do(t, "DEL", "n")
	s.Do(t, "PUBLISH", "redisson_rwlock:{n}", "1")
	h1, h2 := rwGot(t, r1, rwSoon), rwGot(t, r2, rwSoon)
	w := rwAsync(t, l.WriteLock(), t.Context())
	rwWaiting(t, s, "writers", 1)
	rwForeignReads(t, s, 1, 1, 30*time.Second)
	rwUnlock(t, h1, h2)
	rwQuiet(t, s)
	s.Do(t, "DEL", "n", "{n}:"+rwForeign+":rwlock_timeout:1", rwLeases)
	s.Do(t, "PUBLISH", "redisson_rwlock:{n}", "0")
	rwUnlock(t, rwGot(t, w, rwSoon))
}
