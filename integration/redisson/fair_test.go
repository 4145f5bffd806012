//go:build unix

package redisson

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redlatch/redlatch/internal/testbed"
)

// queue is who waits for a fair lock.
func (b *bed) queue(t *testing.T, n string) []string {
	t.Helper()
	return b.server.List(t, "LRANGE", "redisson_lock_queue:{"+n+"}", "0", "-1")
}

// scoreOf is the time at which Redisson may drop a waiter.
func (s *scene) scoreOf(field string) time.Time {
	s.t.Helper()
	ms, err := strconv.ParseFloat(s.server.Text(s.t, "ZSCORE", "redisson_lock_timeout:{"+s.name("n")+"}", field), 64)
	testbed.Must(s.t, err)
	return time.UnixMilli(int64(ms))
}

// score is that of the waiter at a place of the queue.
func (s *scene) score(place int) time.Time {
	s.t.Helper()
	return s.scoreOf(s.queue(s.t, s.name("n"))[place])
}

// integersOnly fails the test when a payload on Redisson's channels is no integer: Redisson would lose other
// locks' messages with it.
func (b *bed) integersOnly(t *testing.T) {
	t.Helper()
	b.listen(t, "redisson_*", func(channel, message string) {
		if _, err := strconv.ParseInt(message, 10, 64); err != nil {
			t.Errorf("%q was published on %s", message, channel)
		}
	})
}

// 20 waiters of each side, with different waits, in one queue: they enter in the
// order in which they came, whoever holds first.
func TestMixedQueueKeepsItsOrder(t *testing.T) {
	eachVersion(t, func(t *testing.T, v Version) {
		for _, holder := range []string{"java", "go"} {
			t.Run(holder+"-holds", func(t *testing.T) {
				const all = 40
				b := sharedBed(t, v)
				b.integersOnly(t)
				s := b.scene(t, "fair")
				s.run(holder + ".first lock")
				who := func(i int) string {
					if i < 24 && i%2 == 1 || i >= 32 { // turns between the sides, then a run of each
						return "go.mixed" + strconv.Itoa(i)
					}
					return "java.mixed" + strconv.Itoa(i)
				}
				for i := range all {
					// What Redisson adds to and takes from the scores differs from waiter to waiter.
					how := []string{"lock", "trylock 5m", "trylock 50s", "trylock 1h"}[i%4]
					s.run(fmt.Sprintf("w%d = %s %s\n queue n %d", i, who(i), how, i+1))
				}
				s.run(holder + ".first unlock")
				for i := range all {
					s.run(fmt.Sprintf("w%d enters", i))
					for j := i + 1; j < all; j++ {
						if !s.calls["w"+strconv.Itoa(j)].Pending() {
							t.Fatalf("waiter %d entered beside waiter %d", j, i)
						}
					}
					s.run(who(i) + " unlock")
				}
			})
		}
	})
}

// A Java waiter behind dead Go waiters looks when the holder's lease that it was told last has
// ended, since nobody tells it; then it gets the lock as soon as the dead are skipped. Redisson's
// own rule for its dead is five minutes each.
func TestDeadGoWaitersAreSkipped(t *testing.T) {
	eachVersion(t, func(t *testing.T, v Version) {
		for _, holder := range []string{"java", "go"} {
			t.Run(holder+"-holds", func(t *testing.T) {
				s := shortBed(t, v).scene(t, "fair")
				o := s.options
				o.SkipAfter = time.Minute
				s.sides["holder"], s.sides["patient"] = s.sides[holder], startGo(t, o)
				s.run(`
					start 3 like go
					holder.first lock` + "\n" + times(5, "w# = 3.# lock") + `
					queue n 5
					second = java.second lock
					queue n 6
					third = go.third lock
					queue n 7
					kill 3
					holder.first unlock
					second enters 0s..13s   # they are skipped after 5 s; a lease
					third waits
					java.second unlock
					third enters
					go.third unlock

					# Redisson dropped the dead from what it knows, not from redlatch's own record of
					# them. That must not hide a Java waiter in front from the next Go one (else it
					# would not hear of its turn before its next refresh, after 12 s).
					go.third lock
					second = java.second lock
					queue n 1
					fourth = patient.fourth lock
					queue n 2
					go.third unlock
					second enters
					fourth waits
					java.second unlock
					fourth enters
					third = go.third lock   # the first waiter of an empty queue tidies up
					queue n 1
					patient.fourth unlock
					third enters
					go.third unlock`)
			})
		}
	})
}

// Java waiters die, or are interrupted in lockInterruptibly(), which leaves their
// places behind as well. A Go waiter behind them has the lock as soon as Redisson's
// own rule drops the last of them.
func TestDeadJavaWaitersAreSkippedByRedissonsRule(t *testing.T) {
	eachVersion(t, func(t *testing.T, v Version) {
		b := newBed(t, v, Options{Watchdog: shortLease, FairWait: 2 * time.Second})
		for death, steps := range map[string]string{"killed": "kill 3", "interrupted": `
			3.0 interrupt
			w0 ends InterruptedException
			3.1 interrupt
			w1 ends InterruptedException`} {
			t.Run(death, func(t *testing.T) {
				s := b.scene(t, "fair")
				s.run(`
					start 3 like java
					go.first lock
					w0 = 3.0 lock
					queue n 1
					w1 = 3.1 lock
					queue n 2
					w = go.second lock
					queue n 3` + "\n" + steps)
				drop := s.score(1)
				s.run(`go.first unlock`)
				s.since = drop
				s.run(`
					w enters -5m..5s   # after Redisson's time
					go.second unlock`)
			})
		}
	})
}

// A Java waiter takes its own wait off every score behind it. When it asked with
// another wait than it queued up with (an interrupted lock, then tryLock with an
// hour), a living Go waiter is far in the past and the next Java call throws it
// out. Its refresh brings it back to where it was.
func TestGoWaiterThrownOutIsBackAtItsNextRefresh(t *testing.T) {
	eachVersion(t, func(t *testing.T, v Version) {
		s := sharedBed(t, v).scene(t, "fair")
		s.run(`
			java.first lock
			w = java.shifter lock
			queue n 1
			golang = go.victim lock
			queue n 2
			java.shifter interrupt
			w ends InterruptedException
			w = java.shifter trylock 1h
			w waits
			java.first unlock
			w enters`)
		victim := s.queue(t, s.name("n"))[0]
		if score := s.scoreOf(victim); score.After(time.Now()) {
			t.Fatalf("score %v: the Java acquisition did not push the Go waiter into the past; docs/REDISSON.md says it does", score)
		}
		// Between its refreshes: the next Java call drops it and stands in its place.
		s.run(`last = java.last lock`)
		thrownOut := false
		eventually(t, "the Go waiter is back at the head", func() bool {
			q := s.queue(t, s.name("n"))
			thrownOut = thrownOut || len(q) == 1 && q[0] != victim
			return len(q) == 2 && q[0] == victim
		})
		if !thrownOut {
			t.Log("its refresh came before the Java call: it was not thrown out")
		}
		s.run(`
			java.shifter unlock
			golang enters
			last waits
			go.victim unlock
			last enters
			java.last unlock`)
	})
}

// A Go waiter that gives up is out of Java's way, and a Java one with a time limit
// is out of Go's, also when it was its turn.
func TestGivingUpMakesRoomForTheOtherSide(t *testing.T) {
	bothSides(t, sharedBed, []string{"fair"}, `
		1.a lock
		quits = 1.quits trylock 300ms
		queue n 1
		w = 2.b lock
		queue n 2
		quits ends false
		queue n 1
		1.a unlock
		w enters
		2.b unlock`)
}

// The scores of a queue don't grow with changes between the sides. A Go waiter behind a Java one
// stands a minute above it, so that the Java acquisition does not push it into the past. Java
// waiters behind it build on that; it must go again with the Go waiter, or each change between the
// sides would add a minute to how long a dead Java waiter blocks the queue.
func TestScoresDoNotGrowWithChangesBetweenTheSides(t *testing.T) {
	const turn = `
		HOLDER unlock
		w# enters
		`
	who := func(i int) string { return []string{"java", "go"}[i%2] + ".grow" + strconv.Itoa(i) }
	eachVersion(t, func(t *testing.T, v Version) {
		for _, how := range []string{"served", "given-up"} {
			t.Run(how, func(t *testing.T) {
				s := sharedBed(t, v).scene(t, "fair")
				holder := "go.first"
				s.run(holder + " lock")
				for i := range 9 {
					s.run(fmt.Sprintf("w%d = %s lock\n queue n %d", i, who(i), i+1))
				}
				for i := 1; i < 9 && how == "given-up"; i += 2 {
					s.run(fmt.Sprintf("%s interrupt\n w%d ends InterruptedException", who(i), i))
				}
				for i := range 9 {
					if how == "given-up" && i%2 == 1 {
						continue
					}
					if i == 8 { // its own wait, a lease, and what may stay on top
						between(t, "life of the last Java waiter", time.Until(s.score(0)), 4*time.Minute, 6*time.Minute)
					}
					s.run(strings.NewReplacer("HOLDER", holder, "#", strconv.Itoa(i)).Replace(turn))
					holder = who(i)
				}
				s.run(holder + " unlock")
			})
		}
	})
}
