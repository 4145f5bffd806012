package fair

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redlatch/redlatch/fairlock"
	"github.com/redlatch/redlatch/integration/bed"
	"github.com/redlatch/redlatch/internal/luascript"
	"github.com/redlatch/redlatch/internal/testbed"
)

// Keys of a queue that go alone: dropped for memory, a DEL by hand, a waiter of Redisson that
// drops ours; and how long those stay that nobody comes back for.

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

// has fails unless it has the lock.
func has(t *testing.T, s *testbed.Server, field string) {
	t.Helper()
	testbed.Equal(t, s.Int(t, "HEXISTS", name, field), 1, "whether it has the lock:", field)
}

// whole tells whether the list has so many, each once and each with a score.
func whole(t *testing.T, s *testbed.Server, n int) bool {
	t.Helper()
	list, scored := s.List(t, "LRANGE", queueKey, "0", "-1"), s.List(t, "ZRANGE", scoresKey, "0", "-1")
	slices.Sort(list)
	slices.Sort(scored)
	return len(list) == n && slices.Equal(list, scored)
}

// lasts fails unless these keys have a TTL of at least and at most so much.
func lasts(t *testing.T, s *testbed.Server, least, most time.Duration, keys ...string) {
	t.Helper()
	for _, key := range keys {
		testbed.Between(t, time.Duration(s.Int(t, "PTTL", key))*time.Millisecond, least, most, "left of", key)
	}
}

const (
	week = 7 * 24 * time.Hour
	// brief is how long a queue lasts that nobody refreshes, beyond the skip time.
	brief = 10 * time.Minute
)

// forAWeek is how long a queue lasts in which Redisson waits.
func forAWeek(t *testing.T, s *testbed.Server) {
	t.Helper()
	lasts(t, s, week-time.Hour, week, queueKey, scoresKey)
}

// When a key of the queue is lost, the waiters stand in the queue again, each once, and the lock is
// handed over.
func TestALostKeyOfTheQueue(t *testing.T) {
	for _, key := range []string{queueKey, scoresKey, wantsKey} {
		t.Run(key, func(t *testing.T) {
			t.Parallel() // it waits, for the most part
			s := bed.Server(t)
			l := bed.Client(t, s.Addr()).FairLock(name, fairlock.WithSkipAfter(time.Second))
			hold := lockIt(t, l)
			got := inLine(t, s, 3, l)
			s.Do(t, "DEL", key)
			bed.Eventually(t, "a whole queue again", func() bool { return s.Int(t, "HLEN", wantsKey) == 3 && whole(t, s, 3) })
			bed.Unlock(t, hold)
			for range 3 {
				entered(t, got, bed.Patience)
				javaUnlocks(t, s) // it looks at the scores
			}
		})
	}
}

// What waiters leave that all die does not stay for ever, behind whomever they stand and whenever they die; while Redisson
// waits in the same queue its keys stay for a week, since Redisson never touches the TTL.
func TestWhatTheDeadLeaveGoesAway(t *testing.T) {
	t.Run("it told of itself", func(t *testing.T) {
		s := testbed.Standalone(t)
		holds(t, s, java(1), 30*time.Second)
		acquires(t, s, ours(1), time.Minute)
		for range 2 { // in the end alone again
			script(t, s, luascript.FairRefresh, ours(1), "60000")
			lasts(t, s, brief, brief+time.Minute, queueKey, scoresKey, wantsKey)
			javaWaits(t, s, 2, time.Minute)
			script(t, s, luascript.FairRefresh, ours(1), "60000")
			forAWeek(t, s)
			javaLeaves(t, s, "RPOP")
		}
	})
	t.Run("before it told of itself a second time", func(t *testing.T) {
		s := testbed.Standalone(t)
		holds(t, s, java(1), 30*time.Second)
		javaWaits(t, s, 2, time.Minute)
		for i := range 2 { // behind a waiter of Redisson, behind one of ours whose want was lost
			acquires(t, s, ours(i), time.Second)
			queued(t, s, int64(i+2))
			lasts(t, s, time.Millisecond, brief+time.Second, wantsKey)
			s.Do(t, "DEL", wantsKey)
		}
	})
	t.Run("behind the last one of Redisson, who has had its turn", func(t *testing.T) {
		s := testbed.Standalone(t)
		holds(t, s, java(1), 30*time.Second)
		javaWaits(t, s, 2, time.Minute)
		acquires(t, s, ours(1), time.Second)
		script(t, s, luascript.FairRefresh, ours(1), "1000") // its last one
		javaUnlocks(t, s)
		javaTakes(t, s, 2, time.Minute)
		javaUnlocks(t, s)
		testbed.Equal(t, s.Int(t, "EXISTS", name), 0, "whether somebody has the lock")
		forAWeek(t, s)
	})
	for _, served := range []bool{true, false} {
		t.Run(map[bool]string{true: "served before Redisson's", false: "gone before Redisson's"}[served], func(t *testing.T) {
			s := testbed.Standalone(t)
			holds(t, s, java(1), 30*time.Second)
			acquires(t, s, ours(1), time.Minute)
			javaWaits(t, s, 2, time.Minute)
			leave := "1"
			if served {
				javaUnlocks(t, s)
				acquires(t, s, ours(1), time.Minute)
				has(t, s, ours(1))
				leave = "0"
			}
			script(t, s, luascript.FairRelease, ours(1), "0", leave, "0")
			testbed.Equal(t, strings.Join(s.List(t, "LRANGE", queueKey, "0", "-1"), " "), java(2), "the queue")
			forAWeek(t, s)
		})
	}
}

// A refresh that comes late makes no place for a waiter that Redisson had dropped, and that has had
// the free lock without one and given it back.
func TestALateRefreshOfAHolder(t *testing.T) {
	s := bed.Server(t)
	holds(t, s, java(1), 30*time.Second)
	acquires(t, s, ours(1), time.Minute)
	queued(t, s, 1)
	s.Do(t, "ZADD", scoresKey, "1", ours(1))
	javaUnlocks(t, s) // drops it
	queued(t, s, 0)
	acquires(t, s, ours(1), time.Minute)
	has(t, s, ours(1))
	script(t, s, luascript.FairRelease, ours(1), "0", "0", "0")
	script(t, s, luascript.FairRefresh, ours(1), "60000")
	nothingLeft(t, s)
}

// What the dead wanted whom Redisson dropped goes while others wait: until then it hides that
// Redisson's waiters are in the queue, whose keys must last for long.
func TestWantsOfTheDeadThatRedissonDropped(t *testing.T) {
	t.Parallel() // it waits, for the most part
	s := bed.Server(t)
	holds(t, s, java(1), 5*time.Minute)
	acquires(t, s, ours(1), time.Millisecond)
	s.Do(t, "ZADD", scoresKey, "1", ours(1))
	javaWaits(t, s, 2, 5*time.Minute)
	s.Do(t, "ZINCRBY", scoresKey, strconv.FormatInt(time.Now().UnixMilli(), 10), java(2))
	javaUnlocks(t, s) // drops it
	javaTakes(t, s, 2, 0)
	javaWaits(t, s, 3, 5*time.Minute)
	got := make(chan result, 1)
	wait(t.Context(), bed.Client(t, s.Addr()).FairLock(name, fairlock.WithSkipAfter(time.Second)), 1, got)
	queued(t, s, 2)
	for range 1000 { // as its refreshes would in a quarter of an hour
		script(t, s, luascript.FairRefresh)
	}
	testbed.Equal(t, s.Int(t, "HLEN", wantsKey), 1, "wants")
	bed.Eventually(t, "a refresh that knows of Redisson", func() bool { return s.Int(t, "PTTL", queueKey) > 2*brief.Milliseconds() })
	forAWeek(t, s)
	javaUnlocks(t, s)
	javaTakes(t, s, 3, 0)
	javaUnlocks(t, s)
	bed.Unlock(t, inTurn(t, got, 1))
}

// TestSkipTimesThatDiffer: the queue lasts for those who tell of themselves most seldom, whoever told last, and for who
// comes later until it tells of itself again.
func TestSkipTimesThatDiffer(t *testing.T) {
	for what, tc := range map[string]struct{ first, second, least time.Duration }{
		"the short one comes later": {5 * time.Hour, time.Second, 4 * time.Hour},
		"the long one comes later":  {time.Second, 5 * time.Hour, time.Hour}, // when it refreshes its place
	} {
		t.Run(what, func(t *testing.T) {
			s := testbed.Standalone(t)
			holds(t, s, java(1), 30*time.Second)
			acquires(t, s, ours(1), tc.first)
			acquires(t, s, ours(2), tc.second)
			lasts(t, s, tc.least, week, queueKey, scoresKey, wantsKey)
			script(t, s, luascript.FairRefresh, ours(2), strconv.FormatInt(tc.second.Milliseconds(), 10))
			lasts(t, s, tc.least, week, queueKey, scoresKey, wantsKey)
		})
	}
}
