package integration

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/integration/bed"
	"github.com/redlatch/redlatch/internal/testbed"
)

// fencedLocks are locks of the single kinds.
func fencedLocks(c *redlatch.Client, name string) map[string]redlatch.Locker {
	f := redlatch.Fenced()
	rw := c.ReadWriteLock(name+"rw", f)
	return map[string]redlatch.Locker{
		name + "rlock": c.RLock(name+"rlock", f), name + "fair": c.FairLock(name+"fair", f),
		name + "rw": rw.WriteLock(), name + "r": c.ReadWriteLock(name+"r", f).ReadLock(),
	}
}

// refusedBy fails unless the server has refused it.
func refusedBy(t *testing.T, what string, err error) {
	t.Helper()
	if _, is := errors.AsType[*redlatch.ServerError](err); !is {
		t.Errorf("%s: %v", what, err)
	}
}

// Whoever may not run one of an acquisition's commands is told so, and leaves no lock behind that nobody holds.
// (Without HDEL, DEL or ZREM nothing can be undone.)
func TestRefusedHalfWay(t *testing.T) {
	s := testbed.Standalone(t)
	for _, missing := range []string{"hset", "pexpire", "set", "get", "zadd", "zrange", "pttl"} {
		s.SetUser(t, "half", "on", ">pw", "~*", "&*", "+@all", "-"+missing)
		c := rlClient(t, s.Addr(), func(c *redlatch.Config) { c.Redis.Username, c.Redis.Password = "half", "pw" })
		for name, l := range fencedLocks(c, missing) {
			h, err := l.TryLock(t.Context(), 0, time.Hour)
			if err == nil {
				ctx, cancel := context.WithTimeout(context.Background(), time.Second)
				defer cancel()
				_ = h.Unlock(ctx) // what else is refused does not concern us here
				continue
			}
			refusedBy(t, name, err)
			bed.Eventually(t, "what "+name+" had begun undone", func() bool { return s.Int(t, "EXISTS", name) == 0 })
		}
	}
}

// Who may not set a lease gets no read lock that would end with the lease of a reader who is inside.
func TestReaderRefusedHalfWay(t *testing.T) {
	s := testbed.Standalone(t)
	s.SetUser(t, "half", "on", ">pw", "~*", "&*", "+@all", "-pexpire")
	inside := bed.Lock(t, t.Context(), rlClient(t, s.Addr()).ReadWriteLock("n").ReadLock())
	c := rlClient(t, s.Addr(), func(c *redlatch.Config) { c.Redis.Username, c.Redis.Password = "half", "pw" })
	_, err := c.ReadWriteLock("n").ReadLock().TryLock(t.Context(), 0, time.Hour)
	refusedBy(t, "TryLock", err)
	if fields := s.Hash(t, "HGETALL", "n"); len(fields) != 2 {
		t.Errorf("the lock is %v, want the reader's who is inside alone", fields)
	}
	bed.Unlock(t, inside)
	if left := s.List(t, "KEYS", "*"); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}
