package fair

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/fairlock"
	"github.com/redlatch/redlatch/integration/bed"
	"github.com/redlatch/redlatch/internal/acl"
	"github.com/redlatch/redlatch/internal/testbed"
)

// The permissions of docs/ACL.md are enough for a fair lock, with 400 waiters that come and leave.
func TestMinimalACL(t *testing.T) {
	s := testbed.Standalone(t)
	s.SetUser(t, "app", append([]string{"on", ">secret"}, acl.Rules("fair", "fenced", "state", "evict")...)...)
	c := dial(t, s.Addr(), redlatch.WithConfig(func(c *redlatch.Config) {
		c.Redis.Username, c.Redis.Password, c.Prefix = "app", "secret", "app:"
	}))
	l := c.FairLock("l", redlatch.Fenced(), fairlock.WithSkipAfter(time.Second))
	const queue, scores = "redisson_lock_queue:{app:l}", "redisson_lock_timeout:{app:l}"
	hold := lockIt(t, l)
	bed.Unlock(t, lockItAgain(t, l, hold))
	const waiters = 400
	got := make(chan result, waiters)
	var cancels []context.CancelFunc
	join := func(i int) {
		ctx, cancel := context.WithCancel(t.Context())
		t.Cleanup(cancel)
		cancels = append(cancels, cancel)
		wait(ctx, l, i, got)
		eventually(t, 5*time.Second, "a place", func() bool { return s.Int(t, "LLEN", queue) == int64(i+1) })
	}
	for i := range 4 {
		join(i)
	}
	// as Redisson drops them, and with it in the queue
	for range 2 {
		s.Do(t, "ZREM", scores, s.Text(t, "LPOP", queue))
	}
	eventually(t, 5*time.Second, "they are back", func() bool { return s.Int(t, "LLEN", queue) == 4 })
	for _, key := range []string{queue, scores} { // lost: the other one is dropped and both are made anew
		s.Do(t, "DEL", key)
		eventually(t, 5*time.Second, "a whole queue again", func() bool {
			return s.Int(t, "LLEN", queue) == 4 && s.Int(t, "ZCARD", scores) == 4
		})
	}
	s.Do(t, "ZADD", scores, "100000000001", java(1))
	s.Do(t, "RPUSH", queue, java(1))
	eventually(t, 5*time.Second, "Redisson's is lifted with ours", func() bool {
		return s.Int(t, "ZCOUNT", scores, "1000000000000", "+inf") == 5
	})
	s.Do(t, "ZADD", scores, "9999999999999", java(1))
	for i := range 3 {
		ctx, cancel := context.WithCancel(t.Context())
		wait(ctx, l, i, got)
		eventually(t, 5*time.Second, "a place", func() bool { return s.Int(t, "LLEN", queue) == int64(6) })
		cancel()
		if r := receive(t, got, 5*time.Second); r.err == nil || !strings.Contains(r.err.Error(), context.Canceled.Error()) {
			t.Fatal(r.err)
		}
		eventually(t, 5*time.Second, "no place", func() bool { return s.Int(t, "LLEN", queue) == int64(5) })
	}
	s.Do(t, "RPOP", queue)
	s.Do(t, "ZREM", scores, java(1))
	for i := 4; i < waiters; i++ {
		join(i)
	}
	for i := 10; i < waiters-10; i++ {
		cancels[i]()
	}
	for range waiters - 20 {
		receive(t, got, 5*time.Second)
	}
	eventually(t, 5*time.Second, "a list made anew", func() bool { return s.Int(t, "LLEN", queue) < waiters/2 })
	if _, err := l.State(t.Context()); err != nil {
		t.Fatal(err)
	}
	if forced, err := l.ForceUnlock(t.Context()); !forced || err != nil {
		t.Fatal(forced, err)
	}
	for range 20 {
		bed.Unlock(t, entered(t, got, 5*time.Second).hold)
	}
	for _, denied := range s.DeniedCommands(t) {
		if !strings.Contains(denied, "psubscribe") { // the pattern for Redisson's calls can be done without
			t.Errorf("denied: %s", denied)
		}
	}
}

func lockItAgain(t *testing.T, l redlatch.Locker, h redlatch.Hold) redlatch.Hold {
	t.Helper()
	again, err := l.Lock(h.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := again.Extend(t.Context(), time.Minute); err != nil {
		t.Fatal(err)
	}
	return again
}
