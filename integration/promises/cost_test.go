package promises

import (
	"runtime"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/integration/bed"
	"github.com/redlatch/redlatch/internal/testbed"
)

// An uncontended Lock and Unlock cost each server one command each, one message, and no subscription; so does a
// re-entry, without the message.
func TestAnUncontendedPairCostsTwoCommands(t *testing.T) {
	t.Parallel()
	for _, k := range bed.Kinds() {
		t.Run(k.Name, func(t *testing.T) {
			t.Parallel()
			rounds := int64(50)
			// A quorum's last copy comes when the pair may be over, and is given back: one command more. It takes so long that
			// the outer hold is renewed.
			alone := k.Servers < 3
			if !alone {
				rounds = 8
			}
			x := bed.NewSite(t, k)
			l := x.Kind.New(x.Direct, "cost")
			pairs := func(what string, messages int64, pair func()) {
				t.Helper()
				pair() // loads its scripts
				before, began := make([]testbed.Stats, len(x.Servers)), time.Now()
				for i, s := range x.Servers {
					s.AwaitQuiet(t)
					before[i] = s.CommandStats(t)
				}
				for range rounds {
					pair()
					for i := 0; i < len(x.Servers) && !alone; i++ { // a pair must not meet what is left of the one before
						x.Servers[i].AwaitQuiet(t)
					}
				}
				for i, s := range x.Servers {
					s.AwaitQuiet(t) // a quorum's last copy has come
					calls, renewals := s.CommandStats(t).Sub(before[i]).Calls, int64(time.Since(began)/(redlatch.DefaultLeaseTime/3))
					if n := calls["evalsha"]; alone && n != 2*rounds || n > 3*rounds+renewals+1 || calls["publish"] > messages*rounds {
						t.Errorf("%s: %d scripts and %d messages for %d pairs", what, calls["evalsha"], calls["publish"], rounds)
					}
					for _, not := range []string{"eval", "subscribe", "ssubscribe", "wait", "multi", "script|load", "hgetall", "hkeys", "keys", "scan"} {
						if calls[not] != 0 && (alone || not != "hgetall" && not != "eval") { // no copy was given back before
							t.Errorf("%s: %d × %s", what, calls[not], not)
						}
					}
				}
			}
			pairs("a pair", int64(len(x.Kind.Names(""))), func() { bed.Unlock(t, bed.Lock(t, t.Context(), l)) })
			outer := bed.Lock(t, t.Context(), l)
			pairs("a re-entry", 0, func() { bed.Unlock(t, bed.Lock(t, outer.Context(), l)) })
			bed.Unlock(t, outer)
		})
	}
}

// A hold costs the client no goroutine, whatever its kind.
func TestAHoldCostsNoGoroutine(t *testing.T) { //nolint:paralleltest // it counts them
	kinds := bed.Kinds()
	x := bed.NewSite(t, kinds[len(kinds)-1]) // which has the most servers
	for _, k := range kinds {
		pair := func() { bed.Unlock(t, bed.Lock(t, t.Context(), k.New(x.Direct, "goroutines"+k.Name))) }
		pair() // makes what a client has once
		before := runtime.NumGoroutine()
		for range 50 {
			pair()
		}
		bed.Eventually(t, "no goroutine more of a "+k.Name+" lock", func() bool { return runtime.NumGoroutine() <= before+3 })
	}
}
