//go:build unix

package redisson

import (
	"context"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/redis/rueidis"
)

// fairKeys are the list and the zset of a fair lock.
func fairKeys(n string) (queue, scores string) {
	return "redisson_lock_queue:{" + n + "}", "redisson_lock_timeout:{" + n + "}"
}

// queued waits until the queue has so many entries.
func (b *bed) queued(t *testing.T, n string, want int) {
	t.Helper()
	queue, _ := fairKeys(n)
	eventually(t, fmt.Sprintf("%d in the queue", want), func() bool { return b.server.Int(t, "LLEN", queue) == int64(want) })
}

// integersOnly reads all that is published on Redisson's channels until the test's
// end, and fails the test when a payload is no integer: Redisson would lose other
// locks' messages with it.
func (b *bed) integersOnly(t *testing.T) {
	t.Helper()
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{b.server.Addr()}, DisableCache: true})
	if err != nil {
		t.Fatal(err)
	}
	conn, release := client.Dedicate()
	ended := conn.SetPubSubHooks(rueidis.PubSubHooks{OnMessage: func(m rueidis.PubSubMessage) {
		if _, err := strconv.ParseInt(m.Message, 10, 64); err != nil {
			t.Errorf("%q was published on %s", m.Message, m.Channel)
		}
	}})
	if err := conn.Do(context.Background(), client.B().Psubscribe().Pattern("redisson_*").Build()).Error(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		release()
		client.Close()
		for range ended {
		}
	})
}

// 20 waiters of each side, with different waits, in one queue: they enter in the
// order in which they came, whoever holds first.
func TestMixedQueueKeepsItsOrder(t *testing.T) {
	eachVersion(t, func(t *testing.T, v Version) {
		b := sharedBed(t, v)
		for holder, first := range map[string]*Driver{"java-holds": b.java, "go-holds": b.golang} {
			t.Run(holder, func(t *testing.T) {
				b.integersOnly(t)
				n := name(t)
				const each = 20
				first.Owner("first").Fair(n).Lock(t, 0)
				locks := make([]Lock, 0, 2*each)
				calls := make([]*Call, 0, 2*each)
				for i := range 2 * each {
					d := b.java
					// Turns between the sides, then a run of each.
					if (i < 24 && i%2 == 1) || i >= 32 {
						d = b.golang
					}
					l := d.Owner("mixed" + strconv.Itoa(i)).Fair(n)
					wait := []time.Duration{-1, 5 * time.Minute, 50 * time.Second, time.Hour}[i%4]
					// What Redisson adds to and takes from the scores differs from waiter to waiter.
					var c *Call
					if wait > 0 {
						c = l.GoTryLock(wait, 0)
					} else {
						c = l.GoLock(0)
					}
					locks, calls = append(locks, l), append(calls, c)
					b.queued(t, n, i+1)
				}
				began := time.Now()
				first.Owner("first").Fair(n).Unlock(t)
				for i, c := range calls {
					c.Wait(t)
					for j := i + 1; j < len(calls); j++ {
						if !calls[j].Pending() {
							t.Fatalf("waiter %d entered beside waiter %d", j, i)
						}
					}
					locks[i].Unlock(t)
				}
				took := time.Since(began)
				t.Logf("%d turns in %v", len(calls), took)
				between(t, "all turns", took, 0, 20*time.Second)
				b.nothingLeft(t, n)
			})
		}
	})
}

// A Java waiter behind dead Go waiters looks when the holder's lease that it was told last has
// ended, since nobody tells it; then it gets the lock as soon as the dead are skipped. Redisson's
// own rule for its dead is five minutes each.
func TestDeadGoWaitersAreSkipped(t *testing.T) {
	const skip = 5 * time.Second // fairlock's default
	eachVersion(t, func(t *testing.T, v Version) {
		b := shortBed(t, v)
		for _, holder := range []string{"java", "go"} {
			t.Run(holder+"-holds", func(t *testing.T) {
				n := name(t)
				first := map[string]*Driver{"java": b.java, "go": b.golang}[holder].Owner("first").Fair(n)
				first.Lock(t, 0)
				victim := startGo(t, Options{Addresses: []string{b.server.Addr()}, Watchdog: shortLease})
				for i := range 5 {
					victim.Owner(strconv.Itoa(i)).Fair(n).GoLock(0)
					b.queued(t, n, i+1)
				}
				java, golang := b.java.Owner("second").Fair(n), b.golang.Owner("third").Fair(n)
				second := java.GoLock(0)
				b.queued(t, n, 6)
				third := golang.GoLock(0)
				b.queued(t, n, 7)
				victim.Kill(t)
				unlock := first.Unlock(t)
				took := latency(unlock, second.Wait(t))
				t.Logf("Java entered %v after the unlock, behind five dead Go waiters", took)
				between(t, "Java entered after the unlock", took, 0, skip+shortLease+soon)
				if !third.Pending() {
					t.Fatal("two holders")
				}
				between(t, "wake-up", latency(java.Unlock(t), third.Wait(t)), 0, soon)
				golang.Unlock(t)

				// Redisson dropped the dead from what it knows, not from redlatch's own record of
				// them. That must not hide a Java waiter in front from the next Go one (else it
				// would not hear of its turn before its next refresh).
				golang.Lock(t, 0)
				second = java.GoLock(0)
				b.queued(t, n, 1)
				// New: it listens to nothing yet.
				fourth := startGo(t, Options{Addresses: []string{b.server.Addr()}, SkipAfter: time.Minute}).Owner("fourth").Fair(n)
				waits := fourth.GoLock(0)
				b.queued(t, n, 2)
				golang.Unlock(t)
				second.Wait(t)
				b.settle(t)
				between(t, "wake-up", latency(java.Unlock(t), waits.Wait(t)), 0, soon) // its refresh comes after 12 s
				// The first waiter of an empty queue tidies up.
				next := golang.GoLock(0)
				b.queued(t, n, 1)
				fourth.Unlock(t)
				next.Wait(t)
				golang.Unlock(t)
				b.nothingLeft(t, n)
			})
		}
	})
}

// Java waiters die, or are interrupted in lockInterruptibly(), which leaves their
// places behind as well. A Go waiter behind them has the lock as soon as Redisson's
// own rule drops the last of them.
func TestDeadJavaWaitersAreSkippedByRedissonsRule(t *testing.T) {
	eachVersion(t, func(t *testing.T, v Version) {
		o := Options{Watchdog: shortLease, FairWait: 2 * time.Second}
		b := ownBed(t, v, o)
		o.Addresses = []string{b.server.Addr()}
		for _, death := range []string{"killed", "interrupted"} {
			t.Run(death, func(t *testing.T) {
				n := name(t)
				queue, scores := fairKeys(n)
				first := b.golang.Owner("first").Fair(n)
				first.Lock(t, 0)
				victim := Start(t, v, o)
				var calls []*Call
				for i := range 2 {
					calls = append(calls, victim.Owner(strconv.Itoa(i)).Fair(n).GoLock(0))
					b.queued(t, n, i+1)
				}
				second := b.golang.Owner("second").Fair(n)
				waits := second.GoLock(0)
				b.queued(t, n, 3)
				if death == "killed" {
					victim.Kill(t)
				} else {
					for i, c := range calls {
						victim.Owner(strconv.Itoa(i)).Interrupt(t)
						if _, err := c.Result(); err == nil {
							t.Fatal("not interrupted")
						}
					}
				}
				dead := b.server.Text(t, "LINDEX", queue, "1")
				ms, err := strconv.ParseFloat(b.server.Text(t, "ZSCORE", scores, dead), 64)
				if err != nil {
					t.Fatal(err)
				}
				drop := time.UnixMilli(int64(ms))
				first.Unlock(t)
				entered := waits.Wait(t).At
				t.Logf("%v after the unlock Redisson would drop the last of them; Go entered %v after that", time.Until(drop).Round(time.Millisecond), entered.Sub(drop))
				between(t, "entered after Redisson's time", entered.Sub(drop), -5*time.Minute, soon)
				second.Unlock(t)
				b.nothingLeft(t, n)
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
		b := sharedBed(t, v)
		n := name(t)
		queue, scores := fairKeys(n)
		first := b.java.Owner("first").Fair(n)
		first.Lock(t, 0)
		shifter := b.java.Owner("shifter")
		call := shifter.Fair(n).GoLock(0)
		b.queued(t, n, 1)
		golang := b.golang.Owner("victim").Fair(n)
		waits := golang.GoLock(0)
		b.queued(t, n, 2)
		victim := b.server.Text(t, "LINDEX", queue, "1")
		shifter.Interrupt(t)
		if _, err := call.Result(); err == nil {
			t.Fatal("not interrupted")
		}
		call = shifter.Fair(n).GoTryLock(time.Hour, 0)
		b.settle(t)
		first.Unlock(t)
		if call.Wait(t).Value != "true" {
			t.Fatal("the Java waiter did not get its turn")
		}
		score := b.server.Text(t, "ZSCORE", scores, victim)
		if ms, err := strconv.ParseFloat(score, 64); err == nil && int64(ms) > time.Now().UnixMilli() {
			t.Fatalf("score %s: the Java acquisition did not push the Go waiter into the past; docs/REDISSON.md says it does", score)
		}
		// Between its refreshes: the next Java call drops it and stands in its place.
		last := b.java.Owner("last").Fair(n)
		next := last.GoLock(0)
		thrownOut := false
		eventually(t, "the Go waiter is back at the head", func() bool {
			q := b.server.List(t, "LRANGE", queue, "0", "-1")
			thrownOut = thrownOut || (len(q) == 1 && q[0] != victim)
			return len(q) == 2 && q[0] == victim
		})
		if !thrownOut {
			t.Log("its refresh came before the Java call: it was not thrown out")
		}
		between(t, "wake-up", latency(shifter.Fair(n).Unlock(t), waits.Wait(t)), 0, soon)
		if !next.Pending() {
			t.Fatal("two holders")
		}
		between(t, "wake-up", latency(golang.Unlock(t), next.Wait(t)), 0, soon)
		last.Unlock(t)
	})
}

// A Go waiter that gives up is out of Java's way, and a Java one with a time limit
// is out of Go's, also when it was its turn.
func TestGivingUpMakesRoomForTheOtherSide(t *testing.T) {
	eachPair(t, sharedBed, func(t *testing.T, p lineup) {
		if p.kind != "fair" {
			return
		}
		n := name(t)
		p.one("a", n).Lock(t, 0)
		quits := p.one("quits", n).GoTryLock(300*time.Millisecond, 0)
		p.queued(t, n, 1)
		waits := p.two("b", n).GoLock(0)
		p.queued(t, n, 2)
		if quits.Wait(t).Value != "false" {
			t.Fatal("the lock was taken twice")
		}
		p.queued(t, n, 1)
		between(t, "wake-up", latency(p.one("a", n).Unlock(t), waits.Wait(t)), 0, soon)
		p.two("b", n).Unlock(t)
	})
}

// The scores of a queue don't grow with changes between the sides. A Go waiter behind a Java one
// stands a minute above it, so that the Java acquisition does not push it into the past. Java
// waiters behind it build on that; it must go again with the Go waiter, or each change between the
// sides would add a minute to how long a dead Java waiter blocks the queue.
func TestScoresDoNotGrowWithChangesBetweenTheSides(t *testing.T) {
	eachVersion(t, func(t *testing.T, v Version) {
		for _, how := range []string{"served", "given-up"} {
			t.Run(how, func(t *testing.T) {
				b := sharedBed(t, v)
				n := name(t)
				queue, scores := fairKeys(n)
				holder := b.golang.Owner("first").Fair(n)
				holder.Lock(t, 0)
				var locks []Lock
				var calls []*Call
				for i := range 9 {
					d := b.java
					if i%2 == 1 {
						d = b.golang
					}
					l := d.Owner("grow" + strconv.Itoa(i)).Fair(n)
					locks, calls = append(locks, l), append(calls, l.GoLock(0))
					b.queued(t, n, i+1)
				}
				if how == "given-up" {
					for i := 7; i > 0; i -= 2 {
						b.golang.Owner("grow" + strconv.Itoa(i)).Interrupt(t)
						if _, err := calls[i].Result(); err == nil {
							t.Fatal("not interrupted")
						}
					}
					b.queued(t, n, 5)
				}
				for i, l := range locks[:8] {
					if how == "given-up" && i%2 == 1 {
						continue
					}
					holder.Unlock(t)
					calls[i].Wait(t)
					holder = l
				}
				head := b.server.Text(t, "LINDEX", queue, "0")
				ms, err := strconv.ParseFloat(b.server.Text(t, "ZSCORE", scores, head), 64)
				if err != nil {
					t.Fatal(err)
				}
				// Its own wait, a lease, and what may stay on top.
				between(t, "life of the last Java waiter", time.Until(time.UnixMilli(int64(ms))), 4*time.Minute, 6*time.Minute)
				holder.Unlock(t)
				calls[8].Wait(t)
				locks[8].Unlock(t)
				b.nothingLeft(t, n)
			})
		}
	})
}
