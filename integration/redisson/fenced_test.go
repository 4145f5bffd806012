//go:build unix

package redisson

import (
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
