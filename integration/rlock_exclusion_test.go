package integration

import (
	"fmt"
	"testing"
	"time"

	"github.com/redlatch/redlatch/internal/testbed"
)

// One process at a time is inside: 8 processes with 16 goroutines each add to a counter that is
// read and written in two commands.
func TestRLockExcludesOverProcesses(t *testing.T) {
	rlCountTogether(t, rlCounterArgs{Goroutines: 16, Rounds: 12})
}

// One process at a time is inside, also when the ctx of acquisitions ends at any moment, before,
// within or after them. Late grants are given back: at the end nothing is held and the counter is
// right.
func TestRLockExcludesWithCancellations(t *testing.T) {
	rlCountTogether(t, rlCounterArgs{Goroutines: 16, Rounds: 40, CancelMs: 120})
}

func rlCountTogether(t *testing.T, args rlCounterArgs) {
	t.Helper()
	s := rlServer(t)
	args.rlHolderArgs = rlHolderArgs{Addr: s.Addr(), Name: "l", LeaseMs: 60_000}
	var workers []*testbed.Process
	for range 8 {
		workers = append(workers, testbed.Spawn(t, "rlock-counter", args))
	}
	for _, w := range workers {
		w.Expect(t, "ready")
	}
	began := time.Now()
	for _, w := range workers {
		w.Send(t, "go")
	}
	added, given := 0, 0
	for _, w := range workers {
		var a, g int
		if _, err := fmt.Sscan(w.Expect(t, "done"), &a, &g); err != nil {
			t.Fatal(err)
		}
		added, given = added+a, given+g
	}
	took := time.Since(began)
	for _, w := range workers {
		if err := w.Wait(t); err != nil {
			t.Error(err, w.Stderr())
		}
	}
	got := s.Int(t, "GET", "counter")
	if got != int64(added) {
		t.Errorf("the counter says %d, the sections were %d", got, added)
	}
	switch {
	case args.CancelMs == 0 && added != 8*args.Goroutines*args.Rounds:
		t.Errorf("%d sections", added)
	case args.CancelMs > 0 && (added == 0 || given == 0):
		t.Errorf("%d sections, %d given up: one of them was not tried", added, given)
	}
	// No waiter may have slept until the lease of a holder that had gone.
	if took > 50*time.Second {
		t.Errorf("%d sections took %v", added, took)
	}
	t.Logf("%d sections, %d given up, in %v", added, given, took.Round(time.Millisecond))
	s.Do(t, "DEL", "counter")
	rlUntil(t, "the release of all late grants", func() bool { return s.Int(t, "EXISTS", "l") == 0 })
}
