//go:build unix

package redisson

import (
	"strconv"
	"testing"
	"time"
)

// A multi-lock of one side excludes the members taken by the other, and the other way round.
func TestMultiLockAgainstItsMembers(t *testing.T) {
	bothSides(t, sharedBed, func(t *testing.T, p lineup) {
		for _, second := range []string{"rlock", "fair"} {
			t.Run(second, func(t *testing.T) {
				n1, n2 := name(t), name(t)
				multi := p.first.Owner("m").Multi(Spec("rlock", n1), Spec(second, n2))
				one, two := p.second.Owner("1").RLock(n1), p.second.Owner("2").Lock(second, n2)
				multi.Lock(t, 0)
				if one.TryLock(t, -1, 0) || two.TryLock(t, -1, 0) {
					t.Fatal("a member of a held multi-lock was taken")
				}
				c1, c2 := one.GoLock(0), two.GoLock(0)
				p.asleep(t, n1, c1)
				p.asleep(t, n2, c2)
				unlock := multi.Unlock(t)
				between(t, "wake-up of the first", latency(unlock, c1.Wait(t)), 0, soon)
				between(t, "wake-up of the second", latency(unlock, c2.Wait(t)), 0, soon)

				// One member is enough to keep a multi-lock off, and what it got is given back.
				one.Unlock(t)
				if multi.TryLock(t, 200*time.Millisecond, 5*time.Second) {
					t.Fatal("a multi-lock was taken over a held member")
				}
				if !one.TryLock(t, -1, 0) {
					t.Fatal("a multi-lock that failed kept a member")
				}
				one.Unlock(t)
				waits := multi.GoLock(0)
				p.asleep(t, n2, waits)
				between(t, "wake-up", latency(two.Unlock(t), waits.Wait(t)), 0, soon)
				multi.Unlock(t)
				p.nothingLeft(t, n1)
				p.nothingLeft(t, n2)
			})
		}
	})
}

// Multi-locks of both sides over the same members in opposite orders make progress.
// (Java ones in opposite orders stop each other for seconds at a time, by themselves.)
func TestMultiLocksInOppositeOrders(t *testing.T) {
	eachVersion(t, func(t *testing.T, v Version) {
		b := sharedBed(t, v)
		n1, n2, record := name(t), name(t), name(t)
		var calls []*Call
		for tag, d := range map[string]*Driver{"java": b.java, "go": b.golang} {
			for i := range 4 {
				order := MultiSpec(Spec("rlock", n1), Spec("rlock", n2))
				if tag == "go" {
					order = MultiSpec(Spec("rlock", n2), Spec("rlock", n1))
				}
				calls = append(calls, d.Owner("mm"+strconv.Itoa(i)).GoLoop(Loop{
					Specs:  []string{order, Spec("rlock", n1), Spec("rlock", n2)},
					Rounds: 10, Record: record, Tag: tag, Wait: -1,
				}))
			}
		}
		began := time.Now()
		for _, c := range calls {
			if r := c.LoopResult(t); r.Acquired != 10 || r.Lost != 0 || r.Failed != 0 {
				t.Fatalf("%+v", r)
			}
		}
		t.Logf("80 sections in %v", time.Since(began))
		check := newRecordCheck()
		for _, line := range b.server.List(t, "LRANGE", record, "0", "-1") {
			check.line(line)
		}
		check.report(t)
		b.server.Do(t, "DEL", record)
		b.nothingLeft(t, n1)
		b.nothingLeft(t, n2)
	})
}

// What a multi-lock of one side promises, as its members taken by the other side see
// it: re-entry, the end of a fixed lease, the watchdog's renewal, and the end of the
// lease when the process is killed.
func TestMultiLockHoldsItsMembers(t *testing.T) {
	bothSides(t, shortBed, func(t *testing.T, p lineup) {
		n1, n2 := name(t), name(t)
		spec := []string{Spec("rlock", n1), Spec("fair", n2)}
		one, two := p.second.Owner("1").RLock(n1), p.second.Owner("2").Fair(n2)
		// held checks that both members are waited for in vain until now, and returns
		// the waits.
		held := func() (calls []*Call) {
			calls = []*Call{one.GoLock(0), two.GoLock(0)}
			for i, n := range []string{n1, n2} {
				p.asleep(t, n, calls[i])
			}
			return calls
		}
		// entered waits until both members have been taken, and gives them back.
		entered := func(what string, since time.Time, low, high time.Duration, calls []*Call) {
			for _, c := range calls {
				between(t, what, c.Wait(t).At.Sub(since), low, high)
			}
			one.Unlock(t)
			two.Unlock(t)
		}

		multi := p.first.Owner("m").Multi(spec...)
		multi.Lock(t, 0)
		multi.Lock(t, 0)
		calls := held()
		multi.Unlock(t)
		p.settle(t)
		for end := time.Now().Add(2 * shortLease); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
			for i, n := range []string{n1, n2} {
				if ttl := p.pttl(t, n); ttl <= 0 || ttl > shortLease || !calls[i].Pending() {
					t.Fatalf("a member has %v left, the wait for it goes on: %t", ttl, calls[i].Pending())
				}
			}
		}
		unlock := multi.Unlock(t)
		entered("entered after the last unlock", unlock.At.Add(-unlock.Took), 0, soon, calls)

		before := time.Now()
		if !multi.TryLock(t, soon, shortLease) {
			t.Fatal("a free multi-lock was not taken")
		}
		// Redisson sets the lease of each member once all are taken.
		entered("entered after a fixed lease", before, shortLease, shortLease+2*soon, held())
		multi.UnlockRefused(t)

		victim := startGo(t, Options{Addresses: []string{p.server.Addr()}, Watchdog: shortLease})
		if p.first == p.java {
			victim = Start(t, p.version, Options{Addresses: []string{p.server.Addr()}, Watchdog: shortLease})
		}
		victim.Owner("m").Multi(spec...).Lock(t, 0)
		calls = held()
		before = time.Now()
		victim.Kill(t)
		entered("entered after the kill", before, shortLease/3, shortLease+soon, calls)
		p.nothingLeft(t, n1)
		p.nothingLeft(t, n2)
	})
}
