//go:build unix

package redisson

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/testbed"
)

// What all exclusive kinds promise, with one side in each role. Leases are the
// default 30 s unless a test says otherwise, so that nothing which is told by a
// message could have come from a TTL.

// soon is the time within which a waiter that was told must have the lock, on a machine that is
// busy with other tests and may stand still for seconds; it is far below a lease of 30 s.
const soon = 5 * time.Second

// latency is the time from the start of one command to the end of another.
func latency(from, to Answer) time.Duration { return to.At.Sub(from.At.Add(-from.Took)) }

// awaitWaiter waits until somebody listens for the release of a lock.
func (p lineup) awaitWaiter(t *testing.T, n string, waits *Call) {
	t.Helper()
	eventually(t, "a waiter", func() bool {
		list := p.server.List(t, "PUBSUB", "CHANNELS", "*{"+n+"}*")
		return len(list) > 0 || !waits.Pending()
	})
	if !waits.Pending() {
		_, err := waits.Result()
		t.Fatalf("a lock that is held was granted (%v)", err)
	}
}

// Each side sees that the other holds the lock, and for how long; ours names the holder.
func TestBusyIsSeenWithTheRemainingTime(t *testing.T) {
	eachPair(t, sharedBed, func(t *testing.T, p lineup) {
		n := name(t)
		p.one("a", n).Lock(t, 20*time.Second)
		low, high := 15*time.Second, 20*time.Second
		for range 2 {
			two := p.two("b", n)
			if two.TryLock(t, -1, 0) {
				t.Fatal("the other side took a held lock")
			}
			s := two.State(t)
			if !s.Locked || s.Count != 0 {
				t.Fatalf("the other side sees %+v", s)
			}
			between(t, "remaining time in the state", s.TTL, low, high)
			if p.second == p.golang {
				holder, remaining := two.busy(t)
				if want := p.first.Owner("a").Field(t); holder != want {
					t.Fatalf("holder %q, want %q", holder, want)
				}
				between(t, "remaining time in the error", remaining, low, high)
			}
			// Once more after a re-entry with a longer lease.
			p.one("a", n).Lock(t, 40*time.Second)
			low, high = 35*time.Second, 40*time.Second
			if p.kind == "write" && p.first == p.java {
				low, high = 55*time.Second, 60*time.Second // Redisson adds up
			}
		}
		for range 3 {
			p.one("a", n).Unlock(t)
		}
		if !p.two("b", n).TryLock(t, -1, 0) {
			t.Fatal("still busy after the last unlock")
		}
		p.two("b", n).Unlock(t)
	})
}

// An unlock of one side wakes a waiter of the other at once.
func TestUnlockWakesTheOtherSideAtOnce(t *testing.T) {
	eachPair(t, sharedBed, func(t *testing.T, p lineup) {
		n := name(t)
		var took []time.Duration
		for range 10 {
			p.one("a", n).Lock(t, 0)
			waits := p.two("b", n).GoLock(0)
			p.awaitWaiter(t, n, waits)
			// A waiter that has just subscribed tries once more before it sleeps; the next
			// unlock must find it asleep, or it would not need the message.
			p.settle(t)
			took = append(took, latency(p.one("a", n).Unlock(t), waits.Wait(t)))
			p.two("b", n).Unlock(t)
		}
		slices.Sort(took)
		t.Logf("from the start of the unlock until the other side has the lock: median %v, longest %v", took[len(took)/2], took[len(took)-1])
		between(t, "longest wake-up", took[len(took)-1], 0, soon)
	})
}

// asked waits until waiters that came after before have asked as often as they do before they sleep: when they come,
// and when their subscription stands. A script that the server did not know yet (NOSCRIPT) asks nothing.
func (b *bed) asked(t *testing.T, before testbed.Stats, waiters int) {
	t.Helper()
	eventually(t, "the waiters have asked twice", func() bool {
		stats := b.server.CommandStats(t).Sub(before)
		scripts := stats.Calls["eval"] + stats.Calls["evalsha"] - stats.Failed["eval"] - stats.Failed["evalsha"]
		return scripts >= int64(2*waiters)
	})
}

// settle waits until no script has run for a while: whoever waits is asleep.
func (b *bed) settle(t *testing.T) {
	t.Helper()
	last, since := int64(-1), time.Now()
	eventually(t, "the waiters sleep", func() bool {
		if n := b.server.CommandStats(t).Calls["evalsha"]; n != last {
			last, since = n, time.Now()
		}
		return time.Since(since) > 50*time.Millisecond
	})
}

// The other side enters after the last of the nested unlocks, not before.
func TestReentryHoldsTheOtherSideOff(t *testing.T) {
	eachPair(t, sharedBed, func(t *testing.T, p lineup) {
		n := name(t)
		p.one("a", n).Lock(t, 0)
		p.one("a", n).Lock(t, 0)
		if s := p.one("a", n).State(t); s.Count != 2 {
			t.Fatalf("after re-entry: %+v", s)
		}
		waits := p.two("b", n).GoLock(0)
		p.awaitWaiter(t, n, waits)
		p.one("a", n).Unlock(t)
		p.settle(t)
		if !waits.Pending() {
			t.Fatal("the first of two unlocks let the other side in")
		}
		if s := p.one("a", n).State(t); s.Count != 1 || s.TTL < 25*time.Second {
			t.Fatalf("after the first of two unlocks: %+v", s)
		}
		unlock := p.one("a", n).Unlock(t)
		between(t, "wake-up", latency(unlock, waits.Wait(t)), 0, soon)
		p.one("a", n).UnlockRefused(t)
		if s := p.two("b", n).State(t); s.Count != 1 {
			t.Fatalf("the other side's hold after a refused unlock: %+v", s)
		}
		p.two("b", n).Unlock(t)
	})
}

// The other side enters when a fixed lease ends, and the late unlock leaves it alone.
func TestFixedLeaseEndsForTheOtherSide(t *testing.T) {
	eachPair(t, sharedBed, func(t *testing.T, p lineup) {
		n := name(t)
		const lease = 800 * time.Millisecond
		got := p.one("a", n).Lock(t, lease)
		waits := p.two("b", n).GoLock(0)
		// The lease began somewhere while the lock command ran.
		between(t, "granted after the lock", latency(got, waits.Wait(t)), lease, lease+got.Took+soon)
		p.one("a", n).UnlockRefused(t)
		if s := p.two("b", n).State(t); s.Count != 1 {
			t.Fatalf("after the unlock of a lost lease the new holder has %+v", s)
		}
		p.two("b", n).Unlock(t)
	})
}

// A wait for the other side's lock ends on time and leaves nothing.
func TestWaitEndsAndLeavesNothing(t *testing.T) {
	eachPair(t, sharedBed, func(t *testing.T, p lineup) {
		n := name(t)
		p.one("a", n).Lock(t, 0)
		const wait = 400 * time.Millisecond
		a := p.two("b", n).GoTryLock(wait, 0).Wait(t)
		if a.Value != "false" {
			t.Fatal("the other side took a held lock")
		}
		between(t, "wait", a.Took, wait-time.Millisecond, wait+soon)
		p.one("a", n).Unlock(t)
		p.nothingLeft(t, n)
	})
}

// leftovers are the keys of a lock, without those that go by themselves or stay on
// purpose: Redisson's unlock latches, what redlatch refuses late commands by, and
// fencing counters.
func (b *bed) leftovers(t *testing.T, n string) []string {
	t.Helper()
	return slices.DeleteFunc(b.server.List(t, "KEYS", "*"+n+"*"), func(key string) bool {
		for _, p := range []string{"redisson_unlock_latch:", "redlatch_void:"} {
			if strings.HasPrefix(key, p) && b.pttl(t, key) != -time.Millisecond {
				return true
			}
		}
		return strings.HasPrefix(key, "redisson_lock_token:")
	})
}

// A wait that is interrupted lets the other waiters go on.
func TestInterruptedWaitLetsTheOthersGoOn(t *testing.T) {
	eachPair(t, sharedBed, func(t *testing.T, p lineup) {
		n := name(t)
		if p.kind == "fair" && p.second == p.java {
			t.Skip("an interrupted Java waiter leaves its place in the queue: Redisson's own fault, see TestDeadJavaWaitersAreSkippedByRedissonsRule")
		}
		p.one("a", n).Lock(t, 0)
		given := p.two("b", n).GoLock(0)
		p.awaitWaiter(t, n, given)
		waits := p.two("c", n).GoLock(0)
		p.settle(t)
		p.second.Owner("b").Interrupt(t)
		if _, err := given.Result(); err == nil || !strings.Contains(err.Error(), "InterruptedException") {
			t.Fatalf("interrupted wait: %v", err)
		}
		between(t, "wake-up", latency(p.one("a", n).Unlock(t), waits.Wait(t)), 0, soon)
		p.two("c", n).Unlock(t)
	})
}

// The second side takes the lock of the first away; a waiter of either side enters
// at once, and the former holder learns of it.
func TestForcedUnlockAcross(t *testing.T) {
	eachPair(t, sharedBed, func(t *testing.T, p lineup) {
		n := name(t)
		for _, waiter := range []Lock{p.one("c", n), p.two("c", n)} {
			p.one("a", n).Lock(t, 0)
			waits := waiter.GoLock(0)
			p.awaitWaiter(t, n, waits)
			p.settle(t)
			before := time.Now()
			if !p.two("b", n).ForceUnlock(t) {
				t.Fatal("the lock was held, and the forced unlock says it was not")
			}
			between(t, "wake-up", waits.Wait(t).At.Sub(before), 0, soon)
			p.one("a", n).UnlockRefused(t)
			if s := waiter.State(t); s.Count != 1 {
				t.Fatalf("after the old holder's unlock the new one has %+v", s)
			}
			waiter.Unlock(t)
		}
		if p.two("b", n).ForceUnlock(t) {
			t.Fatal("forced an unlock of nothing")
		}
	})
}

// shortLease leaves two seconds for a renewal: on a machine that is busy with other tests, the first
// one of a Java process that has just started comes half a second late, and a second was too little.
const shortLease = 3 * time.Second

// shortBed is a shared bed with short leases, for what happens at their ends and between
// renewals. Those who are killed are processes of the test's own.
func shortBed(t *testing.T, v Version) *bed {
	t.Helper()
	return sharedBedWith(t, v, Options{Watchdog: shortLease})
}

// A watchdog keeps the other side off for longer than a lease. All kinds and directions at once: it
// takes two and a half leases.
func TestWatchdogKeepsTheOtherSideOff(t *testing.T) {
	eachVersion(t, func(t *testing.T, v Version) {
		b := shortBed(t, v)
		type pair struct {
			lineup
			n     string
			waits *Call
		}
		var pairs []pair
		for i, kind := range exclusive {
			for _, p := range []lineup{{b, kind, b.java, b.golang}, {b, kind, b.golang, b.java}} {
				n, id := name(t), fmt.Sprint(i)
				p.one("a"+id, n).Lock(t, 0)
				pairs = append(pairs, pair{p, n, p.two("b"+id, n).GoLock(0)})
			}
		}
		for end := time.Now().Add(2*shortLease + shortLease/2); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
			for _, p := range pairs {
				if ttl := p.pttl(t, p.n); ttl <= 0 || ttl > shortLease {
					t.Fatalf("%s, held by Java %t: remaining lease %v; it says\n%s", p.kind, p.first == p.java, ttl, p.first.Stderr())
				}
				if !p.waits.Pending() {
					t.Fatalf("%s, held by Java %t: the other side got a lock that the watchdog keeps; it says\n%s",
						p.kind, p.first == p.java, p.first.Stderr())
				}
			}
		}
		for i, p := range pairs {
			id := fmt.Sprint(i / 2)
			between(t, "wake-up", latency(p.one("a"+id, p.n).Unlock(t), p.waits.Wait(t)), 0, soon)
			p.two("b"+id, p.n).Unlock(t)
		}
	})
}

// A Go holder learns within a third of its lease that its lock was forced, expired
// or deleted; a Java holder never does before its unlock.
func TestGoHolderLearnsOfALossByJava(t *testing.T) {
	eachPair(t, shortBed, func(t *testing.T, p lineup) {
		if p.first != p.golang {
			return
		}
		n := name(t)
		p.one("a", n).Lock(t, 0)
		lost := p.one("a", n).goLost()
		if !p.two("b", n).ForceUnlock(t) {
			t.Fatal("not forced")
		}
		forced := time.Now()
		p.two("b", n).Lock(t, 0)
		a := lost.Wait(t)
		t.Logf("the holder knew after %v", a.At.Sub(forced))
		if a.Value != string(redlatch.LossGone) {
			t.Fatalf("lost because of %q: a look at the server should have told it before its own deadline", a.Value)
		}
		p.two("b", n).Unlock(t)
	})
}

// A process that is killed blocks the other side for its lease, no longer.
func TestKilledHolderBlocksForItsLeaseOnly(t *testing.T) {
	eachVersion(t, func(t *testing.T, v Version) {
		b := shortBed(t, v)
		o := Options{Addresses: []string{b.server.Addr()}, Watchdog: shortLease}
		for _, dir := range []struct {
			name          string
			start         func() *Driver
			second        *Driver
			lowest, extra time.Duration
		}{
			{"java-go", func() *Driver { return Start(t, v, o) }, b.golang, 0, soon},
			{"go-java", func() *Driver { return startGo(t, o) }, b.java, 0, soon},
		} {
			t.Run(dir.name, func(t *testing.T) {
				victim := dir.start()
				waits := map[string]*Call{}
				at := map[string]string{}
				for _, kind := range exclusive {
					n := name(t)
					at[kind] = n
					victim.Owner("a-"+kind).Lock(kind, n).Lock(t, 0)
					waits[kind] = dir.second.Owner("b-"+kind).Lock(kind, n).GoLock(0)
					p := lineup{bed: b, kind: kind}
					p.awaitWaiter(t, n, waits[kind])
				}
				time.Sleep(shortLease) // it is renewed while it lives
				for kind, call := range waits {
					if !call.Pending() {
						t.Fatalf("%s: taken from a living holder", kind)
					}
				}
				before := time.Now()
				victim.Kill(t)
				for kind, call := range waits {
					// Renewed a third of the lease ago at most, two thirds are left at least.
					took := call.Wait(t).At.Sub(before)
					t.Logf("%s: entered %v after the kill, lease %v", kind, took, shortLease)
					between(t, kind+": entered after the kill", took, shortLease/3, shortLease+dir.extra)
					dir.second.Owner("b-"+kind).Lock(kind, at[kind]).Unlock(t)
				}
			})
		}
	})
}

// Waiters that died don't stand in the way of the others of either side.
func TestKilledWaiterIsNotWaitedFor(t *testing.T) {
	eachVersion(t, func(t *testing.T, v Version) {
		b := sharedBed(t, v)
		o := Options{Addresses: []string{b.server.Addr()}}
		for _, dir := range []struct {
			name   string
			start  func() *Driver
			second *Driver
		}{
			{"java-go", func() *Driver { return Start(t, v, o) }, b.golang},
			{"go-java", func() *Driver { return startGo(t, o) }, b.java},
		} {
			t.Run(dir.name, func(t *testing.T) {
				victim := dir.start()
				n := name(t)
				p := lineup{b, "rlock", dir.second, dir.second}
				p.one("a", n).Lock(t, 0)
				dead := victim.Owner("a").RLock(n).GoLock(0)
				p.awaitWaiter(t, n, dead)
				waits := p.two("b", n).GoLock(0)
				p.settle(t)
				victim.Kill(t)
				between(t, "wake-up", latency(p.one("a", n).Unlock(t), waits.Wait(t)), 0, soon)
				p.two("b", n).Unlock(t)
			})
		}
	})
}

// Both sides at one name without pause exclude each other: each section is in a record.
func TestContendedLockExcludes(t *testing.T) {
	eachVersion(t, func(t *testing.T, v Version) {
		b := sharedBed(t, v)
		for _, kind := range exclusive {
			t.Run(kind, func(t *testing.T) {
				n, record := name(t), name(t)
				calls := map[string][]*Call{}
				for tag, d := range map[string]*Driver{"java": b.java, "go": b.golang} {
					for i := range 4 {
						calls[tag] = append(calls[tag], d.Owner("loop"+string(rune('a'+i))).GoLoop(Loop{
							Specs: []string{Spec(kind, n)}, Rounds: 25, Record: record, Tag: tag, Wait: -1, Twice: true,
						}))
					}
				}
				for tag, list := range calls {
					for _, c := range list {
						if r := c.LoopResult(t); r.Acquired != 25 || r.Lost != 0 || r.Failed != 0 {
							t.Fatalf("%s: %+v", tag, r)
						}
					}
				}
				check := newRecordCheck()
				for _, line := range b.server.List(t, "LRANGE", record, "0", "-1") {
					check.line(line)
				}
				check.report(t)
				if check.sections != 200 {
					t.Fatalf("%d sections recorded, want 200", check.sections)
				}
				b.server.Do(t, "DEL", record)
				b.nothingLeft(t, n)
			})
		}
	})
}
