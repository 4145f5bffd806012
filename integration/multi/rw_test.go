package multi

import (
	"testing"
	"time"

	"github.com/redlatch/redlatch"
)

// TestQuorumOfReadWriteLocks: a quorum's copies can be read and write locks.
func TestQuorumOfReadWriteLocks(t *testing.T) {
	list := servers(t, 3)
	mine, theirs := clients(t, addrs(list)), clients(t, addrs(list))
	read := func(cs []*redlatch.Client) redlatch.Locker {
		members := make([]redlatch.Locker, len(cs))
		for i, c := range cs {
			members[i] = c.ReadWriteLock("rw", redlatch.Fenced()).ReadLock()
		}
		return redlatch.QuorumLock(members...)
	}
	write := func(cs []*redlatch.Client) redlatch.Locker {
		members := make([]redlatch.Locker, len(cs))
		for i, c := range cs {
			members[i] = c.ReadWriteLock("rw", redlatch.Fenced()).WriteLock()
		}
		return redlatch.QuorumLock(members...)
	}
	w := mustLock(t, t.Context(), write(mine))
	_, err := read(theirs).TryLock(t.Context(), 0, 0)
	want(t, err, redlatch.ErrNotAcquired)
	_, err = write(theirs).TryLock(t.Context(), 200*time.Millisecond, 0)
	want(t, err, redlatch.ErrNotAcquired)

	// Readers that wait enter together when the writer leaves.
	r1, r2 := async(t.Context(), read(mine)), async(t.Context(), read(theirs))
	time.Sleep(100 * time.Millisecond)
	blocked(t, r1)
	began := time.Now()
	unlock(t, w)
	h1, h2 := get(t, r1), get(t, r2)
	if took := time.Since(began); took > 3*time.Second {
		t.Errorf("readers entered %v after the writer left", took)
	}
	again := mustLock(t, h1.Context(), read(mine))
	unlock(t, again)

	// A writer that waits enters when the last reader leaves.
	wait := async(t.Context(), write(theirs))
	unlock(t, h1)
	time.Sleep(100 * time.Millisecond)
	blocked(t, wait)
	began = time.Now()
	unlock(t, h2)
	w2 := get(t, wait)
	if took := time.Since(began); took > 3*time.Second {
		t.Errorf("the writer entered %v after the last reader left", took)
	}
	if w2.Token() <= w.Token() {
		t.Errorf("token %d after %d", w2.Token(), w.Token())
	}

	// Read to write by one owner is refused, not waited for.
	unlock(t, w2)
	h1 = mustLock(t, t.Context(), read(mine))
	_, err = write(mine).Lock(h1.Context())
	want(t, err, redlatch.ErrUpgrade)
	unlock(t, h1)

	// All three kinds in a MultiLock, both halves of one lock among them.
	c := mine[0]
	rw := c.ReadWriteLock("both")
	m := redlatch.MultiLock(rw.ReadLock(), c.RLock("z"), rw.WriteLock(), c.FairLock("f"))
	unlock(t, mustLock(t, t.Context(), m))
	unlock(t, mustLock(t, t.Context(), m))
	for _, s := range list {
		eventually(t, "nothing but counters", func() bool {
			for _, k := range s.List(t, "KEYS", "*") {
				if len(k) < 19 || k[:19] != "redisson_lock_token" {
					return false
				}
			}
			return true
		})
	}
}
