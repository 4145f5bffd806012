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

// What Redisson's scripts do to the shared keys, done by hand; the tests with
// the real one are elsewhere.

func java(thread int) string {
	return "01234567-89ab-cdef-0123-456789abcdef:" + strconv.Itoa(thread)
}

// ours is a waiter of a client of redlatch that is played by hand.
func ours(n int) string {
	return "11111111-89ab-cdef-0123-456789abcdef:gx-1." + strconv.Itoa(n)
}

// holds gives the lock to somebody.
func holds(t *testing.T, s *testbed.Server, field string, lease time.Duration) {
	t.Helper()
	s.Do(t, "HSET", name, field, "1")
	s.Do(t, "PEXPIRE", name, strconv.FormatInt(lease.Milliseconds(), 10))
}

// eval runs a script of Redisson's on lock, queue and scores. As there, each step is one: what happens in between would
// be no fault of ours.
func eval(t *testing.T, s *testbed.Server, script string, args ...string) string {
	t.Helper()
	return s.Text(t, append([]string{"EVAL", script, "3", name, queueKey, scoresKey}, args...)...)
}

// javaWaits stands in the queue as a waiter of Redisson does.
func javaWaits(t *testing.T, s *testbed.Server, thread int, wait time.Duration) {
	t.Helper()
	eval(t, s, `
local clock, tail = redis.call('TIME'), redis.call('LINDEX', KEYS[2], -1)
local score = clock[1] * 1000 + math.floor(clock[2] / 1000)
if tail then score = tonumber(redis.call('ZSCORE', KEYS[3], tail)) else score = score + redis.call('PTTL', KEYS[1]) end
redis.call('ZADD', KEYS[3], string.format('%.0f', score + ARGV[2]), ARGV[1])
redis.call('RPUSH', KEYS[2], ARGV[1])
return ''`, java(thread), strconv.FormatInt(wait.Milliseconds(), 10))
}

// javaLeaves takes the first or the last in the queue out of it.
func javaLeaves(t *testing.T, s *testbed.Server, pop string) {
	t.Helper()
	s.Do(t, "ZREM", scoresKey, s.Text(t, pop, queueKey))
}

// javaTakes is what Redisson's acquisition does for the first in the queue.
func javaTakes(t *testing.T, s *testbed.Server, thread int, wait time.Duration) {
	t.Helper()
	head := eval(t, s, `
local head = redis.call('LINDEX', KEYS[2], 0)
if head ~= ARGV[1] or redis.call('EXISTS', KEYS[1]) == 1 then return head or 'nobody' end
redis.call('LPOP', KEYS[2])
redis.call('ZREM', KEYS[3], ARGV[1])
for _, m in ipairs(redis.call('ZRANGE', KEYS[3], 0, -1)) do redis.call('ZINCRBY', KEYS[3], -ARGV[2], m) end
redis.call('HSET', KEYS[1], ARGV[1], 1)
redis.call('PEXPIRE', KEYS[1], 30000)
return 'taken'`, java(thread), strconv.FormatInt(wait.Milliseconds(), 10))
	testbed.Equal(t, head, "taken", "who is first, or has the lock, before Redisson's waiter", thread)
}

// javaUnlocks drops stale heads, frees the lock and calls the first in the queue,
// which it returns.
func javaUnlocks(t *testing.T, s *testbed.Server) string {
	t.Helper()
	head := eval(t, s, `
local clock = redis.call('TIME')
local now, head = clock[1] * 1000 + math.floor(clock[2] / 1000)
while true do
  head = redis.call('LINDEX', KEYS[2], 0)
  if not head then break end
  local score = redis.call('ZSCORE', KEYS[3], head)
  if not score then return 'no score: ' .. head end
  if tonumber(score) > now then break end
  redis.call('LPOP', KEYS[2])
  redis.call('ZREM', KEYS[3], head)
end
redis.call('DEL', KEYS[1])
if head then redis.call('PUBLISH', ARGV[1] .. head, 0) end
return head or ''`, luascript.LockChannel(name)+":")
	if strings.HasPrefix(head, "no score") {
		t.Fatalf("%s is in the list: Redisson would stand still", head)
	}
	return head
}

// score is when Redisson may drop a waiter.
func score(t *testing.T, s *testbed.Server, field string) time.Time {
	t.Helper()
	ms, err := strconv.ParseFloat(s.Text(t, "ZSCORE", scoresKey, field), 64)
	testbed.Must(t, err)
	return time.UnixMilli(int64(ms))
}

// A mixed queue keeps its order; each side calls the other at once.
func TestAMixedQueueKeepsItsOrder(t *testing.T) {
	s := bed.Server(t)
	l := patient(t, s.Addr()) // no refresh helps
	hold := lockIt(t, l)
	got := make(chan result, 3)
	for i, thread := range []int{1, 0, 2, 0, 0} {
		if thread > 0 {
			javaWaits(t, s, thread, 5*time.Minute)
		} else {
			wait(t.Context(), l, i, got)
		}
		queued(t, s, int64(i+1))
	}
	bed.Eventually(t, "the pattern for Redisson's calls", func() bool { return s.Int(t, "PUBSUB", "NUMPAT") == 1 })
	s.AwaitQuiet(t)
	called := s.CommandStats(t).Calls["publish"]
	bed.Unlock(t, hold)
	testbed.Equal(t, s.CommandStats(t).Calls["publish"]-called, 1, "messages for Redisson's waiter")
	testbed.Equal(t, s.Int(t, "EXISTS", name), 0, "whether a lock for Redisson's waiter is written by us")
	javaTakes(t, s, 1, 5*time.Minute)
	javaUnlocks(t, s)
	bed.Unlock(t, inTurn(t, got, 1))
	javaTakes(t, s, 2, 5*time.Minute)
	javaUnlocks(t, s)
	for i := range 2 {
		bed.Unlock(t, inTurn(t, got, 3+i))
	}
}

// Go waiters that have told of themselves keep their places though Redisson's acquisition takes its
// wait off all scores, also for what it has waited already.
func TestRedissonsShiftingThrowsNobodyOut(t *testing.T) {
	t.Parallel() // it waits, for the most part
	s := bed.Server(t)
	l := bed.Client(t, s.Addr()).FairLock(name, fairlock.WithSkipAfter(time.Second))
	hold := lockIt(t, l)
	waits := []time.Duration{300 * time.Second, 50 * time.Second, time.Hour}
	for thread, w := range waits {
		javaWaits(t, s, thread, w)
	}
	for thread := range waits { // they have waited for a minute
		s.Do(t, "ZINCRBY", scoresKey, "-60000", java(thread))
	}
	got := make(chan result, 1)
	wait(t.Context(), l, 1, got)
	queued(t, s, 4)
	// By how much its score is above that of the last in front, less until when it counts as alive: that grows
	// with each refresh, and the difference stays.
	look := func() (ahead, alive int64) {
		field := s.Text(t, "LINDEX", queueKey, "3")
		both := s.List(t, "EVAL", `
return {string.format('%.0f', redis.call('ZSCORE', KEYS[1], ARGV[1]) - redis.call('ZSCORE', KEYS[1], ARGV[2])), string.sub(redis.call('HGET', KEYS[2], ARGV[1]), 1, 13)}`,
			"2", scoresKey, wantsKey, field, java(2))
		ahead, err1 := strconv.ParseInt(both[0], 10, 64)
		alive, err2 := strconv.ParseInt(both[1], 10, 64)
		if err1 != nil || err2 != nil {
			t.Fatal(both)
		}
		return ahead, alive
	}
	ahead, alive := look()
	for range 5 {
		before, began := ahead, alive
		bed.Eventually(t, "another refresh", func() bool {
			ahead, alive = look()
			return alive != began
		})
		testbed.Equal(t, ahead-before, alive-began, "ms by which the score has grown")
	}
	bed.Unlock(t, hold)
	for thread, w := range waits {
		javaTakes(t, s, thread, w)
		if head := javaUnlocks(t, s); head == "" {
			t.Fatalf("after thread %d: the Go waiter was dropped", thread)
		}
	}
	bed.Unlock(t, inTurn(t, got, 1))
}

// A living Go waiter that Redisson did drop is back at its next refresh, before
// those who came later.
func TestADroppedWaiterIsBack(t *testing.T) {
	s := bed.Server(t)
	l := bed.Client(t, s.Addr()).FairLock(name)
	hold := lockIt(t, l)
	got := inLine(t, s, 3, l)
	javaWaits(t, s, 1, time.Minute)
	order := s.List(t, "LRANGE", queueKey, "0", "-1")
	javaLeaves(t, s, "LPOP")
	javaLeaves(t, s, "LPOP")
	bed.Eventually(t, "they are back", func() bool {
		return slices.Equal(s.List(t, "LRANGE", queueKey, "0", "-1"), order) && whole(t, s, len(order))
	})
	bed.Unlock(t, hold)
	for i := range 3 {
		bed.Unlock(t, inTurn(t, got, i))
	}
	javaLeaves(t, s, "LPOP")
	bed.Unlock(t, lockIt(t, l))
}

// A dead waiter of Redisson in front costs no longer than its own score says,
// and the Go waiter behind it needs no message to go on, nor the right to hear Redisson's.
func TestADeadWaiterOfRedisson(t *testing.T) {
	s := bed.Server(t)
	l := app(t, s).FairLock(name)
	hold := lockIt(t, l)
	dead := time.Now().Add(1500 * time.Millisecond).Truncate(time.Millisecond)
	s.Do(t, "ZADD", scoresKey, strconv.FormatInt(dead.UnixMilli(), 10), java(1))
	s.Do(t, "RPUSH", queueKey, java(1))
	got := make(chan result, 1)
	wait(t.Context(), l, 1, got)
	queued(t, s, 2)
	bed.Unlock(t, hold)
	before := s.CommandStats(t).Calls["evalsha"]
	r := entered(t, got, bed.Patience)
	testbed.Between(t, r.at.Sub(dead), -10*time.Millisecond, slack, "after the time of the dead waiter")
	testbed.AtMost(t, s.CommandStats(t).Calls["evalsha"]-before, 8, "scripts")
	bed.Unlock(t, r.hold)
}

// Redisson's waiters behind a living one of ours don't go stale while it waits, and
// keep their distances; the last entry is never in the past, for what queues up
// behind one in the past may sleep for ever.
func TestRedissonsWaitersAreLiftedWithOurs(t *testing.T) {
	t.Parallel() // it waits, for the most part
	const skip = 2 * time.Second
	s := bed.Server(t)
	l := bed.Client(t, s.Addr()).FairLock(name, fairlock.WithSkipAfter(skip))
	hold := lockIt(t, l)
	got := inLine(t, s, 1, l)
	javaWaits(t, s, 1, 200*time.Millisecond)
	javaWaits(t, s, 2, 300*time.Millisecond)
	acquires(t, s, ours(1), skip) // and dies
	queued(t, s, 4)
	entries := s.List(t, "LRANGE", queueKey, "0", "-1")
	// The dead one was to stay a minute above; it is down here where a lift is needed.
	s.Do(t, "ZADD", scoresKey, strconv.FormatInt(time.Now().Add(skip).UnixMilli(), 10), entries[3])
	for end := time.Now().Add(2 * skip); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		for _, field := range entries {
			if late := time.Since(score(t, s, field)); late > time.Millisecond {
				t.Fatalf("%s is stale since %v", field, late)
			}
		}
		const apart = "return redis.call('ZSCORE', KEYS[3], ARGV[2]) - redis.call('ZSCORE', KEYS[3], ARGV[1])"
		if gap := s.Int(t, "EVAL", apart, "3", name, queueKey, scoresKey, java(1), java(2)); gap != 300 {
			t.Fatalf("the second is %d ms above the first", gap)
		}
	}
	// In front it is dropped by its own time again: it has died, and costs no more than a skip time.
	before := time.Now()
	bed.Unlock(t, hold)
	bed.Unlock(t, inTurn(t, got, 0))
	wait(t.Context(), l, 2, got)
	r := entered(t, got, bed.Patience)
	testbed.AtMost(t, r.at.Sub(before), 3*skip+slack, "after the unlock")
	bed.Unlock(t, r.hold)
}
