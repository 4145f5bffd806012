package engine_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlatch/redlatch/internal/engine"
)

// simulated runs a simulation with some seeds, each in a bubble of its own. One that does not
// end panics with its seed: by the real clock, since that of a bubble stands still while anybody
// in it spins.
func simulated(t *testing.T, run func(t *testing.T, seed uint64)) {
	n := 20
	if engine.Race {
		n = 4
	}
	for range n {
		seed := rand.Uint64() //nolint:gosec // a test
		limit := time.AfterFunc(endless, func() { panic(fmt.Sprintf("seed %d: the simulation has not ended after %v", seed, endless)) })
		synctest.Test(t, func(t *testing.T) { run(t, seed) })
		limit.Stop()
	}
}

// endless is many times what one simulation takes.
const endless = 30 * time.Second
