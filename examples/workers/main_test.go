package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/redlatch/redlatch/examples/internal/replica"
	"github.com/redlatch/redlatch/internal/testbed"
)

// TestEachKeyOnce: three processes go through the same keys; every key is done
// exactly once, and one that failed is done by the next round.
func TestEachKeyOnce(t *testing.T) {
	addr := testbed.Standalone(t).Addr()
	var mu sync.Mutex
	done := map[string]int{} // guarded by mu
	broken := true           // guarded by mu
	work := func(_ context.Context, key string) error {
		mu.Lock()
		defer mu.Unlock()
		if key == "k13" && broken {
			broken = false
			return errors.New("boom")
		}
		done[key]++
		return nil
	}
	var keys []string
	for i := range 60 {
		keys = append(keys, fmt.Sprintf("k%02d", i))
	}
	round := func() (failed int) {
		errs := make([]error, 3)
		var processes sync.WaitGroup
		for i := range errs {
			w := &worker{replica.Data(t, addr), replica.Locks(t, addr), "done:test", work}
			processes.Go(func() { errs[i] = w.all(t.Context(), keys) })
		}
		processes.Wait()
		for _, err := range errs {
			if err != nil {
				failed++
			}
		}
		return failed
	}
	testbed.Equal(t, round(), 1, "processes that tell of the one error")
	testbed.Equal(t, round(), 0, "processes that failed in the second round")
	for _, key := range keys {
		testbed.Equal(t, done[key], 1, "times it was done:", key)
	}
}
