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

// TestRefusedHalfWay: whoever may not run one of an acquisition's commands is told so, and
// leaves no lock behind that nobody holds. (Without HDEL, DEL or ZREM nothing can be undone.)
func TestRefusedHalfWay(t *testing.T) {
	s := testbed.Standalone(t)
	locks := []struct {
		name string
		make func(c *redlatch.Client, name string) redlatch.Locker
	}{
		{"rlock", func(c *redlatch.Client, name string) redlatch.Locker { return c.RLock(name, redlatch.Fenced()) }},
		{"fair", func(c *redlatch.Client, name string) redlatch.Locker { return c.FairLock(name, redlatch.Fenced()) }},
		{"read", func(c *redlatch.Client, name string) redlatch.Locker {
			return c.ReadWriteLock(name, redlatch.Fenced()).ReadLock()
		}},
		{"write", func(c *redlatch.Client, name string) redlatch.Locker {
			return c.ReadWriteLock(name, redlatch.Fenced()).WriteLock()
		}},
	}
	for _, missing := range []string{"hset", "pexpire", "set", "get", "zadd", "zrange", "pttl"} {
		s.SetUser(t, "half", "reset", "on", ">pw", "~*", "&*", "+@all", "-"+missing)
		c := rlClient(t, s.Addr(), func(c *redlatch.Config) {
			c.Redis.Username, c.Redis.Password = "half", "pw"
		})
		for _, l := range locks {
			t.Run(l.name+" without "+missing, func(t *testing.T) {
				name := l.name + "-" + missing
				h, err := l.make(c, name).TryLock(t.Context(), 0, time.Hour)
				if err == nil {
					ctx, cancel := context.WithTimeout(context.Background(), time.Second)
					defer cancel()
					_ = h.Unlock(ctx) // what else is refused does not concern us here
					return
				}
				var refused *redlatch.ServerError
				if !errors.As(err, &refused) {
					t.Errorf("TryLock: %v", err)
				}
				bed.Eventually(t, "what it had begun undone", func() bool { return s.Int(t, "EXISTS", name) == 0 })
			})
		}
	}
}

// TestReaderRefusedHalfWay: who may not set a lease gets no read lock that would end with the lease of
// a reader who is inside.
func TestReaderRefusedHalfWay(t *testing.T) {
	s := testbed.Standalone(t)
	s.SetUser(t, "half", "reset", "on", ">pw", "~*", "&*", "+@all", "-pexpire")
	inside, err := rlClient(t, s.Addr()).ReadWriteLock("n").ReadLock().Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	c := rlClient(t, s.Addr(), func(c *redlatch.Config) { c.Redis.Username, c.Redis.Password = "half", "pw" })
	_, err = c.ReadWriteLock("n").ReadLock().TryLock(t.Context(), 0, time.Hour)
	var refused *redlatch.ServerError
	if !errors.As(err, &refused) {
		t.Errorf("TryLock: %v", err)
	}
	if fields := s.Hash(t, "HGETALL", "n"); len(fields) != 2 {
		t.Errorf("the lock is %v, want the reader's who is inside alone", fields)
	}
	if err := inside.Unlock(t.Context()); err != nil {
		t.Error(err)
	}
	if n := s.Int(t, "DBSIZE"); n != 0 {
		t.Errorf("%d keys left: %v", n, s.List(t, "KEYS", "*"))
	}
}

// Who is refused for a fencing counter that holds no number leaves no lock behind.
func TestACounterThatHoldsNoNumber(t *testing.T) {
	s := testbed.Standalone(t)
	c := rlClient(t, s.Addr())
	for name, l := range map[string]redlatch.Locker{
		"rlock": c.RLock("rlock", redlatch.Fenced()),
		"fair":  c.FairLock("fair", redlatch.Fenced()),
		"read":  c.ReadWriteLock("read", redlatch.Fenced()).ReadLock(),
		"write": c.ReadWriteLock("write", redlatch.Fenced()).WriteLock(),
	} {
		s.Do(t, "SET", "redisson_lock_token:{"+name+"}", "none")
		_, err := l.TryLock(t.Context(), 0, time.Hour)
		var refused *redlatch.ServerError
		if !errors.As(err, &refused) {
			t.Errorf("%s: %v", name, err)
		}
		if ttl := s.Int(t, "PTTL", name); ttl != -2 {
			t.Errorf("%s: it was refused (%v), and nobody holds the lock, for %v", name, err, time.Duration(ttl)*time.Millisecond)
		}
	}
}
