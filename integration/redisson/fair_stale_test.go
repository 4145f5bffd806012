//go:build unix

package redisson

import (
	"strconv"
	"testing"
	"time"
)

// What becomes of living Java waiters whose time in the queue has passed. Redisson
// drops them and tells nobody: each sleeps until the lease that it saw last has
// ended, and one that queued up again behind an entry in the past sleeps for ever.

// staleWait is the Java waiters' time in the queue in these tests.
const staleWait = time.Second

// score is the time at which Redisson may drop a waiter.
func (b *bed) score(t *testing.T, n, field string) time.Time {
	t.Helper()
	_, scores := fairKeys(n)
	ms, err := strconv.ParseFloat(b.server.Text(t, "ZSCORE", scores, field), 64)
	if err != nil {
		t.Fatalf("score of %s: %v", field, err)
	}
	return time.UnixMilli(int64(ms))
}

// The scripts of redlatch drop a Java waiter by Redisson's rule, too. It is called
// then: it has the lock at once when nobody else is there, not when the lease that
// it was told has passed.
func TestJavaWaiterThatIsDroppedIsTold(t *testing.T) {
	eachVersion(t, func(t *testing.T, v Version) {
		b := ownBed(t, v, Options{FairWait: staleWait}) // leases of 30 s
		n := name(t)
		queue, scores := fairKeys(n)
		holder := b.golang.Owner("holder").Fair(n)
		holder.Lock(t, 0)
		var locks []Lock
		var calls []*Call
		for i := range 3 {
			l, before := b.java.Owner(strconv.Itoa(i)).Fair(n), b.server.CommandStats(t)
			locks, calls = append(locks, l), append(calls, l.GoLock(0))
			b.queued(t, n, i+1)
			b.asked(t, before, 1) // one that asked later would drop those before it, and tell nobody
		}
		b.settle(t)
		// Their times have passed, as they have when the holder stays for longer than
		// their waits.
		for _, field := range b.server.List(t, "LRANGE", queue, "0", "-1") {
			b.server.Int(t, "ZADD", scores, "XX", "CH", strconv.FormatInt(time.Now().Add(-time.Minute).UnixMilli(), 10), field)
		}
		unlock := holder.Unlock(t)
		// Dropped together and called together: whoever comes first is first, the others
		// queue up again.
		for range calls {
			i := -1
			eventually(t, "a Java waiter has the lock", func() bool {
				for j, c := range calls {
					if c != nil && !c.Pending() {
						i = j
					}
				}
				return i >= 0
			})
			between(t, "entered after the unlock", latency(unlock, calls[i].Wait(t)), 0, soon)
			calls[i] = nil
			unlock = locks[i].Unlock(t)
		}
		b.nothingLeft(t, n)
	})
}

// Redisson's scores rise along the queue, and its waiters rely on that: behind an
// entry in the past one sleeps for ever. A living Go waiter lifts its own; the Java
// waiters behind it must stay above it. So they also keep their places however
// long the Go waiter has to wait.
func TestJavaWaitersBehindAWaitingGoOneStayAboveIt(t *testing.T) {
	eachVersion(t, func(t *testing.T, v Version) {
		b := ownBed(t, v, Options{FairWait: 2 * staleWait, Watchdog: shortLease})
		n := name(t)
		queue, scores := fairKeys(n)
		holder := b.golang.Owner("holder").Fair(n)
		holder.Lock(t, 0)
		golang := b.golang.Owner("go").Fair(n)
		waits := golang.GoLock(0)
		b.queued(t, n, 1)
		first, second, third := b.java.Owner("1").Fair(n), b.java.Owner("2").Fair(n), b.java.Owner("3").Fair(n)
		firstWaits := first.GoLock(0)
		b.queued(t, n, 2)
		secondWaits := second.GoLock(0)
		b.queued(t, n, 3)
		thirdWaits := third.GoLock(0)
		b.queued(t, n, 4)
		entries := b.server.List(t, "LRANGE", queue, "0", "-1")
		// Long after all waits have passed.
		past := b.score(t, n, entries[3])
		for time.Now().Before(past.Add(3 * staleWait)) {
			time.Sleep(20 * time.Millisecond)
			for _, field := range entries[1:] {
				if behind := time.Since(b.score(t, n, field)); behind > 0 {
					t.Fatalf("a Java waiter behind a living Go one is stale since %v", behind)
				}
			}
		}
		// One of them is thrown out, as by a client whose clock is ahead. It looks again
		// when the lease that it saw has ended, and queues up behind the others.
		b.server.Int(t, "LREM", queue, "1", entries[2])
		b.server.Int(t, "ZREM", scores, entries[2])
		eventually(t, "it is back in the queue", func() bool {
			q := b.server.List(t, "LRANGE", queue, "0", "-1")
			return len(q) == 4 && q[3] == entries[2]
		})
		unlock := holder.Unlock(t)
		for _, next := range []struct {
			lock  Lock
			waits *Call
		}{{golang, waits}, {first, firstWaits}, {third, thirdWaits}, {second, secondWaits}} {
			between(t, "wake-up", latency(unlock, next.waits.Wait(t)), 0, soon)
			unlock = next.lock.Unlock(t)
		}
		b.nothingLeft(t, n)
	})
}
