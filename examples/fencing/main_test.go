package main

import (
	"testing"

	"github.com/redlatch/redlatch/examples/internal/demoserver"
)

// TestRun runs the example, which checks itself what it shows.
func TestRun(t *testing.T) {
	t.Setenv("REDIS_URL", "")
	if err := demoserver.Run(t.Context(), "fencing", run); err != nil {
		t.Fatal(err)
	}
}
