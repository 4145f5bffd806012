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

// The scripts of redlatch drop a Java waiter by Redisson's rule, too. It is called
// then: it has the lock at once when nobody else is there, not when the lease that
// it was told has passed.
func TestJavaWaiterThatIsDroppedIsTold(t *testing.T) {
	eachVersion(t, func(t *testing.T, v Version) {
		s := newBed(t, v, Options{FairWait: staleWait}).scene(t, "fair") // leases of 30 s
		s.run("go.holder lock\n")
		waiting := map[string]bool{}
		for i := range 3 {
			before, id := s.server.CommandStats(t), strconv.Itoa(i)
			waiting[id] = true
			s.run("w" + id + " = java." + id + " lock\n queue n " + strconv.Itoa(i+1))
			// One that asked later would drop those before it, and tell nobody: it asks when it comes, and when its
			// subscription stands. A script that the server did not know yet asks nothing.
			eventually(t, "the waiter has asked twice", func() bool {
				stats := s.server.CommandStats(t).Sub(before)
				return stats.Calls["eval"]+stats.Calls["evalsha"]-stats.Failed["eval"]-stats.Failed["evalsha"] >= 2
			})
		}
		s.run("w2 waits")
		// Their times have passed, as they have when the holder stays for longer than their waits.
		past := strconv.FormatInt(time.Now().Add(-time.Minute).UnixMilli(), 10)
		for _, field := range s.queue(t, s.name("n")) {
			s.run("redis ZADD redisson_lock_timeout:{$n} XX CH " + past + " " + field)
		}
		s.run("go.holder unlock")
		// Dropped together and called together: whoever comes first is first, the others queue up again.
		for len(waiting) > 0 {
			first := ""
			eventually(t, "a Java waiter has the lock", func() bool {
				for id := range waiting {
					if !s.calls["w"+id].Pending() {
						first = id
					}
				}
				return first != ""
			})
			delete(waiting, first)
			s.run("w" + first + " enters\n java." + first + " unlock")
		}
	})
}

// Redisson's scores rise along the queue, and its waiters rely on that: behind an
// entry in the past one sleeps for ever. A living Go waiter lifts its own; the Java
// waiters behind it must stay above it. So they also keep their places however
// long the Go waiter has to wait.
func TestJavaWaitersBehindAWaitingGoOneStayAboveIt(t *testing.T) {
	eachVersion(t, func(t *testing.T, v Version) {
		s := newBed(t, v, Options{FairWait: 2 * staleWait, Watchdog: shortLease}).scene(t, "fair")
		s.run(`
			go.holder lock
			w0 = go.0 lock
			queue n 1
			w1 = java.1 lock
			queue n 2
			w2 = java.2 lock
			queue n 3
			w3 = java.3 lock
			queue n 4`)
		entries := s.queue(t, s.name("n"))
		for end := s.score(3).Add(3 * staleWait); time.Now().Before(end); time.Sleep(20 * time.Millisecond) { // long after all waits have passed
			for _, field := range entries[1:] {
				if behind := time.Since(s.scoreOf(field)); behind > 0 {
					t.Fatalf("a Java waiter behind a living Go one is stale since %v", behind)
				}
			}
		}
		// One of them is thrown out, as by a client whose clock is ahead. It looks again
		// when the lease that it saw has ended, and queues up behind the others.
		s.run(`
			redis LREM redisson_lock_queue:{$n} 1 ` + entries[2] + `
			redis ZREM redisson_lock_timeout:{$n} ` + entries[2])
		eventually(t, "it is back in the queue", func() bool {
			q := s.queue(t, s.name("n"))
			return len(q) == 4 && q[3] == entries[2]
		})
		s.run(`
			go.holder unlock
			w0 enters
			go.0 unlock
			w1 enters
			java.1 unlock
			w3 enters
			java.3 unlock
			w2 enters
			java.2 unlock`)
	})
}
