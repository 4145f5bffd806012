package conn

import (
	"slices"
	"testing"
	"time"
)

// TestMovedSlotsAreABreak when the table says so, and neither the first table nor one that says
// the same is.
func TestMovedSlotsAreABreak(t *testing.T) {
	var table slotTable
	var broke Instant
	ranges := []slotRange{{0, 8191, "10.0.0.1:6379"}, {8192, 16383, "10.0.0.2:6379"}}
	for range 2 {
		table.learn(time.Now(), slices.Clone(ranges), &broke)
		if !broke.Last().IsZero() {
			t.Fatal("a break, though nothing has moved")
		}
	}
	before := time.Now()
	taken := slices.Clone(ranges)
	taken[1].node = "10.0.0.3:6379"
	table.learn(time.Now(), taken, &broke)
	if broke.Last().Before(before) {
		t.Error("no break, though a node has taken over")
	}
	if node := table.node(nil, &broke, 9000); node != "10.0.0.3:6379" {
		t.Error("the slot is on", node)
	}
}
