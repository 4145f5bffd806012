//go:build unix

package redisson

import (
	"strconv"
	"testing"
	"time"
)

// bothSides runs a test for both versions, with each side in each role.
func bothSides(t *testing.T, beds func(t *testing.T, v Version) *bed, f func(t *testing.T, p lineup)) {
	t.Helper()
	eachVersion(t, func(t *testing.T, v Version) {
		b := beds(t, v)
		t.Run("java-go", func(t *testing.T) { f(t, lineup{b, "", b.java, b.golang}) })
		t.Run("go-java", func(t *testing.T) { f(t, lineup{b, "", b.golang, b.java}) })
	})
}

// asleep waits until a call waits on the lock's channel and does nothing more. Redisson's own waiters
// must have got as far as their semaphore: the message that lets readers in wakes those that stand
// there, and one that comes later sleeps on until the lease ends.
func (p lineup) asleep(t *testing.T, n string, calls ...*Call) {
	t.Helper()
	p.awaitWaiter(t, n, calls[0])
	p.settle(t)
	eventually(t, "Redisson's waiters sleep", func() bool { return p.java.Asleep(t) })
	for _, c := range calls {
		if !c.Pending() {
			_, err := c.Result()
			t.Fatalf("entered a lock that excludes it (%v)", err)
		}
	}
}

// Readers of both sides share the lock and exclude the writers of both.
func TestReadersOfBothSidesShareAndExcludeWriters(t *testing.T) {
	bothSides(t, sharedBed, func(t *testing.T, p lineup) {
		n := name(t)
		r1, r2 := p.first.Owner("r1").Read(n), p.second.Owner("r2").Read(n)
		r1.Lock(t, 0)
		r2.Lock(t, 20*time.Second)
		r2.Lock(t, 20*time.Second) // re-entry
		for _, d := range []*Driver{p.first, p.second} {
			w := d.Owner("w").Write(n)
			if w.TryLock(t, -1, 0) {
				t.Fatal("a writer entered beside readers")
			}
			if d == p.golang {
				_, remaining := w.busy(t)
				between(t, "remaining time in the error", remaining, 25*time.Second, 30*time.Second)
			}
			if s := d.Owner("w").Read(n).State(t); !s.Locked {
				t.Fatalf("state of the read lock: %+v", s)
			}
			if s := w.State(t); s.Locked {
				t.Fatalf("state of the write lock: %+v", s)
			}
		}
		// A writer of each side waits; the last read unlock wakes it, not an earlier one.
		w := p.first.Owner("w").Write(n)
		for range 2 {
			waits := w.GoLock(0)
			p.asleep(t, n, waits)
			r2.Unlock(t)
			r1.Unlock(t)
			p.settle(t)
			if !waits.Pending() {
				t.Fatal("a writer entered beside a reader")
			}
			between(t, "wake-up", latency(r2.Unlock(t), waits.Wait(t)), 0, soon)
			// Now it is the other way round: both readers wait for the writer.
			c1, c2 := r1.GoLock(0), r2.GoLock(0)
			p.asleep(t, n, c1, c2)
			unlock := w.Unlock(t)
			between(t, "wake-up of the first", latency(unlock, c1.Wait(t)), 0, soon)
			between(t, "wake-up of the second", latency(unlock, c2.Wait(t)), 0, soon)
			r2.Lock(t, 0)
			w = p.second.Owner("w").Write(n)
		}
		r1.Unlock(t)
		r2.Unlock(t)
		r2.Unlock(t)
		p.nothingLeft(t, n)
	})
}

// A write unlock by either side lets all waiting readers of both sides in together.
func TestWriteUnlockWakesAllReaders(t *testing.T) {
	bothSides(t, sharedBed, func(t *testing.T, p lineup) {
		n := name(t)
		w := p.first.Owner("w").Write(n)
		w.Lock(t, 0)
		var calls []*Call
		for _, d := range []*Driver{p.first, p.second} {
			for i := range 8 {
				calls = append(calls, d.Owner("r"+strconv.Itoa(i)).Read(n).GoLock(0))
			}
		}
		p.asleep(t, n, calls...)
		unlock := w.Unlock(t)
		longest := time.Duration(0)
		for _, c := range calls {
			longest = max(longest, latency(unlock, c.Wait(t)))
		}
		t.Logf("16 readers entered within %v", longest)
		between(t, "the last of 16 readers", longest, 0, soon)
		for _, d := range []*Driver{p.first, p.second} {
			for i := range 8 {
				d.Owner("r" + strconv.Itoa(i)).Read(n).Unlock(t)
			}
		}
		p.nothingLeft(t, n)
	})
}

// A reader with a short lease leaves; one with a long lease of the other side keeps
// the lock for as long as that, also when Redisson makes the sums.
func TestShortReaderDoesNotShortenALongOneOfTheOtherSide(t *testing.T) {
	bothSides(t, sharedBed, func(t *testing.T, p lineup) {
		n := name(t)
		long, short := p.first.Owner("long").Read(n), p.second.Owner("short").Read(n)
		long.Lock(t, 20*time.Second)
		for range 2 {
			short.Lock(t, 10*time.Second)
			between(t, "lease with both inside", p.pttl(t, n), 15*time.Second, 20*time.Second)
			short.Unlock(t)
			between(t, "lease after the short one left", p.pttl(t, n), 15*time.Second, 20*time.Second)
		}
		// The other way round: the long one leaves, what is left is the short one's.
		short.Lock(t, 10*time.Second)
		long.Unlock(t)
		between(t, "lease after the long one left", p.pttl(t, n), 5*time.Second, 10*time.Second)
		w := p.first.Owner("w").Write(n)
		waits := w.GoLock(0)
		p.asleep(t, n, waits)
		between(t, "wake-up", latency(short.Unlock(t), waits.Wait(t)), 0, soon)
		w.Unlock(t)
		p.nothingLeft(t, n)
	})
}

// A Go writer that reads and unlocks the write lock lets readers of both sides in at that moment. A
// Java writer tells nobody: its own library's fault; a Go reader finds out by its next refresh.
func TestDowngrade(t *testing.T) {
	bothSides(t, sharedBed, func(t *testing.T, p lineup) {
		n := name(t)
		w := p.first.Owner("w")
		w.Write(n).Lock(t, 0)
		w.Read(n).Lock(t, 0)
		if p.second.Owner("r").Read(n).TryLock(t, -1, 0) {
			t.Fatal("a reader entered beside a writer")
		}
		same, other := p.first.Owner("r").Read(n), p.second.Owner("r").Read(n)
		calls := []*Call{other.GoLock(0)}
		if p.first == p.golang {
			calls = append(calls, same.GoLock(0))
		}
		p.asleep(t, n, calls...)
		unlock := w.Write(n).Unlock(t)
		limit := soon
		if p.first == p.java {
			limit = rwRefresh + soon
		}
		for _, c := range calls {
			took := latency(unlock, c.Wait(t))
			t.Logf("a reader entered %v after the downgrade", took)
			between(t, "entered after the downgrade", took, 0, limit)
		}
		other.Unlock(t)
		if p.first == p.golang {
			same.Unlock(t)
		}
		if p.second.Owner("w").Write(n).TryLock(t, -1, 0) {
			t.Fatal("a writer entered beside the downgraded one")
		}
		// As a reader it still keeps writers off, and lets them in at its end.
		next := p.second.Owner("w").Write(n)
		waits := next.GoLock(0)
		p.asleep(t, n, waits)
		between(t, "wake-up", latency(w.Read(n).Unlock(t), waits.Wait(t)), 0, soon)
		next.Unlock(t)
		p.nothingLeft(t, n)
	})
}

// rwRefresh is how often a waiting Go reader looks after its place.
const rwRefresh = time.Second

// Read holds of both sides are kept by their watchdogs, and neither breaks the
// other's.
func TestReadWatchdogsOfBothSidesTogether(t *testing.T) {
	eachVersion(t, func(t *testing.T, v Version) {
		b := shortBed(t, v)
		n := name(t)
		j, g := b.java.Owner("r").Read(n), b.golang.Owner("r").Read(n)
		j.Lock(t, 0)
		g.Lock(t, 0)
		g.Lock(t, 4*shortLease) // a fixed lease beside Java's renewals, which lower the lock's TTL
		w := []*Call{b.java.Owner("w").Write(n).GoTryLock(3*shortLease, 0), b.golang.Owner("w").Write(n).GoTryLock(3*shortLease, 0)}
		for w[0].Pending() || w[1].Pending() {
			if ttl := b.pttl(t, n); ttl <= 0 {
				t.Fatalf("remaining lease %v", ttl)
			}
			time.Sleep(20 * time.Millisecond)
		}
		for _, c := range w {
			if c.Wait(t).Value != "false" {
				t.Fatal("a writer entered beside readers")
			}
		}
		j.Unlock(t)
		g.Unlock(t)
		if b.java.Owner("w").Write(n).TryLock(t, -1, 0) {
			t.Fatal("a writer entered beside the Go reader")
		}
		g.Unlock(t)
		b.nothingLeft(t, n)
	})
}

// A fixed Go read lease outlives a Java reader that died: Redisson's renewals lower
// the lock's TTL to their own lease, and the Go side raises it again.
func TestLongReadLeaseOutlivesADeadJavaReader(t *testing.T) {
	eachVersion(t, func(t *testing.T, v Version) {
		b := shortBed(t, v)
		n := name(t)
		victim := Start(t, v, Options{Addresses: []string{b.server.Addr()}, Watchdog: shortLease})
		g := b.golang.Owner("r").Read(n)
		got := g.Lock(t, 4*shortLease)
		victim.Owner("r").Read(n).Lock(t, 0)
		eventually(t, "Java renews", func() bool { return b.pttl(t, n) <= shortLease })
		victim.Kill(t)
		// Java's last renewal may be as late as this, if the machine took its time until here.
		dead := time.Since(got.At.Add(-got.Took)) + shortLease
		w := b.golang.Owner("w").Write(n)
		entered := w.Lock(t, 0)
		between(t, "a writer entered after the read lock was taken", latency(got, entered),
			4*shortLease-20*time.Millisecond, max(4*shortLease, dead)+soon)
		g.UnlockRefused(t)
		w.Unlock(t)
	})
}

// A dead reader blocks writers for the rest of its lease at most when a living one of the other
// side leaves; with a 3.x reader that is longer, see below.
func TestDeadReadersBlockForTheirLeaseOnly(t *testing.T) {
	eachVersion(t, func(t *testing.T, v Version) {
		b := shortBed(t, v)
		o := Options{Addresses: []string{b.server.Addr()}, Watchdog: shortLease}
		for _, tc := range []struct {
			name   string
			victim func() *Driver
			living *Driver
			writer *Driver
		}{
			{"java-dies-go-lives", func() *Driver { return Start(t, v, o) }, b.golang, b.java},
			{"go-dies-java-lives", func() *Driver { return startGo(t, o) }, b.java, b.golang},
			{"go-dies-go-lives", func() *Driver { return startGo(t, o) }, b.golang, b.java},
		} {
			t.Run(tc.name, func(t *testing.T) {
				n := name(t)
				victim := tc.victim()
				living := tc.living.Owner("r").Read(n)
				living.Lock(t, 0)
				victim.Owner("r").Read(n).Lock(t, 0)
				victim.Kill(t)
				// Long enough for its lease to end, and for the other to be renewed several times.
				time.Sleep(2 * shortLease)
				w := tc.writer.Owner("w").Write(n)
				if w.TryLock(t, -1, 0) {
					_, err := living.GoUnlock().Result()
					t.Fatalf("a writer entered beside a living reader; that one's unlock answers %v", err)
				}
				waits := w.GoLock(0)
				p := lineup{bed: b}
				p.asleep(t, n, waits)
				unlock := living.Unlock(t)
				left := b.server.Hash(t, "HGETALL", n)
				took := latency(unlock, waits.Wait(t))
				t.Logf("the writer entered %v after the living reader had left", took)
				if v == V3 && tc.living == b.java {
					// Its renewals keep every reader's key alive, the dead one's too.
					between(t, "wake-up", took, 0, shortLease+soon)
				} else if left["mode"] == "read" {
					t.Fatalf("the dead reader blocks writers once the living one has left: %v", left)
				}
				w.Unlock(t)
			})
		}
	})
}

// A forced unlock ends only what stands in its own mode, on either side.
func TestForcedUnlockKeepsToItsMode(t *testing.T) {
	bothSides(t, sharedBed, func(t *testing.T, p lineup) {
		n := name(t)
		r := p.first.Owner("a").Read(n)
		r.Lock(t, 0)
		if p.second.Owner("b").Write(n).ForceUnlock(t) {
			t.Fatal("the write lock's forced unlock ended a read lock")
		}
		waits := p.second.Owner("w").Write(n).GoLock(0)
		p.asleep(t, n, waits)
		before := time.Now()
		if !p.second.Owner("b").Read(n).ForceUnlock(t) {
			t.Fatal("not forced")
		}
		between(t, "wake-up", waits.Wait(t).At.Sub(before), 0, soon)
		r.UnlockRefused(t)
		if p.first.Owner("b").Read(n).ForceUnlock(t) {
			t.Fatal("the read lock's forced unlock ended a write lock")
		}
		p.second.Owner("w").Write(n).Unlock(t)
	})
}

// Readers and writers of both sides at random exclude each other as they should: each section is in
// a record.
func TestContendedReadWriteLock(t *testing.T) {
	eachVersion(t, func(t *testing.T, v Version) {
		b := sharedBed(t, v)
		n, record := name(t), name(t)
		var calls []*Call
		for tag, d := range map[string]*Driver{"java": b.java, "go": b.golang} {
			for i := range 6 {
				calls = append(calls, d.Owner("rw"+strconv.Itoa(i)).GoLoop(Loop{
					Specs:  []string{Spec("read", n), Spec("read", n), Spec("read", n), Spec("write", n)},
					Rounds: 40, Record: record, Tag: tag, Wait: -1, Twice: true, Hold: 2 * time.Millisecond,
				}))
			}
		}
		for _, c := range calls {
			if r := c.LoopResult(t); r.Acquired != 40 || r.Lost != 0 || r.Failed != 0 {
				t.Fatalf("%+v", r)
			}
		}
		check := newRecordCheck()
		for _, line := range b.server.List(t, "LRANGE", record, "0", "-1") {
			check.line(line)
		}
		check.report(t)
		t.Logf("%d sections, %d entered beside other readers", check.sections, check.together)
		if check.sections != 480 || check.together == 0 {
			t.Fatalf("%d sections, want 480; %d beside others, want some", check.sections, check.together)
		}
		b.server.Do(t, "DEL", record)
		b.nothingLeft(t, n)
	})
}
