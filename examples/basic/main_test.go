package main

import "testing"

// TestRun runs the example, which checks itself what it shows.
func TestRun(t *testing.T) {
	t.Setenv("REDIS_URL", "")
	if err := run(t.Context()); err != nil {
		t.Fatal(err)
	}
}
