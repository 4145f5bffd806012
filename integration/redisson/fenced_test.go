//go:build unix

package redisson

import (
	"strconv"
	"testing"
	"time"
)

// With FenceTTL negative the counter is shared: every holder of either side has a
// larger token than all before.
func TestFencingTokensOfBothSidesAreOneSequence(t *testing.T) {
	eachVersion(t, func(t *testing.T, v Version) {
		b := sharedBed(t, v)
		n := name(t)
		counter := "redisson_lock_token:{" + n + "}"
		last := uint64(0)
		larger := func(who string, token uint64) {
			t.Helper()
			if token <= last {
				t.Fatalf("%s got token %d after %d", who, token, last)
			}
			last = token
			if ttl := b.server.Int(t, "PTTL", counter); ttl != -1 {
				t.Fatalf("after %s the counter has a TTL of %d ms", who, ttl)
			}
		}
		for range 5 {
			j, g := b.java.Owner("a").Fenced(n), b.golang.Owner("b").Fenced(n)
			larger("Java", j.Token(t))
			larger("Java, re-entered", j.Token(t)) // Redisson counts those
			waits := g.GoToken()
			lineup{bed: b}.awaitWaiter(t, n, waits)
			j.Unlock(t)
			j.Unlock(t)
			larger("Go, woken", waits.Token(t))
			if re := g.Token(t); re != last {
				t.Fatalf("the re-entry's token is %d, the hold's %d", re, last)
			}
			if seen := j.LastToken(t); seen != last {
				t.Fatalf("Java sees token %d, Go holds with %d", seen, last)
			}
			waits = j.GoToken()
			lineup{bed: b}.awaitWaiter(t, n, waits)
			g.Unlock(t)
			g.Unlock(t)
			larger("Java, woken", waits.Token(t))
			if seen := g.LastToken(t); seen != last {
				t.Fatalf("Go sees token %d, Java holds with %d", seen, last)
			}
			j.Unlock(t)
			larger("Go", g.TryToken(t, time.Second, 5*time.Second))
			g.Unlock(t)
			larger("Java, fixed lease", j.TryToken(t, time.Second, 5*time.Second))
			j.Unlock(t)
		}
	})
}

// Java begins at 1 again when the counter is gone; the Go side goes on from the
// clock, and so does Java after it.
func TestFencingTokensAfterALostCounter(t *testing.T) {
	eachVersion(t, func(t *testing.T, v Version) {
		b := sharedBed(t, v)
		n := name(t)
		counter := "redisson_lock_token:{" + n + "}"
		j, g := b.java.Owner("a").Fenced(n), b.golang.Owner("b").Fenced(n)
		first := g.Token(t)
		g.Unlock(t)
		b.server.Do(t, "DEL", counter)
		if second := g.Token(t); second <= first {
			t.Fatalf("Go: token %d after %d", second, first)
		}
		g.Unlock(t)
		b.server.Do(t, "DEL", counter)
		if low := j.Token(t); low != 1 {
			t.Fatalf("Java: token %d after a lost counter; docs/REDISSON.md says it begins at 1", low)
		}
		j.Unlock(t)
		third := g.Token(t)
		g.Unlock(t)
		if third <= first {
			t.Fatalf("Go: token %d after %d", third, first)
		}
		if next := j.Token(t); next != third+1 {
			t.Fatalf("Java: token %d after %d", next, third)
		}
		j.Unlock(t)
	})
}

// Tokens increase with many owners of both sides at once; each writes its token from inside.
func TestFencingTokensUnderContention(t *testing.T) {
	eachVersion(t, func(t *testing.T, v Version) {
		b := sharedBed(t, v)
		n, record := name(t), name(t)
		const owners, rounds = 3, 15
		done := make(chan bool, 2*owners)
		for _, d := range []*Driver{b.java, b.golang} {
			for i := range owners {
				l := d.Owner("fence" + strconv.Itoa(i)).Fenced(n)
				go func() { // ends with its rounds, or with the driver
					ok := true
					for range rounds {
						a, err := l.GoToken().Result()
						ok = ok && err == nil
						_, err = b.server.Try("RPUSH", record, a.Value)
						ok = ok && err == nil
						_, err = l.GoUnlock().Result()
						ok = ok && err == nil
					}
					done <- ok
				}()
			}
		}
		for range 2 * owners {
			if !<-done {
				t.Error("an owner could not lock, write or unlock")
			}
		}
		last := uint64(0)
		tokens := b.server.List(t, "LRANGE", record, "0", "-1")
		for _, s := range tokens {
			token, err := strconv.ParseUint(s, 10, 64)
			if err != nil || token <= last {
				t.Fatalf("token %s after %d", s, last)
			}
			last = token
		}
		if len(tokens) != 2*owners*rounds {
			t.Fatalf("%d tokens, want %d", len(tokens), 2*owners*rounds)
		}
		b.server.Do(t, "DEL", record)
	})
}
