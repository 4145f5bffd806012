package hazard

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/testbed"
)

// No hold counts for longer than its key stands, whatever its owner did before: fixed
// leases and the watchdog's inside one another, Extend up and down, holds unlocked in any
// order.
func TestNoHoldCountsForLongerThanItsKeyStands(t *testing.T) {
	s := server(t)
	c := dial(t, s.Addr(), leaseTime(900*time.Millisecond))
	for _, kind := range kinds {
		t.Run(kind.name, func(t *testing.T) {
			t.Parallel()
			seed := rand.Uint64()
			random := rand.New(rand.NewPCG(seed, 0))
			name := "stands-" + kind.name
			keys := []string{name}
			if kind.name == "multi" {
				keys = append(keys, "{"+name+"}2")
			}
			l := kind.make(c, name)
			owner := redlatch.WithOwner(t.Context(), "x")
			var holds []redlatch.Hold
			lease := func() time.Duration { return time.Duration(50+random.IntN(1500)) * time.Millisecond }
			for step := range 150 {
				did := ""
				switch n := random.IntN(10); {
				case len(holds) == 0 || n < 3 && len(holds) < 4:
					d := lease()
					if random.IntN(2) == 0 {
						d = 0
					}
					did = fmt.Sprintf("lock for %v", d)
					h, err := l.TryLock(owner, time.Second, d)
					if err != nil {
						t.Fatalf("seed %d, step %d, %s: %v", seed, step, did, err)
					}
					holds = append(holds, h)
				case n < 6:
					d := lease()
					did = fmt.Sprintf("extend by %v", d)
					err := holds[random.IntN(len(holds))].Extend(t.Context(), d)
					if err != nil && !errors.Is(err, redlatch.ErrLeaseLost) {
						t.Fatalf("seed %d, step %d, %s: %v", seed, step, did, err)
					}
				case n < 8:
					i := random.IntN(len(holds))
					did = "unlock"
					if err := holds[i].Unlock(t.Context()); err != nil && !errors.Is(err, redlatch.ErrLeaseLost) {
						t.Fatalf("seed %d, step %d, %s: %v", seed, step, did, err)
					}
					holds = append(holds[:i], holds[i+1:]...)
				default:
					did = "let time pass"
					time.Sleep(time.Duration(random.IntN(40)) * time.Millisecond)
				}
				for i, h := range holds {
					if believes(t, s, keys, h) {
						continue
					}
					t.Fatalf("seed %d, step %d, after %s: hold %d of %d counts until %v", seed, step, did, i, len(holds), time.Until(h.ValidUntil()))
				}
			}
			for _, h := range holds {
				_ = h.Unlock(context.Background()) // lost or not
			}
		})
	}
}

// believes reports whether the keys stand until the hold's deadline, which may have moved
// on while they were looked at. A slow look is on the hold's side: the answer tells what was
// left before it came.
func believes(t *testing.T, s *testbed.Server, keys []string, h redlatch.Hold) bool {
	t.Helper()
	until := h.ValidUntil()
	if h.Context().Err() != nil {
		return true
	}
	for _, key := range keys {
		left := time.Duration(s.Int(t, "PTTL", key)+1) * time.Millisecond
		if time.Now().Add(max(left, 0)).Before(until) {
			return false
		}
	}
	return true
}
