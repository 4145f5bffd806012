package main

import (
	"testing"

	"github.com/redlatch/redlatch/internal/testbed"
)

// TestRun runs the example, which checks itself what it shows.
func TestRun(t *testing.T) {
	testbed.Must(t, run(t.Context(), "redis://"+testbed.Standalone(t).Addr()))
}
