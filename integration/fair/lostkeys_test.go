package fair

import (
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/redlatch/redlatch/fairlock"
	"github.com/redlatch/redlatch/integration/bed"
	"github.com/redlatch/redlatch/internal/luascript"
	"github.com/redlatch/redlatch/internal/testbed"
)

// Keys of a queue that go alone: an eviction, a DEL by hand, a waiter of Redisson that
// drops ours.

// script runs one of the fair lock's scripts by hand.
func script(t *testing.T, s *testbed.Server, of *luascript.Script, args ...string) {
	t.Helper()
	cmd := []string{
		"EVAL", of.Body, "7", name, queueKey, scoresKey, wantsKey, luascript.TokenKey(name), luascript.TraceKey(name),
		luascript.VoidKey(name), "PUBLISH", luascript.GrantChannel(name), luascript.LockChannel(name) + ":",
	}
	s.Do(t, append(cmd, args...)...)
}

// acquires runs fair_acquire of an owner that would wait.
func acquires(t *testing.T, s *testbed.Server, field string, skip time.Duration) {
	t.Helper()
	script(t, s, luascript.FairAcquire, field, "30000", "-", "", strconv.FormatInt(skip.Milliseconds(), 10), "nonce")
}

// whole checks that the list has exactly these, each once and each with a score.
func whole(t *testing.T, s *testbed.Server, n int) bool {
	t.Helper()
	list := s.List(t, "LRANGE", queueKey, "0", "-1")
	scored := s.List(t, "ZRANGE", scoresKey, "0", "-1")
	slices.Sort(list)
	slices.Sort(scored)
	return len(list) == n && slices.Equal(list, scored)
}

// When a key of the queue is lost, the waiters stand in the queue again, each once, and the lock is
// handed over.
func TestALostKeyOfTheQueue(t *testing.T) {
	for _, key := range []string{queueKey, scoresKey, wantsKey} {
		t.Run(key, func(t *testing.T) {
			t.Parallel() // it waits, for the most part
			s := testbed.Standalone(t)
			l := dial(t, s.Addr()).FairLock(name, fairlock.WithSkipAfter(time.Second))
			hold := lockIt(t, l)
			got := inLine(t, s, 3, l)
			s.Do(t, "DEL", key)
			eventually(t, 5*time.Second, "a whole queue again", func() bool {
				return s.Int(t, "HLEN", wantsKey) == 3 && whole(t, s, 3)
			})
			bed.Unlock(t, hold)
			for range 3 {
				entered(t, got, 5*time.Second)
				javaUnlocks(t, s) // it looks at the scores
			}
			nothingLeft(t, s)
		})
	}
}

// TestTheFirstWantHasATTL: a waiter that dies before it tells of itself a second time leaves
// nothing that has none, behind whomever it stands.
func TestTheFirstWantHasATTL(t *testing.T) {
	s := testbed.Standalone(t)
	s.Do(t, "HSET", name, java(1), "1")
	s.Do(t, "PEXPIRE", name, "30000")
	javaWaits(t, s, 2, time.Minute)
	for i, behind := range []string{"a waiter of Redisson", "one of ours, whose want was lost"} {
		acquires(t, s, "11111111-89ab-cdef-0123-456789abcdef:gx-1."+strconv.Itoa(i), time.Second)
		queued(t, s, int64(i+2))
		if ttl := s.Int(t, "PTTL", wantsKey); ttl <= 0 || ttl > 601000 {
			t.Errorf("behind %s: PTTL %s: %d", behind, wantsKey, ttl)
		}
		s.Do(t, "DEL", wantsKey)
	}
}

// A refresh that comes late makes no place for a waiter that Redisson had dropped, and that has had
// the free lock without one and given it back.
func TestALateRefreshOfAHolder(t *testing.T) {
	s := testbed.Standalone(t)
	const field = "11111111-89ab-cdef-0123-456789abcdef:gx-1.1"
	s.Do(t, "HSET", name, java(1), "1")
	s.Do(t, "PEXPIRE", name, "30000")
	acquires(t, s, field, time.Minute)
	queued(t, s, 1)
	s.Do(t, "ZADD", scoresKey, "1", field)
	javaUnlocks(t, s) // drops it
	queued(t, s, 0)
	acquires(t, s, field, time.Minute)
	if n := s.Int(t, "HEXISTS", name, field); n != 1 {
		t.Fatal("it has not got the lock")
	}
	script(t, s, luascript.FairRelease, field, "0", "0", "0")
	script(t, s, luascript.FairRefresh, field, "60000")
	if n := s.Int(t, "EXISTS", name, queueKey); n != 0 {
		t.Error("who has left has a place, or the lock, again")
	}
	nothingLeft(t, s)
}

// What the dead wanted whom Redisson dropped goes while others wait: until then it hides that
// Redisson's waiters are in the queue, whose keys must last for long.
func TestWantsOfTheDeadThatRedissonDropped(t *testing.T) {
	t.Parallel() // it waits, for the most part
	s := testbed.Standalone(t)
	const dead = "11111111-89ab-cdef-0123-456789abcdef:gx-1.1"
	s.Do(t, "HSET", name, java(1), "1")
	s.Do(t, "PEXPIRE", name, "300000")
	acquires(t, s, dead, time.Millisecond)
	s.Do(t, "ZADD", scoresKey, "1", dead)
	javaWaits(t, s, 2, 5*time.Minute)
	s.Do(t, "ZINCRBY", scoresKey, strconv.FormatInt(time.Now().UnixMilli(), 10), java(2))
	javaUnlocks(t, s) // drops it
	javaTakes(t, s, 2, 0)
	javaWaits(t, s, 3, 5*time.Minute)
	got := make(chan result, 1)
	wait(t.Context(), dial(t, s.Addr()).FairLock(name, fairlock.WithSkipAfter(time.Second)), 1, got)
	queued(t, s, 2)
	for range 1000 { // as its refreshes would in a quarter of an hour
		script(t, s, luascript.FairRefresh)
	}
	if n := s.Int(t, "HLEN", wantsKey); n != 1 {
		t.Fatalf("%d wants", n)
	}
	eventually(t, 5*time.Second, "Redisson's keys, for a week", func() bool { return forAWeek(t, s) })
	javaUnlocks(t, s)
	javaTakes(t, s, 3, 0)
	javaUnlocks(t, s)
	bed.Unlock(t, receive(t, got, 5*time.Second).hold)
}

// TestSkipTimesThatDiffer: the queue lasts for those who tell of themselves most seldom, whoever told last, and for who
// comes later until it tells of itself again.
func TestSkipTimesThatDiffer(t *testing.T) {
	const first, second = "11111111-89ab-cdef-0123-456789abcdef:gx-1.1", "11111111-89ab-cdef-0123-456789abcdef:gx-1.2"
	for what, tc := range map[string]struct {
		skips  [2]time.Duration
		within time.Duration
	}{
		"the short one comes later": {[2]time.Duration{5 * time.Hour, time.Second}, 4 * time.Hour},
		"the long one comes later":  {[2]time.Duration{time.Second, 5 * time.Hour}, time.Hour}, // when it refreshes its place
	} {
		t.Run(what, func(t *testing.T) {
			s := testbed.Standalone(t)
			s.Do(t, "HSET", name, java(1), "1")
			acquires(t, s, first, tc.skips[0])
			acquires(t, s, second, tc.skips[1])
			for _, how := range []string{"queues up", "refreshes"} {
				if how == "refreshes" {
					script(t, s, luascript.FairRefresh, second, strconv.FormatInt(tc.skips[1].Milliseconds(), 10))
				}
				for _, key := range []string{queueKey, scoresKey, wantsKey} {
					if ttl := s.Int(t, "PTTL", key); ttl < tc.within.Milliseconds() {
						t.Errorf("%s: PTTL %s: %d", how, key, ttl)
					}
				}
			}
		})
	}
}

// TestADeadWaiterBehindRedissonsGoesAway: when the last waiter of Redisson has had its turn, the
// place of one of ours that died behind it does not stay for ever in a lock that nobody uses
// again. (Redisson's own would: its queue has no TTL.)
func TestADeadWaiterBehindRedissonsGoesAway(t *testing.T) {
	s := testbed.Standalone(t)
	const dead = "11111111-89ab-cdef-0123-456789abcdef:gx-1.1"
	s.Do(t, "HSET", name, java(1), "1")
	s.Do(t, "PEXPIRE", name, "30000")
	javaWaits(t, s, 2, time.Minute)
	acquires(t, s, dead, time.Second)
	script(t, s, luascript.FairRefresh, dead, "1000") // its last one
	javaUnlocks(t, s)
	javaTakes(t, s, 2, time.Minute)
	javaUnlocks(t, s)
	if n := s.Int(t, "EXISTS", name); n != 0 {
		t.Fatal("somebody has the lock")
	}
	if !forAWeek(t, s) {
		t.Errorf("TTLs of %d and %d ms", s.Int(t, "PTTL", queueKey), s.Int(t, "PTTL", scoresKey))
	}
}

// A queue that is left to Redisson lasts for a week from when the last one of ours left it, not for
// the ten minutes that it had while only ours were in it: Redisson never touches the TTL.
func TestAQueueThatIsLeftToRedisson(t *testing.T) {
	for _, how := range []string{"served", "gone"} {
		t.Run(how, func(t *testing.T) {
			s := testbed.Standalone(t)
			const field = "11111111-89ab-cdef-0123-456789abcdef:gx-1.1"
			s.Do(t, "HSET", name, java(1), "1")
			s.Do(t, "PEXPIRE", name, "30000")
			acquires(t, s, field, time.Minute)
			javaWaits(t, s, 2, time.Minute)
			if how == "served" {
				javaUnlocks(t, s)
				acquires(t, s, field, time.Minute)
				if s.Int(t, "HEXISTS", name, field) != 1 {
					t.Fatal("it has not got the lock")
				}
				script(t, s, luascript.FairRelease, field, "0", "0", "0")
			} else {
				script(t, s, luascript.FairRelease, field, "0", "1", "0")
			}
			if list := s.List(t, "LRANGE", queueKey, "0", "-1"); len(list) != 1 || list[0] != java(2) {
				t.Fatalf("queue %v", list)
			}
			if !forAWeek(t, s) {
				t.Errorf("TTLs of %d and %d ms", s.Int(t, "PTTL", queueKey), s.Int(t, "PTTL", scoresKey))
			}
		})
	}
}

// forAWeek reports whether that is how long the queue lasts.
func forAWeek(t *testing.T, s *testbed.Server) bool {
	t.Helper()
	const week = 7 * 24 * int64(time.Hour/time.Millisecond)
	for _, key := range []string{queueKey, scoresKey} {
		if ttl := s.Int(t, "PTTL", key); ttl > week || ttl < week-int64(time.Hour/time.Millisecond) {
			return false
		}
	}
	return true
}
