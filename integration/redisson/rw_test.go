//go:build unix

package redisson

import (
	"strings"
	"testing"
	"time"
)

// Readers of both sides share the lock and exclude the writers of both; the last one who leaves wakes who waits.
func TestReadersOfBothSidesShareAndExcludeWriters(t *testing.T) {
	const turns = `
		w = 1.w lock write
		w waits
		2.r2 unlock
		1.r1 unlock
		w waits
		2.r2 unlock
		w enters
		r1 = 1.r1 lock
		r2 = 2.r2 lock
		r1 waits
		r2 waits
		1.w unlock write
		r1 enters
		r2 enters
		2.r2 lock`
	const beside = `
		1.w trylock write -> false
		1.w busy write -> left=25s..30s
		1.w state -> locked=true
		1.w state write -> locked=false`
	bothSides(t, sharedBed, []string{"read"}, `
		1.r1 lock
		2.r2 lock 20s
		2.r2 lock 20s`+beside+strings.ReplaceAll(beside, "1.w", "2.w")+turns+strings.ReplaceAll(turns, "1.w", "2.w")+`
		1.r1 unlock
		2.r2 unlock
		2.r2 unlock`)
}

// A write unlock by either side lets all waiting readers of both sides in together.
func TestWriteUnlockWakesAllReaders(t *testing.T) {
	bothSides(t, sharedBed, []string{"read"}, "1.w lock write\n"+
		times(8, "a# = 1.r# lock")+times(8, "b# = 2.r# lock")+times(8, "a# waits")+times(8, "b# waits")+
		"1.w unlock write\n"+
		times(8, "a# enters")+times(8, "b# enters")+times(8, "1.r# unlock")+times(8, "2.r# unlock"))
}

// A reader with a short lease leaves; one with a long lease of the other side keeps
// the lock for as long as that, also when Redisson makes the sums.
func TestShortReaderDoesNotShortenALongOneOfTheOtherSide(t *testing.T) {
	const short = `
		2.short lock 10s
		ttl n 15s..20s
		2.short unlock
		ttl n 15s..20s`
	bothSides(t, sharedBed, []string{"read"}, "1.long lock 20s"+short+short+`
		2.short lock 10s
		1.long unlock   # the other way round: what is left is the short one's
		ttl n 5s..10s
		w = 1.w lock write
		w waits
		2.short unlock
		w enters
		1.w unlock write`)
}

// A Go writer that reads and unlocks the write lock lets readers of both sides in at that moment. A
// Java writer tells nobody: its own library's fault; a Go reader finds out by its next refresh, within a second.
func TestDowngrade(t *testing.T) {
	bothSides(t, sharedBed, []string{"read"}, `
		1.w lock write
		1.w lock
		2.r trylock -> false
		other = 2.r lock
		other waits
		[go-java] same = 1.r lock
		[go-java] same waits
		1.w unlock write
		[go-java] other enters
		[go-java] same enters
		[java-go] other enters 0s..6s
		2.r unlock
		[go-java] 1.r unlock
		2.w trylock write -> false   # as a reader it still keeps writers off, and lets them in at its end
		next = 2.w lock write
		next waits
		1.w unlock
		next enters
		2.w unlock write`)
}

// Read holds of both sides are kept by their watchdogs, and neither breaks the
// other's.
func TestReadWatchdogsOfBothSidesTogether(t *testing.T) {
	eachVersion(t, func(t *testing.T, v Version) {
		shortBed(t, v).scene(t, "read").run(`
			java.r lock
			go.r lock
			go.r lock 12s   # a fixed lease beside Java's renewals, which lower the lock's TTL
			w1 = java.w trylock write 9s
			w2 = go.w trylock write 9s
			w1 ends false
			w2 ends false
			java.r unlock
			go.r unlock
			java.w trylock write -> false
			go.r unlock`)
	})
}

// A fixed Go read lease outlives a Java reader that died: Redisson's renewals lower
// the lock's TTL to their own lease, and the Go side raises it again.
func TestLongReadLeaseOutlivesADeadJavaReader(t *testing.T) {
	eachVersion(t, func(t *testing.T, v Version) {
		s := shortBed(t, v).scene(t, "read")
		s.run(`
			start 3 like java
			go.r lock 12s`)
		locked := s.since
		s.run(`
			3.r lock`)
		eventually(t, "Java renews", func() bool { return s.pttl(t, s.name("n")) <= shortLease })
		s.run(`
			kill 3
			w = go.w lock write`)
		// Java's last renewal may be as late as this, if the machine took its time until here.
		end := max(4*shortLease, s.since.Sub(locked)+shortLease)
		s.since = locked
		// Its holder counts on the lease for a hundredth less, and may give it back then.
		s.run(`w enters 11870ms..` + (end + soon).String() + `
			go.r unlock -> refused
			go.w unlock write`)
	})
}

// A dead reader blocks writers for the rest of its lease at most when a living one of the other
// side leaves; with a 3.x reader that is longer, see below.
func TestDeadReadersBlockForTheirLeaseOnly(t *testing.T) {
	eachVersion(t, func(t *testing.T, v Version) {
		for _, who := range []struct{ dies, lives, writes string }{{"java", "go", "java"}, {"go", "java", "go"}, {"go", "go", "java"}} {
			t.Run(who.dies+"-dies-"+who.lives+"-lives", func(t *testing.T) {
				s := shortBed(t, v).scene(t, "read", who.lives)
				s.sides["lives"], s.sides["writes"] = s.sides[who.lives], s.sides[who.writes]
				s.run(`
					start 3 like ` + who.dies + `
					lives.r lock
					3.r lock
					kill 3
					pass 6s   # its lease ends, and the other one is renewed several times
					writes.w trylock write -> false
					w = writes.w lock write
					w waits
					lives.r unlock
					[3.52.0 java] w enters 0s..8s   # its renewals keep every reader's key alive, the dead one's too
					[not 3.52.0 java] redis HGET $n mode -> !read
					[not 3.52.0 java] w enters
					writes.w unlock write`)
			})
		}
	})
}

// A forced unlock ends only what stands in its own mode, on either side.
func TestForcedUnlockKeepsToItsMode(t *testing.T) {
	bothSides(t, sharedBed, []string{"read"}, `
		1.a lock
		2.b force write -> false
		w = 2.w lock write
		w waits
		2.b force -> true
		w enters
		1.a unlock -> refused
		1.b force -> false
		2.w unlock write`)
}

// Readers and writers of both sides at random exclude each other as they should: each section is in
// a record.
func TestContendedReadWriteLock(t *testing.T) {
	eachVersion(t, func(t *testing.T, v Version) {
		n := name(t)
		specs := []string{Spec("read", n), Spec("read", n), Spec("read", n), Spec("write", n)}
		check := sharedBed(t, v).contend(t, 6, Loop{Rounds: 40, Twice: true, Hold: 2 * time.Millisecond}, specs, specs)
		t.Logf("%d sections, %d entered beside other readers", check.sections, check.together)
		if check.together == 0 {
			t.Error("readers never shared")
		}
	})
}
