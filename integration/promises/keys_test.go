package promises

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/integration/bed"
)

// Keys that belong to a lock are no locks, whatever an operator types, and are left as they are.
func TestKeysOfALockAreNoLocks(t *testing.T) {
	t.Parallel()
	s := bed.Server(t)
	c := bed.Client(t, s.Addr())
	locks := map[string]bool{"f": true, "r": true, "rw": true, "w": true}
	holds := []redlatch.Hold{
		bed.Lock(t, t.Context(), c.FairLock("f", redlatch.Fenced())),
		bed.Lock(t, t.Context(), c.RLock("r", redlatch.Fenced())),
		bed.Lock(t, t.Context(), c.ReadWriteLock("rw").ReadLock()),
		bed.Lock(t, t.Context(), c.ReadWriteLock("w", redlatch.Fenced()).WriteLock()),
	}
	ctx, cancel := context.WithCancel(t.Context())
	waiting := []<-chan bed.Attempt{
		bed.Async(ctx, c.FairLock("f")), bed.Async(ctx, c.ReadWriteLock("rw").WriteLock()),
		bed.Async(ctx, c.ReadWriteLock("w").ReadLock()), bed.Async(ctx, c.ReadWriteLock("w").WriteLock()),
	}
	if _, err := c.Once("job").Do(t.Context(), time.Second, func(context.Context) error { return nil }); err != nil {
		t.Fatal(err)
	}
	var keys []string
	bed.Eventually(t, "keys of every kind", func() bool {
		keys = s.List(t, "KEYS", "*")
		return len(keys) >= 15
	})
	for _, key := range keys {
		if locks[key] || key == "job" {
			continue
		}
		_, err := c.Inspect(t.Context(), key)
		want(t, "Inspect "+key, err, redlatch.ErrInvalidName)
		_, err = c.ForceUnlock(t.Context(), key)
		want(t, "ForceUnlock "+key, err, redlatch.ErrInvalidName)
		_, err = c.RLock(key).State(t.Context())
		want(t, "State "+key, err, redlatch.ErrInvalidName)
		_, err = c.FairLock(key).TryLock(t.Context(), time.Hour, 0)
		want(t, "TryLock "+key, err, redlatch.ErrInvalidName)
	}
	for in, err := range c.Locks(t.Context(), "") {
		if err != nil || !locks[in.Key] {
			t.Errorf("listed as a lock: %q, %v", in.Key, err)
		}
	}
	cancel()
	for _, w := range waiting {
		want(t, "a waiter that nobody disturbed", bed.Get(t, w).Err, context.Canceled)
	}
	bed.Unlock(t, holds...)
	s.Do(t, "DEL", "redlatch_once:{job}")
}

// What Redisson publishes reaches waiters on names with all that means something in a
// channel pattern.
func TestForeignMessagesReachWaitersOnStrangeNames(t *testing.T) {
	t.Parallel()
	s := bed.Server(t)
	c := bed.Client(t, s.Addr())
	const java = "8743c9c0-0795-4907-87fd-6c719a6b4586:42"
	for _, name := range []string{"a*b", "a[bc]d", "q?x", `back\slash`, "^[^x]", "{tag}*", "two\nlines", "\xff\xfe"} {
		of := func(prefix string) string {
			if strings.Contains(name, "{") {
				return prefix + ":" + name
			}
			return prefix + ":{" + name + "}"
		}
		for _, kind := range []struct {
			name     string
			field    []string
			channel  string
			message  string
			l        redlatch.Locker
			isQueued bool
		}{
			{"rlock", []string{java, "1"}, of("redisson_lock__channel"), "0", c.RLock(name), false},
			{"fair", []string{java, "1"}, of("redisson_lock__channel") + ":", "0", c.FairLock(name), true},
			{"read", []string{"mode", "write", java + ":write", "1"}, of("redisson_rwlock"), "1", c.ReadWriteLock(name).ReadLock(), false},
		} {
			s.Do(t, append([]string{"HSET", name}, kind.field...)...)
			s.Do(t, "PEXPIRE", name, "3600000")
			next := bed.Async(t.Context(), kind.l)
			channel := kind.channel
			if kind.isQueued { // Redisson calls the head of the queue on a channel of its own
				bed.Eventually(t, "a place in the queue", func() bool { return s.Int(t, "LLEN", of("redisson_lock_queue")) == 1 })
				channel += s.List(t, "LRANGE", of("redisson_lock_queue"), "0", "0")[0]
			}
			// A message while the lock is busy changes nothing; this one shows that somebody listens.
			bed.Eventually(t, "a listener", func() bool { return s.Int(t, "PUBLISH", channel, kind.message) == 1 })
			s.Do(t, "DEL", name)
			s.Do(t, "PUBLISH", channel, kind.message)
			bed.Unlock(t, bed.Get(t, next).Hold)
		}
	}
}
