package fair

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redlatch/redlatch/fairlock"
	"github.com/redlatch/redlatch/integration/bed"
	"github.com/redlatch/redlatch/internal/testbed"
)

// What Redisson's scripts do to the shared keys, done by hand; the tests with
// the real one are elsewhere.

func java(thread int) string {
	return "01234567-89ab-cdef-0123-456789abcdef:" + strconv.Itoa(thread)
}

// javaWaits stands in the queue as a waiter of Redisson does. As there, it is one
// script, as are the others here: what happens in between would be no fault of ours.
func javaWaits(t *testing.T, s *testbed.Server, thread int, wait time.Duration) {
	t.Helper()
	s.Do(t, "EVAL", `
local clock, tail = redis.call('TIME'), redis.call('LINDEX', KEYS[2], -1)
local score = clock[1] * 1000 + math.floor(clock[2] / 1000)
if tail then score = tonumber(redis.call('ZSCORE', KEYS[3], tail)) else score = score + redis.call('PTTL', KEYS[1]) end
redis.call('ZADD', KEYS[3], string.format('%.0f', score + ARGV[2]), ARGV[1])
redis.call('RPUSH', KEYS[2], ARGV[1])`,
		"3", name, queueKey, scoresKey, java(thread), strconv.FormatInt(wait.Milliseconds(), 10))
}

// javaTakes is what Redisson's acquisition does for the first in the queue.
func javaTakes(t *testing.T, s *testbed.Server, thread int, wait time.Duration) {
	t.Helper()
	head := s.Text(t, "EVAL", `
local head = redis.call('LINDEX', KEYS[2], 0)
if head ~= ARGV[1] or redis.call('EXISTS', KEYS[1]) == 1 then return head or 'nobody' end
redis.call('LPOP', KEYS[2])
redis.call('ZREM', KEYS[3], ARGV[1])
for _, m in ipairs(redis.call('ZRANGE', KEYS[3], 0, -1)) do redis.call('ZINCRBY', KEYS[3], -ARGV[2], m) end
redis.call('HSET', KEYS[1], ARGV[1], 1)
redis.call('PEXPIRE', KEYS[1], 30000)
return 'taken'`,
		"3", name, queueKey, scoresKey, java(thread), strconv.FormatInt(wait.Milliseconds(), 10))
	if head != "taken" {
		t.Fatalf("the lock is held or %s is first, not Redisson's waiter %d", head, thread)
	}
}

// javaUnlocks drops stale heads, frees the lock and calls the first in the queue,
// which it returns.
func javaUnlocks(t *testing.T, s *testbed.Server) string {
	t.Helper()
	head := s.Text(t, "EVAL", `
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
return head or ''`,
		"3", name, queueKey, scoresKey, "redisson_lock__channel:{"+name+"}:")
	if strings.HasPrefix(head, "no score") {
		t.Fatalf("%s is in the list: Redisson would stand still", head)
	}
	return head
}

// A mixed queue keeps its order; each side calls the other at once.
func TestAMixedQueueKeepsItsOrder(t *testing.T) {
	s := testbed.Standalone(t)
	l := dial(t, s.Addr()).FairLock(name, fairlock.WithSkipAfter(time.Minute)) // no refresh helps
	hold := lockIt(t, l)
	got := make(chan result, 3)
	const javaWait = 300 * time.Second
	javaWaits(t, s, 1, javaWait)
	wait(t.Context(), l, 1, got)
	queued(t, s, 2)
	javaWaits(t, s, 2, javaWait)
	wait(t.Context(), l, 2, got)
	queued(t, s, 4)
	wait(t.Context(), l, 3, got)
	queued(t, s, 5)
	eventually(t, 5*time.Second, "the pattern for Redisson's calls", func() bool { return s.Int(t, "PUBSUB", "NUMPAT") == 1 })
	calm(t, s)

	called := s.CommandStats(t).Calls["publish"]
	bed.Unlock(t, hold)
	if n := s.CommandStats(t).Calls["publish"] - called; n != 1 {
		t.Errorf("%d messages for Redisson's waiter", n)
	}
	if n := s.Int(t, "EXISTS", name); n != 0 {
		t.Error("a lock for Redisson's waiter is not written by us")
	}
	javaTakes(t, s, 1, javaWait)
	busy, start := newMeter(t), time.Now()
	javaUnlocks(t, s)
	r := receive(t, got, 5*time.Second)
	if took := r.at.Sub(start); r.id != 1 || r.err != nil || took > busy.slack() {
		t.Fatalf("waiter %d, %v, %v after Redisson's unlock", r.id, r.err, took)
	}
	bed.Unlock(t, r.hold)
	javaTakes(t, s, 2, javaWait)
	javaUnlocks(t, s)
	for i := range 2 {
		if r = receive(t, got, time.Second); r.id != 2+i {
			t.Fatalf("waiter %d, %v", r.id, r.err)
		}
		bed.Unlock(t, r.hold)
	}
	nothingLeft(t, s)
}

// Go waiters that have told of themselves keep their places though Redisson's acquisition takes its
// wait off all scores, also for what it has waited already.
func TestRedissonsShiftingThrowsNobodyOut(t *testing.T) {
	t.Parallel() // it waits, for the most part
	s := testbed.Standalone(t)
	l := dial(t, s.Addr()).FairLock(name, fairlock.WithSkipAfter(time.Second))
	hold := lockIt(t, l)
	got := make(chan result, 1)
	for thread, w := range []time.Duration{300 * time.Second, 50 * time.Second, time.Hour} {
		javaWaits(t, s, thread, w)
	}
	for thread := range 3 { // they have waited for a minute
		s.Do(t, "ZINCRBY", scoresKey, "-60000", java(thread))
	}
	wait(t.Context(), l, 1, got)
	queued(t, s, 4)
	// How far its score is from that of the last in front, and until when it counts as alive.
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
	// By as much as the time from one refresh to the other, so that no stall of this machine counts.
	ahead, alive := look()
	for range 5 {
		before, began := ahead, alive
		eventually(t, 20*time.Second, "another refresh", func() bool {
			ahead, alive = look()
			return alive != began
		})
		if grown, passed := ahead-before, alive-began; grown != passed {
			t.Errorf("in %d ms the score has grown by %d ms", passed, grown)
		}
	}
	bed.Unlock(t, hold)
	for thread, w := range []time.Duration{300 * time.Second, 50 * time.Second, time.Hour} {
		javaTakes(t, s, thread, w)
		if head := javaUnlocks(t, s); head == "" {
			t.Fatalf("after thread %d: the Go waiter was dropped", thread)
		}
	}
	bed.Unlock(t, receive(t, got, time.Second).hold)
	nothingLeft(t, s)
}

// A living Go waiter that Redisson did drop is back at its next refresh, before
// those who came later.
func TestADroppedWaiterIsBack(t *testing.T) {
	s := testbed.Standalone(t)
	l := dial(t, s.Addr()).FairLock(name)
	hold := lockIt(t, l)
	got := inLine(t, s, 3, l)
	javaWaits(t, s, 1, time.Minute)
	order := s.List(t, "LRANGE", queueKey, "0", "-1")
	for _, f := range order[:2] {
		s.Do(t, "LPOP", queueKey)
		s.Do(t, "ZREM", scoresKey, f)
	}
	eventually(t, 10*time.Second, "they are back", func() bool {
		return slices.Equal(s.List(t, "LRANGE", queueKey, "0", "-1"), order)
	})
	for _, f := range order {
		if s.Text(t, "ZSCORE", scoresKey, f) == "" {
			t.Errorf("%s has no score", f)
		}
	}
	bed.Unlock(t, hold)
	for i := range 3 {
		r := receive(t, got, time.Second)
		if r.id != i {
			t.Fatalf("waiter %d in the turn of %d", r.id, i)
		}
		bed.Unlock(t, r.hold)
	}
	s.Do(t, "LPOP", queueKey)
	s.Do(t, "ZREM", scoresKey, java(1))
	bed.Unlock(t, lockIt(t, l))
	nothingLeft(t, s)
}

// A dead waiter of Redisson in front costs no longer than its own score says,
// and the Go waiter behind it needs no message to go on.
func TestADeadWaiterOfRedisson(t *testing.T) {
	s := testbed.Standalone(t)
	l := dial(t, s.Addr()).FairLock(name)
	hold := lockIt(t, l)
	s.Do(t, "PEXPIRE", name, "100000")
	busy := newMeter(t)
	dead := time.Now().Add(1500 * time.Millisecond)
	s.Do(t, "ZADD", scoresKey, strconv.FormatInt(dead.UnixMilli(), 10), java(1))
	s.Do(t, "RPUSH", queueKey, java(1))
	got := make(chan result, 1)
	wait(t.Context(), l, 1, got)
	queued(t, s, 2)
	bed.Unlock(t, hold)
	before := s.CommandStats(t).Calls["evalsha"]
	r := receive(t, got, 5*time.Second)
	if late := r.at.Sub(dead); r.err != nil || late < -10*time.Millisecond || late > busy.slack() {
		t.Errorf("%v after the time of the dead waiter, %v", late, r.err)
	}
	if n := s.CommandStats(t).Calls["evalsha"] - before; n > 8 {
		t.Errorf("%d scripts", n)
	}
	bed.Unlock(t, r.hold)
	nothingLeft(t, s)
}

// Redisson's waiters behind a living one of ours don't go stale while it waits, and
// keep their distances; the last entry is never in the past, for what queues up
// behind one in the past may sleep for ever.
func TestRedissonsWaitersAreLiftedWithOurs(t *testing.T) {
	t.Parallel() // it waits, for the most part
	const skip = 2 * time.Second
	s := testbed.Standalone(t)
	l := dial(t, s.Addr()).FairLock(name, fairlock.WithSkipAfter(skip))
	hold := lockIt(t, l)
	got := inLine(t, s, 1, l)
	javaWaits(t, s, 1, 200*time.Millisecond)
	javaWaits(t, s, 2, 300*time.Millisecond)
	dead := spawn(t, s, 30*time.Second, skip)
	dead.Send(t, "lock 1")
	queued(t, s, 4)
	dead.Kill(t)
	entries := s.List(t, "LRANGE", queueKey, "0", "-1")
	score := func(field string) int64 {
		f, err := strconv.ParseFloat(s.Text(t, "ZSCORE", scoresKey, field), 64)
		if err != nil {
			t.Fatal(err)
		}
		return int64(f)
	}
	// The dead one was to stay a minute above; it is down here where a lift is needed.
	s.Do(t, "ZADD", scoresKey, strconv.FormatInt(time.Now().Add(skip).UnixMilli(), 10), entries[3])
	for end := time.Now().Add(2 * skip); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		for _, field := range entries {
			if late := time.Now().UnixMilli() - score(field); late > 0 {
				t.Fatalf("%s is stale since %d ms", field, late)
			}
		}
		// By one command: between two they may be lifted.
		both := s.List(t, "EVAL", "return {redis.call('ZSCORE', KEYS[1], ARGV[1]), redis.call('ZSCORE', KEYS[1], ARGV[2])}",
			"1", scoresKey, java(1), java(2))
		first, err1 := strconv.ParseFloat(both[0], 64)
		second, err2 := strconv.ParseFloat(both[1], 64)
		if gap := second - first; err1 != nil || err2 != nil || gap != 300 {
			t.Fatalf("the second is %v ms above the first: %v", gap, both)
		}
	}
	// In front it is dropped by its own time again: it has died, and costs no more than a skip time.
	before := time.Now()
	bed.Unlock(t, hold)
	bed.Unlock(t, receive(t, got, 2*skip).hold)
	wait(t.Context(), l, 2, got)
	r := receive(t, got, 4*skip)
	if took := r.at.Sub(before); r.err != nil || took > 3*skip+300*time.Millisecond {
		t.Errorf("%v after the unlock, %v", took, r.err)
	}
	bed.Unlock(t, r.hold)
	nothingLeft(t, s)
}

// All die: what they leave does not stay for ever; while Redisson waits in the
// same queue its keys stay for long.
func TestWhatTheDeadLeaveGoesAway(t *testing.T) {
	s := testbed.Standalone(t)
	p := spawn(t, s, 30*time.Second, time.Second)
	for i := range 3 {
		p.Send(t, "lock %d", i)
	}
	queued(t, s, 2)
	for _, key := range []string{queueKey, scoresKey, wantsKey} {
		if ttl := s.Int(t, "PTTL", key); ttl <= 0 || ttl > 602000 {
			t.Errorf("PTTL %s: %d", key, ttl)
		}
	}
	javaWaits(t, s, 1, time.Minute)
	eventually(t, 2*time.Second, "Redisson's keys, for a week", func() bool { return forAWeek(t, s) })
	s.Do(t, "LREM", queueKey, "1", java(1))
	s.Do(t, "ZREM", scoresKey, java(1))
	eventually(t, 2*time.Second, "a short TTL again", func() bool {
		return s.Int(t, "PTTL", queueKey) <= 602000 && s.Int(t, "PTTL", scoresKey) <= 602000
	})
	p.Kill(t)
	if fmt.Sprint(s.Int(t, "LLEN", queueKey)) != "2" {
		t.Error("the test has lost its dead waiters")
	}
}
