package integration

import (
	"context"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/integration/bed"
	"github.com/redlatch/redlatch/internal/luascript"
	"github.com/redlatch/redlatch/internal/testbed"
)

// Waiting: who is woken, by what, and what it costs.

// 10,000 goroutines wait on one lock: one subscription, two connections, all are
// served, in the order in which they came.
func TestRLockTenThousandWaiters(t *testing.T) {
	s := bed.Loaded(t)
	c := rlClient(t, s.Addr())
	h := bed.Lock(t, t.Context(), c.RLock("l"))
	// The first 200 come one after the other, so that their order is known.
	const n, known = 10_000, 200
	var mu sync.Mutex
	var order []int
	var wg sync.WaitGroup
	waiting := func(k int) func() bool {
		return func() bool { return testbed.GoroutinesIn("(*acquisition).sleep") >= k }
	}
	for i := range n {
		wg.Go(func() {
			h, err := c.RLock("l").Lock(context.Background())
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			order = append(order, i)
			mu.Unlock()
			bed.Want(t, h.Unlock(context.Background()), nil)
		})
		if i < known {
			bed.Eventually(t, "a waiter in line", waiting(i+1))
		}
	}
	bed.Eventually(t, "all waiters", waiting(n))
	testbed.Equal(t, len(s.List(t, "PUBSUB", "CHANNELS")), 1, "subscriptions")
	testbed.AtMost(t, len(s.ForeignClients(t)), 2, "connections")
	// Newcomers stand behind those who wait, without asking the server.
	before := s.CommandStats(t)
	bed.Unlock(t, h)
	wg.Wait()
	calls := s.CommandStats(t).Sub(before).Calls
	if len(order) != n {
		t.Fatalf("%d of %d served", len(order), n)
	}
	for i := range known {
		if order[i] != i {
			t.Fatalf("place %d went to waiter %d", i, order[i])
		}
	}
	// Two scripts a turn, and a try in vain now and then when a message arrives
	// beside the hand-over.
	testbed.AtMost(t, calls["evalsha"], 4*n, "scripts for turns:", n)
	testbed.AtMost(t, calls["subscribe"], 2, "calls of subscribe")
	testbed.AtMost(t, calls["unsubscribe"], 2, "calls of unsubscribe")
}

// While a lock is held for long, the waiters of a process look once a second, together.
func TestRLockWaitersDoNotPoll(t *testing.T) {
	t.Parallel()
	s := bed.Loaded(t)
	c := rlClient(t, s.Addr(), redlatch.WithLeaseTime(10*time.Minute)) // no renewal comes meanwhile
	h := bed.Lock(t, t.Context(), c.RLock("l"))
	before := s.CommandStats(t)
	ctx, cancel := context.WithCancel(t.Context())
	var waiters []<-chan bed.Attempt
	for i := range 5 {
		waiters = append(waiters, bed.Async(ctx, c.RLock("l")))
		if i == 0 { // the others stand behind it and ask nothing
			bed.Eventually(t, "the second attempt, when the subscription stands", func() bool {
				return s.CommandStats(t).Sub(before).Calls["evalsha"] >= 2
			})
		}
	}
	s.AwaitQuiet(t)
	before = s.CommandStats(t)
	time.Sleep(1500 * time.Millisecond)
	testbed.AtMost(t, s.CommandStats(t).Sub(before).Calls["evalsha"], 3, "scripts in 1.5 s of waiting")
	cancel()
	for _, w := range waiters {
		bed.Want(t, bed.Get(t, w).Err, context.Canceled)
	}
	bed.Unlock(t, h)
}

// A waiter that is called, beside clients of Redisson, while a hold of its own process is in the way asks once, and does
// not have that hold checked again and again.
func TestCalledBesideAnOwnHoldIsNoPoll(t *testing.T) { //nolint:paralleltest // it counts goroutines
	const java = "8743c9c0-0795-4907-87fd-6c719a6b4586:42"
	s := bed.Loaded(t)
	c := rlClient(t, s.Addr(), redlatch.WithLeaseTime(10*time.Minute)) // no renewal comes meanwhile
	listens := func(channel string) {
		t.Helper()
		bed.Eventually(t, "a listener", func() bool { return s.Int(t, "PUBLISH", channel, "0") == 1 })
	}
	for name, wait := range map[string]func() (own redlatch.Hold, got <-chan bed.Attempt){
		"plain": func() (redlatch.Hold, <-chan bed.Attempt) {
			s.Do(t, "HSET", "plain", java, "1")
			s.Do(t, "PEXPIRE", "plain", "3600000")
			first := bed.Async(t.Context(), c.RLock("plain"))
			listens(luascript.LockChannel("plain"))
			got := bed.Async(t.Context(), c.RLock("plain"))
			bed.Eventually(t, "both in line", func() bool { return testbed.GoroutinesIn("(*acquisition).sleep") == 2 })
			before := s.CommandStats(t)
			listens(luascript.LockChannel("plain"))
			bed.Eventually(t, "that Redisson's is met again", func() bool { return s.CommandStats(t).Sub(before).Calls["evalsha"] > 0 })
			s.Do(t, "DEL", "plain")
			listens(luascript.LockChannel("plain"))
			return bed.Hold(t, first), got
		},
		"write": func() (redlatch.Hold, <-chan bed.Attempt) {
			own := bed.Lock(t, t.Context(), c.ReadWriteLock("write").ReadLock())
			s.Do(t, "HSET", "write", java, "1")
			s.Do(t, "SET", "{write}:"+java+":rwlock_timeout:1", "1", "PX", "3600000")
			got := bed.Async(t.Context(), c.ReadWriteLock("write").WriteLock())
			listens(luascript.RWChannel("write"))
			return own, got
		},
	} {
		own, got := wait()
		calls := s.List(t, "PUBSUB", "CHANNELS", luascript.CallChannel(name)+"*")[0]
		before := s.CommandStats(t)
		s.Do(t, "PUBLISH", calls, strconv.FormatInt(time.Now().UnixMicro(), 10))
		time.Sleep(500 * time.Millisecond)
		testbed.AtMost(t, s.CommandStats(t).Sub(before).Calls["evalsha"], 5, name, "scripts in 0.5 s of waiting")
		s.Do(t, "DEL", "{"+name+"}:"+java+":rwlock_timeout:1")
		s.Do(t, "HDEL", name, java)
		bed.Unlock(t, own)
		bed.Unlock(t, bed.Hold(t, got))
	}
}

// A waiter whose time on the server is yet to come, since the clock was set back or a server has taken over whose clock is
// behind, stands before those who come from its next look on, not from the time on at which the clock is there again.
func TestWaitersOutliveAClockThatWasSetBack(t *testing.T) {
	s := bed.Loaded(t)
	for list, lockOf := range map[string]func(*redlatch.Client) redlatch.Locker{
		luascript.WaitKey("l"):      func(c *redlatch.Client) redlatch.Locker { return c.RLock("l") },
		luascript.RWWritersKey("w"): func(c *redlatch.Client) redlatch.Locker { return c.ReadWriteLock("w").WriteLock() },
	} {
		h := bed.Lock(t, t.Context(), lockOf(rlClient(t, s.Addr())))
		var got []<-chan bed.Attempt
		waits := func() (first string) {
			got = append(got, bed.Async(t.Context(), lockOf(rlClient(t, s.Addr()))))
			bed.Eventually(t, "a place", func() bool { return s.Int(t, "ZCARD", list) == int64(len(got)) })
			return s.List(t, "ZRANGE", list, "0", "0")[0]
		}
		first := waits()
		s.Do(t, "ZINCRBY", list, "3600000000", first)
		bed.Eventually(t, "a look", func() bool {
			return s.Int(t, "ZCOUNT", list, "-inf", strconv.FormatInt(time.Now().UnixMicro(), 10)) == 1
		})
		testbed.Equal(t, waits(), first, "who is first in "+list)
		bed.Unlock(t, h)
		for range got {
			select { // an RLock is anybody's while it is free
			case a := <-got[0]:
				bed.Unlock(t, a.Hold)
			case a := <-got[1]:
				bed.Unlock(t, a.Hold)
			}
		}
	}
}
