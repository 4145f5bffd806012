package multi

import (
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/integration/bed"
	"github.com/redlatch/redlatch/internal/testbed"
)

// TestQuorumOfReadWriteLocks: a quorum's copies can be read and write locks.
func TestQuorumOfReadWriteLocks(t *testing.T) {
	list := servers(t, 3)
	mine, theirs := clients(t, addrs(list)), clients(t, addrs(list))
	read := func(cs []*redlatch.Client) redlatch.Member {
		members := make([]redlatch.Member, len(cs))
		for i, c := range cs {
			members[i] = c.ReadWriteLock("rw", redlatch.Fenced()).ReadLock()
		}
		return redlatch.QuorumLock(members...)
	}
	write := func(cs []*redlatch.Client) redlatch.Member {
		members := make([]redlatch.Member, len(cs))
		for i, c := range cs {
			members[i] = c.ReadWriteLock("rw", redlatch.Fenced()).WriteLock()
		}
		return redlatch.QuorumLock(members...)
	}
	w := bed.Lock(t, t.Context(), write(mine))
	_, err := read(theirs).TryLock(t.Context(), 0, 0)
	want(t, err, redlatch.ErrNotAcquired)
	_, err = write(theirs).TryLock(t.Context(), 200*time.Millisecond, 0)
	want(t, err, redlatch.ErrNotAcquired)

	// Readers that wait enter together when the writer leaves.
	r1, r2 := bed.Async(t.Context(), read(mine)), bed.Async(t.Context(), read(theirs))
	stand(t, list, "readers", 2)
	blocked(t, r1)
	began := time.Now()
	bed.Unlock(t, w)
	h1, h2 := bed.Hold(t, r1), bed.Hold(t, r2)
	if took := time.Since(began); took > woken {
		t.Errorf("readers entered %v after the writer left", took)
	}
	again := bed.Lock(t, h1.Context(), read(mine))
	bed.Unlock(t, again)

	// A writer that waits enters when the last reader leaves.
	wait := bed.Async(t.Context(), write(theirs))
	bed.Unlock(t, h1)
	stand(t, list, "writers", 1)
	blocked(t, wait)
	began = time.Now()
	bed.Unlock(t, h2)
	w2 := bed.Hold(t, wait)
	if took := time.Since(began); took > woken {
		t.Errorf("the writer entered %v after the last reader left", took)
	}
	if w2.Token() <= w.Token() {
		t.Errorf("token %d after %d", w2.Token(), w.Token())
	}

	// Read to write by one owner is refused, not waited for.
	bed.Unlock(t, w2)
	h1 = bed.Lock(t, t.Context(), read(mine))
	_, err = write(mine).Lock(h1.Context())
	want(t, err, redlatch.ErrUpgrade)
	bed.Unlock(t, h1)

	// All three kinds in a MultiLock, both halves of one lock among them.
	c := mine[0]
	rw := c.ReadWriteLock("both")
	m := redlatch.MultiLock(rw.ReadLock(), c.RLock("z"), rw.WriteLock(), c.FairLock("f"))
	bed.Unlock(t, bed.Lock(t, t.Context(), m))
	bed.Unlock(t, bed.Lock(t, t.Context(), m))
	for _, s := range list {
		bed.Eventually(t, "nothing but counters", func() bool {
			for _, k := range s.List(t, "KEYS", "*") {
				if len(k) < 19 || k[:19] != "redisson_lock_token" {
					return false
				}
			}
			return true
		})
	}
}

// TestYoungServersSayNothingOfReaders: that all servers of a new deployment let somebody read is
// no sign that one of them has not forgotten another reader: a write lock needs them all anew.
func TestYoungServersSayNothingOfReaders(t *testing.T) {
	t.Parallel()
	list := servers(t, 3)
	quorum := func(cs []*redlatch.Client, of func(*redlatch.ReadWriteLock) redlatch.Member) redlatch.Member {
		members := make([]redlatch.Member, len(cs))
		for i, c := range cs {
			members[i] = of(c.ReadWriteLock("rw"))
		}
		return redlatch.QuorumLock(members...)
	}
	read := func(l *redlatch.ReadWriteLock) redlatch.Member { return l.ReadLock() }
	write := func(l *redlatch.ReadWriteLock) redlatch.Member { return l.WriteLock() }
	long := lease(5 * time.Minute) // no server is that old
	mine, theirs := clients(t, addrs(list), long), clients(t, addrs(list), long)

	bed.Unlock(t, bed.Lock(t, t.Context(), quorum(mine, read)))
	busy := bed.Lock(t, t.Context(), bed.Client(t, list[2].Addr()).ReadWriteLock("rw").WriteLock())
	r := bed.Lock(t, t.Context(), quorum(mine, read)) // on 0 and 1
	bed.Unlock(t, busy)
	list[1].Kill(t)
	list[1].Restart(t, testbed.Empty)

	bed.Unlock(t, bed.Lock(t, t.Context(), quorum(theirs, read)))
	w, err := quorum(theirs, write).TryLock(t.Context(), 0, 0)
	if err == nil && r.Context().Err() == nil {
		t.Error("a writer beside a reader")
	}
	if err == nil {
		bed.Unlock(t, w)
	} else {
		want(t, err, redlatch.ErrNotAcquired)
	}
	_ = r.Unlock(t.Context()) // it lost server 1 and with it the majority
	bed.Unlock(t, bed.Lock(t, t.Context(), quorum(theirs, write)))
}

// stand waits until so many readers or writers of the lock rw wait on a majority of the servers.
func stand(t *testing.T, list []*testbed.Server, kind string, n int64) {
	t.Helper()
	bed.Eventually(t, kind+" wait", func() bool {
		on := 0
		for _, s := range list {
			if s.Int(t, "ZCARD", "redlatch_rw_"+kind+":{rw}") == n {
				on++
			}
		}
		return on > len(list)/2
	})
}
