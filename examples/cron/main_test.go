package main

import (
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/redlatchtest"
)

// TestRun runs the example, which checks itself what it shows.
func TestRun(t *testing.T) {
	t.Setenv("REDIS_URL", "")
	if err := run(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// TestEachTickOnce: where no machine is late, each tick has its run.
func TestEachTickOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := redlatchtest.NewServer(t)
		r := &report{runs: make([]int, ticks)}
		if _, err := replicas(t.Context(), func() (*redlatch.Client, error) { return server.Client(), nil }, "report", r); err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(r.runs); got != "[1 1 1]" {
			t.Errorf("runs by tick: %s", got)
		}
	})
}
