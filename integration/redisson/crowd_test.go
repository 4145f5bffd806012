//go:build unix

package redisson

import (
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/redlatch/redlatch/internal/testbed"
)

// In a crowd of both sides, each waiter in a process of its own, nobody starves: the longest wait
// of each side is at most three times the other's.
func TestCrowdOfBothSides(t *testing.T) {
	needJava(t)
	const each, rounds, long = 4, 5, 2 * time.Second
	server := testbed.Standalone(t)
	options := Options{Addresses: []string{server.Addr()}}
	var sides [2][]*Driver // Java, Go
	for i := range each {
		sides[0] = append(sides[0], Start(t, Versions[i%len(Versions)], options))
		sides[1] = append(sides[1], startGo(t, options))
	}
	check := newRecordCheck()
	var ratios []float64
	for round := range rounds {
		var calls [2][]*Call
		for side, drivers := range sides {
			for i, d := range drivers {
				calls[side] = append(calls[side], d.GoLoop("crowd", Loop{
					Specs: []string{Spec("rlock", "crowd")}, Record: "record", Tag: strconv.Itoa(2*i + side),
					Hold: time.Millisecond, Wait: -1, Limit: long,
				}))
			}
		}
		var longest [2]time.Duration
		var turns [2]int
		for side := range sides {
			for _, c := range calls[side] {
				r := c.LoopResult(t)
				longest[side] = max(longest[side], r.Longest)
				turns[side] += r.Acquired
			}
		}
		check.read(t, server, "record")
		t.Logf("round %d: Java %d turns, longest wait %v; Go %d turns, longest wait %v", round, turns[0], longest[0], turns[1], longest[1])
		ratios = append(ratios, longest[0].Seconds()/longest[1].Seconds())
	}
	check.report(t)
	slices.Sort(ratios)
	median := ratios[rounds/2]
	t.Logf("Java's longest wait over Go's: %.2f", ratios)
	if median > 3 || median < 1.0/3 {
		t.Errorf("the longest wait of one side is %.2f times the other's", max(median, 1/median))
	}
}
