//go:build unix

package redisson

import (
	"strconv"
	"strings"
	"testing"
)

// With FenceTTL negative the counter is shared: every holder of either side has a
// larger token than all before.
func TestFencingTokensOfBothSidesAreOneSequence(t *testing.T) {
	plays(t, "fenced", strings.Repeat(`
		java.a token -> more
		java.a token -> more   # Redisson counts re-entries
		w = go.b token
		w waits
		redis PTTL redisson_lock_token:{$n} -> -1
		java.a unlock
		java.a unlock
		w enters -> more
		go.b token -> same
		java.a lasttoken -> same
		w = java.a token
		w waits
		redis PTTL redisson_lock_token:{$n} -> -1
		go.b unlock
		go.b unlock
		w enters -> more
		go.b lasttoken -> same
		java.a unlock
		go.b trytoken 1s 5s -> more
		redis PTTL redisson_lock_token:{$n} -> -1
		go.b unlock
		java.a trytoken 1s 5s -> more
		redis PTTL redisson_lock_token:{$n} -> -1
		java.a unlock`, 5))
}

// Java begins at 1 again when the counter is gone; the Go side goes on from the
// clock, and so does Java after it.
func TestFencingTokensAfterALostCounter(t *testing.T) {
	plays(t, "fenced", `
		go.b token -> more
		go.b unlock
		redis DEL redisson_lock_token:{$n}
		go.b token -> more
		go.b unlock
		redis DEL redisson_lock_token:{$n}
		java.a token -> 1
		java.a unlock
		go.b token -> more
		go.b unlock
		java.a token -> next
		java.a unlock`)
}

// Tokens increase with many owners of both sides at once; each writes its token from inside.
func TestFencingTokensUnderContention(t *testing.T) {
	eachVersion(t, func(t *testing.T, v Version) {
		b := sharedBed(t, v)
		n, record := name(t), name(t)
		const owners, rounds = 3, 15
		done := make(chan error, 2*owners)
		round := func(d *Driver, owner, spec string) error {
			a, err := d.Go("token", owner, spec, "0").Result()
			if err != nil {
				return err
			}
			if _, err := b.server.Try("RPUSH", record, a.Value); err != nil {
				return err
			}
			_, err = d.Go("unlock", owner, spec).Result()
			return err
		}
		for _, d := range []*Driver{b.java, b.golang} {
			for i := range owners {
				go func() { // ends with its rounds, or with the driver
					var err error
					for range rounds {
						if err == nil {
							err = round(d, "fence"+strconv.Itoa(i), Spec("fenced", n))
						}
					}
					done <- err
				}()
			}
		}
		for range 2 * owners {
			if err := <-done; err != nil {
				t.Error(err)
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
