package integration

import (
	"context"
	"log/slog"
	"strings"
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
			_ = bed.As[*redlatch.ServerError](t, err)
			bed.Eventually(t, "what "+name+" had begun undone", func() bool { return s.Int(t, "EXISTS", name) == 0 })
		}
	}
}

// Who may run no script, or not on these keys, has nothing to give back: the error is all that is said of it.
func TestRefusedAsAWhole(t *testing.T) {
	s := testbed.Standalone(t)
	for what, rule := range map[string]string{"run": "-evalsha", "keys": "resetkeys"} {
		var log strings.Builder
		s.SetUser(t, what, "on", ">pw", "~*", "&*", "+@all")
		c := rlClient(t, s.Addr(), func(c *redlatch.Config) {
			c.Redis.Username, c.Redis.Password = what, "pw"
			c.Logger = slog.New(slog.NewTextHandler(&log, nil))
		})
		s.Do(t, "ACL", "SETUSER", what, rule)
		for _, l := range fencedLocks(c, what) {
			_, err := l.Lock(t.Context())
			_ = bed.As[*redlatch.ServerError](t, err)
		}
		c.Close()
		testbed.Equal(t, log.String(), "", "the log")
	}
}

// Who may not set a lease gets no read lock that would end with the lease of a reader who is inside.
func TestReaderRefusedHalfWay(t *testing.T) {
	s := testbed.Standalone(t)
	s.SetUser(t, "half", "on", ">pw", "~*", "&*", "+@all", "-pexpire")
	inside := bed.Lock(t, t.Context(), rlClient(t, s.Addr()).ReadWriteLock("n").ReadLock())
	c := rlClient(t, s.Addr(), func(c *redlatch.Config) { c.Redis.Username, c.Redis.Password = "half", "pw" })
	_, err := c.ReadWriteLock("n").ReadLock().TryLock(t.Context(), 0, time.Hour)
	_ = bed.As[*redlatch.ServerError](t, err)
	testbed.Equal(t, len(s.Hash(t, "HGETALL", "n")), 2, "fields of the lock: the reader's who is inside alone")
	bed.Unlock(t, inside)
	testbed.Equal(t, strings.Join(s.List(t, "KEYS", "*"), " "), "", "what is left")
}
