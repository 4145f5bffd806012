package hazard

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
)

// Tokens of one name increase over all kinds and ways to get a lock: waiting, being handed
// it over, together with others, as a quorum's copy, after it was taken away by force, by
// another client, and when the counter is gone. Re-entry and reading keep the token.
func TestTokensIncreaseOverAllWaysToLock(t *testing.T) {
	s := server(t)
	one, two := dial(t, s.Addr()), dial(t, s.Addr(), func(c *redlatch.Config) { c.FenceTTL = -1 })
	fenced := redlatch.Fenced()
	var last uint64
	token := func(h redlatch.Hold) uint64 {
		if m, ok := h.(redlatch.MultiHold); ok {
			return m.Tokens()[0]
		}
		return h.Token()
	}
	newer := func(t *testing.T, h redlatch.Hold) redlatch.Hold {
		t.Helper()
		if got := token(h); got <= last {
			t.Errorf("token %d after %d", got, last)
		}
		last = token(h)
		return h
	}
	same := func(t *testing.T, h redlatch.Hold) {
		t.Helper()
		if got := token(h); got != last {
			t.Errorf("token %d, want the same as before, %d", got, last)
		}
		unlock(t, h)
	}
	ways := map[string]func(t *testing.T, c *redlatch.Client){
		"rlock": func(t *testing.T, c *redlatch.Client) {
			h := newer(t, take(t, t.Context(), c.RLock("t", fenced)))
			same(t, take(t, h.Context(), c.RLock("t", fenced)))
			next := async(t.Context(), two.RLock("t", fenced))
			eventually(t, "a waiter", func() bool { return len(s.List(t, "PUBSUB", "CHANNELS")) > 0 })
			unlock(t, h)
			unlock(t, newer(t, await(t, next).hold))
		},
		"fair": func(t *testing.T, c *redlatch.Client) {
			h := newer(t, take(t, t.Context(), c.FairLock("t", fenced)))
			next := async(t.Context(), two.FairLock("t", fenced))
			eventually(t, "a waiter", func() bool { return s.Int(t, "LLEN", "redisson_lock_queue:{t}") == 1 })
			unlock(t, h)
			unlock(t, newer(t, await(t, next).hold))
		},
		"write": func(t *testing.T, c *redlatch.Client) {
			rw := c.ReadWriteLock("t", fenced)
			h := newer(t, take(t, t.Context(), rw.WriteLock()))
			same(t, take(t, h.Context(), rw.ReadLock()))
			unlock(t, h)
			same(t, take(t, t.Context(), rw.ReadLock()))
		},
		"group": func(t *testing.T, c *redlatch.Client) {
			unlock(t, newer(t, take(t, t.Context(), redlatch.MultiLock(c.RLock("t", fenced), c.RLock("u", fenced)))))
		},
		"units": func(t *testing.T, c *redlatch.Client) {
			unlock(t, newer(t, take(t, t.Context(), redlatch.MultiLock(c.RLock("t", fenced), c.FairLock("u", fenced)))))
		},
		"quorum": func(t *testing.T, c *redlatch.Client) {
			unlock(t, newer(t, take(t, t.Context(), redlatch.QuorumLock(c.RLock("t", fenced)))))
		},
		"by force": func(t *testing.T, c *redlatch.Client) {
			lost := newer(t, take(t, t.Context(), c.RLock("t", fenced)))
			if was, err := two.ForceUnlock(t.Context(), "t"); !was || err != nil {
				t.Fatalf("ForceUnlock: %v, %v", was, err)
			}
			unlock(t, newer(t, take(t, t.Context(), c.RLock("t", fenced))))
			is(t, "Unlock of what was taken away", lost.Unlock(t.Context()), redlatch.ErrLeaseLost)
		},
	}
	for range 2 {
		for name, way := range ways { // in any order
			t.Run(name, func(t *testing.T) { way(t, one); way(t, two) })
		}
		st, err := one.RLock("t", fenced).State(t.Context())
		if in, ierr := one.Inspect(t.Context(), "t"); err != nil || ierr != nil || st.Token != last || in.Token != last {
			t.Errorf("State says %d (%v), Inspect %d (%v), want %d", st.Token, err, in.Token, ierr, last)
		}
		s.Do(t, "DEL", "redisson_lock_token:{t}")
	}
}

// Which owner a context carries: the innermost of WithOwner, NewOwner and a hold's context
// decides. An owner is one of its client.
func TestInnermostOwnerOfAContextDecides(t *testing.T) {
	s := server(t)
	c, other := dial(t, s.Addr()), dial(t, s.Addr())
	for _, kind := range kinds {
		if kind.name == "read" {
			continue // admits them all
		}
		l, second := kind.make(c, "o-"+kind.name), kind.make(c, "p-"+kind.name)
		x := redlatch.WithOwner(t.Context(), "x")
		h := take(t, x, l)
		in := take(t, h.Context(), second)
		for _, try := range []struct {
			what  string
			l     redlatch.Locker
			ctx   context.Context
			holds bool
		}{
			{"the id again", l, redlatch.WithOwner(t.Context(), "x"), true},
			{"the hold's context", l, h.Context(), true},
			{"the hold's context without its cancellation", l, context.WithoutCancel(h.Context()), true},
			{"the context of a hold that this owner has of another lock", l, in.Context(), true},
			{"the id for that lock", second, x, true},
			{"another id over the hold's context", l, redlatch.WithOwner(h.Context(), "y"), false},
			{"NewOwner over the hold's context", l, redlatch.NewOwner(h.Context()), false},
			{"NewOwner over the id", l, redlatch.NewOwner(x), false},
			{"the id over NewOwner", l, redlatch.WithOwner(redlatch.NewOwner(x), "x"), true},
			{"the id on another client", kind.make(other, "o-"+kind.name), x, false},
			{"the hold's context on another client", kind.make(other, "o-"+kind.name), h.Context(), false},
			{"no owner", l, t.Context(), false},
		} {
			again, err := try.l.TryLock(try.ctx, 0, 0)
			if err == nil {
				unlock(t, again)
			}
			if (err == nil) != try.holds {
				t.Errorf("%s, %s: %v", kind.name, try.what, err)
			}
		}
		unlock(t, h)
		unlock(t, in)
	}
}

// An owner whose lock was lost is like anybody else: it waits for the next holder and then
// takes the lock anew. Its old hold says that it was lost, once, and is not taken for the new one.
func TestLostHoldOfAnOwnerIsNotItsNextOne(t *testing.T) {
	s := server(t)
	c, other := dial(t, s.Addr()), dial(t, s.Addr())
	for _, kind := range kinds {
		t.Run(kind.name, func(t *testing.T) {
			t.Parallel()
			l := kind.make(c, "lost-"+kind.name)
			x := redlatch.WithOwner(t.Context(), "x")
			old := take(t, x, l, redlatch.WithLease(200*time.Millisecond))
			next := take(t, t.Context(), exclusive(other, kind.name, "lost-"+kind.name))
			is(t, "the old hold's end", context.Cause(old.Context()), redlatch.ErrLeaseLost)
			_, err := l.TryLock(x, 0, 0)
			is(t, "the owner while another is inside", err, redlatch.ErrNotAcquired)
			unlock(t, next)

			anew := take(t, x, l)
			is(t, "Extend of the old hold", old.Extend(t.Context(), time.Hour), redlatch.ErrLeaseLost)
			is(t, "Unlock of the old hold", old.Unlock(t.Context()), redlatch.ErrLeaseLost)
			is(t, "its second Unlock", old.Unlock(t.Context()), redlatch.ErrNotHeld)
			if anew.Context().Err() != nil {
				t.Errorf("the new hold ended: %v", context.Cause(anew.Context()))
			}
			_, err = exclusive(other, kind.name, "lost-"+kind.name).TryLock(t.Context(), 0, 0)
			is(t, "another beside the new hold", err, redlatch.ErrNotAcquired)
			unlock(t, anew)
		})
	}
}

// Keys that belong to a lock are no locks, whatever an operator types, and are left as they are.
func TestKeysOfALockAreNoLocks(t *testing.T) {
	s := server(t)
	c := dial(t, s.Addr())
	locks := map[string]bool{"f": true, "r": true, "rw": true, "w": true}
	holds := []redlatch.Hold{
		take(t, t.Context(), c.FairLock("f", redlatch.Fenced())),
		take(t, t.Context(), c.RLock("r", redlatch.Fenced())),
		take(t, t.Context(), c.ReadWriteLock("rw").ReadLock()),
		take(t, t.Context(), c.ReadWriteLock("w", redlatch.Fenced()).WriteLock()),
	}
	ctx, cancel := context.WithCancel(t.Context())
	waiting := []<-chan result{
		async(ctx, c.FairLock("f")), async(ctx, c.ReadWriteLock("rw").WriteLock()),
		async(ctx, c.ReadWriteLock("w").ReadLock()), async(ctx, c.ReadWriteLock("w").WriteLock()),
	}
	if _, err := c.Once("job").Do(t.Context(), time.Second, func(context.Context) error { return nil }); err != nil {
		t.Fatal(err)
	}
	var keys []string
	eventually(t, "keys of every kind", func() bool {
		keys = s.List(t, "KEYS", "*")
		return len(keys) >= 15
	})
	for _, key := range keys {
		if locks[key] || key == "job" {
			continue
		}
		_, err := c.Inspect(t.Context(), key)
		is(t, "Inspect "+key, err, redlatch.ErrInvalidName)
		_, err = c.ForceUnlock(t.Context(), key)
		is(t, "ForceUnlock "+key, err, redlatch.ErrInvalidName)
		_, err = c.RLock(key).State(t.Context())
		is(t, "State "+key, err, redlatch.ErrInvalidName)
		_, err = c.FairLock(key).TryLock(t.Context(), time.Hour, 0)
		is(t, "TryLock "+key, err, redlatch.ErrInvalidName)
	}
	for in, err := range c.Locks(t.Context(), "") {
		if err != nil || !locks[in.Key] {
			t.Errorf("listed as a lock: %q, %v", in.Key, err)
		}
	}
	cancel()
	for _, w := range waiting {
		is(t, "a waiter that nobody disturbed", await(t, w).err, context.Canceled)
	}
	for _, h := range holds {
		unlock(t, h)
	}
	s.Do(t, "DEL", "redlatch_once:{job}")
}

// What Redisson publishes reaches waiters on names with all that means something in a
// channel pattern.
func TestForeignMessagesReachWaitersOnStrangeNames(t *testing.T) {
	s := server(t)
	c := dial(t, s.Addr())
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
			next := async(t.Context(), kind.l)
			channel := kind.channel
			if kind.isQueued { // Redisson calls the head of the queue on a channel of its own
				eventually(t, "a place in the queue", func() bool { return s.Int(t, "LLEN", of("redisson_lock_queue")) == 1 })
				channel += s.List(t, "LRANGE", of("redisson_lock_queue"), "0", "0")[0]
			}
			// A message while the lock is busy changes nothing; this one shows that somebody listens.
			eventually(t, "a listener", func() bool { return s.Int(t, "PUBLISH", channel, kind.message) == 1 })
			s.Do(t, "DEL", name)
			s.Do(t, "PUBLISH", channel, kind.message)
			unlock(t, await(t, next).hold)
		}
	}
}
