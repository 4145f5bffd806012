package promises

import (
	"strconv"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/integration/bed"
	"github.com/redlatch/redlatch/internal/testbed"
)

// Tokens of one name increase over all kinds and ways to get a lock: waiting, being handed
// it over, together with others, as a quorum's copy, after it was taken away by force, by
// another client, and when the counter is gone. Re-entry and reading keep the token. Who asks for none has none.
func TestTokensIncreaseOverAllWaysToLock(t *testing.T) {
	t.Parallel()
	s := bed.Server(t)
	one, two := bed.Client(t, s.Addr()), bed.Client(t, s.Addr(), func(c *redlatch.Config) { c.FenceTTL = -1 })
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
		bed.Unlock(t, h)
	}
	ways := map[string]func(t *testing.T, c *redlatch.Client){
		"rlock": func(t *testing.T, c *redlatch.Client) {
			h := newer(t, bed.Lock(t, t.Context(), c.RLock("t", fenced)))
			same(t, bed.Lock(t, h.Context(), c.RLock("t", fenced)))
			next := bed.Async(t.Context(), two.RLock("t", fenced))
			bed.Eventually(t, "a waiter", func() bool { return len(s.List(t, "PUBSUB", "CHANNELS")) > 0 })
			bed.Unlock(t, h)
			bed.Unlock(t, newer(t, bed.Get(t, next).Hold))
		},
		"fair": func(t *testing.T, c *redlatch.Client) {
			h := newer(t, bed.Lock(t, t.Context(), c.FairLock("t", fenced)))
			next := bed.Async(t.Context(), two.FairLock("t", fenced))
			bed.Eventually(t, "a waiter", func() bool { return s.Int(t, "LLEN", "redisson_lock_queue:{t}") == 1 })
			plain := bed.Async(t.Context(), c.FairLock("t"))
			bed.Eventually(t, "another one", func() bool { return s.Int(t, "LLEN", "redisson_lock_queue:{t}") == 2 })
			bed.Unlock(t, h)
			bed.Unlock(t, newer(t, bed.Hold(t, next)))
			h = bed.Hold(t, plain)
			if h.Token() != 0 {
				t.Errorf("token %d of one who asked for none and was handed the lock", h.Token())
			}
			bed.Unlock(t, h)
		},
		"write": func(t *testing.T, c *redlatch.Client) {
			rw := c.ReadWriteLock("t", fenced)
			h := newer(t, bed.Lock(t, t.Context(), rw.WriteLock()))
			same(t, bed.Lock(t, h.Context(), rw.ReadLock()))
			bed.Unlock(t, h)
			same(t, bed.Lock(t, t.Context(), rw.ReadLock()))
		},
		"not asked for": func(t *testing.T, c *redlatch.Client) {
			rw := c.ReadWriteLock("t")
			for _, l := range []redlatch.Locker{c.RLock("t"), c.FairLock("t"), rw.WriteLock(), rw.ReadLock()} {
				h := bed.Lock(t, t.Context(), l)
				if h.Token() != 0 {
					t.Errorf("%T: token %d", l, h.Token())
				}
				bed.Unlock(t, h)
			}
		},
		"group": func(t *testing.T, c *redlatch.Client) {
			bed.Unlock(t, newer(t, bed.Lock(t, t.Context(), redlatch.MultiLock(c.RLock("t", fenced), c.RLock("u", fenced)))))
		},
		"units": func(t *testing.T, c *redlatch.Client) {
			bed.Unlock(t, newer(t, bed.Lock(t, t.Context(), redlatch.MultiLock(c.RLock("t", fenced), c.FairLock("u", fenced)))))
		},
		"quorum": func(t *testing.T, c *redlatch.Client) {
			bed.Unlock(t, newer(t, bed.Lock(t, t.Context(), redlatch.QuorumLock(c.RLock("t", fenced)))))
		},
		"by force": func(t *testing.T, c *redlatch.Client) {
			lost := newer(t, bed.Lock(t, t.Context(), c.RLock("t", fenced)))
			if was, err := two.ForceUnlock(t.Context(), "t"); !was || err != nil {
				t.Fatalf("ForceUnlock: %v, %v", was, err)
			}
			bed.Unlock(t, newer(t, bed.Lock(t, t.Context(), c.RLock("t", fenced))))
			want(t, "Unlock of what was taken away", lost.Unlock(t.Context()), redlatch.ErrLeaseLost)
		},
	}
	same(t, bed.Lock(t, t.Context(), one.ReadWriteLock("t", fenced).ReadLock())) // 0: nobody has written
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

// A counter that is ahead of its server's clock, which was set back, or behind that of another one of a quorum, is kept
// until the clock has passed it, though nobody acquires for longer than FenceTTL: else tokens would fall.
func TestACounterAheadOfTheClockIsKept(t *testing.T) {
	t.Parallel()
	const counter, ahead = "redisson_lock_token:{t}", 48 * time.Hour
	var servers []*testbed.Server
	var copies []redlatch.Member
	fenced := redlatch.Fenced()
	for range 3 {
		s := bed.Server(t)
		servers = append(servers, s)
		copies = append(copies, bed.Client(t, s.Addr()).RLock("t", fenced))
	}
	s := servers[0]
	c := bed.Client(t, s.Addr())
	rw := c.ReadWriteLock("t", fenced)
	for what, l := range map[string]redlatch.Locker{
		"plain": c.RLock("t", fenced), "fair": c.FairLock("t", fenced), "write": rw.WriteLock(),
		"group": redlatch.MultiLock(c.RLock("t", fenced), c.RLock("u", fenced)), "quorum": redlatch.QuorumLock(copies...),
	} {
		at := s.Int(t, "EVAL", "return redis.call('TIME')[1]", "0")
		s.Do(t, "SET", counter, strconv.FormatInt((at*1000+ahead.Milliseconds())*1000, 10), "PX", "60000")
		bed.Unlock(t, bed.Lock(t, t.Context(), l))
		bed.Unlock(t, bed.Lock(t, t.Context(), rw.ReadLock())) // which keeps it, too
		kept := 0
		for _, s := range servers {
			if s.Int(t, "PTTL", counter) > (ahead - time.Hour).Milliseconds() {
				kept++
			}
			if s != servers[0] {
				s.Do(t, "DEL", counter)
			}
		}
		if least := map[bool]int{true: 2, false: 1}[what == "quorum"]; kept < least {
			t.Errorf("%s: kept on %d servers, %d ms on the first", what, kept, s.Int(t, "PTTL", counter))
		}
	}
}
