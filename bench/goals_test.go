package main

import (
	"bytes"
	"errors"
	"strings"
	"testing"
)

func twinOutcome(main metric, ours, theirs []float64) outcome {
	o := outcome{
		row:     row{name: "twins", columns: []metric{main}, main: main},
		entries: []entry{{name: "redlatch"}, {name: "redlatch" + twinMark, twinOf: "redlatch"}},
		rounds:  map[string][]figures{},
	}
	for i := range ours {
		o.rounds["redlatch"] = append(o.rounds["redlatch"], figures{main: ours[i]})
		o.rounds["redlatch"+twinMark] = append(o.rounds["redlatch"+twinMark], figures{main: theirs[i]})
	}
	return o
}

// TestAnotherBuildIsComparedRoundByRound: what slows a whole round down strikes both, and must not tell them apart.
func TestAnotherBuildIsComparedRoundByRound(t *testing.T) {
	for _, c := range []struct {
		main         metric
		ours, theirs []float64
		want         verdict
		ratio        float64
	}{
		{throughput, []float64{200, 20, 2}, []float64{100, 10, 1}, reached, 2},
		{throughput, []float64{98, 9.8, 980}, []float64{100, 10, 1000}, reached, 0.98},
		{throughput, []float64{90, 9, 8, 2000}, []float64{100, 10, 10, 1000}, missed, 0.9},
		{throughput, []float64{90, 9, 2000}, []float64{100, 10, 1000}, unclear, 0.9},
		{waitP50, []float64{110, 11, 12, 10}, []float64{100, 10, 10, 1000}, missed, 1.1},
		{waitP50, []float64{110, 11, 10}, []float64{100, 10, 1000}, unclear, 1.1},
		{waitP50, []float64{90, 9, 2000}, []float64{100, 10, 1000}, reached, 0.9},
		{utilisation, []float64{0.5, 0.5}, []float64{0.9, 0.9}, missed, 0.5 / 0.9},
	} {
		lines := twinOutcome(c.main, c.ours, c.theirs).goalLines()
		if len(lines) != 1 || lines[0].Verdict != c.want || lines[0].Value != c.ratio {
			t.Errorf("%s: %v against %v: %+v", c.main, c.ours, c.theirs, lines)
		}
	}
	failed := twinOutcome(throughput, []float64{1}, []float64{1})
	delete(failed.rounds, "redlatch"+twinMark)
	if lines := failed.goalLines(); len(lines) != 1 || lines[0].Verdict != unproven {
		t.Errorf("the other build failed: %+v", lines)
	}
}

// TestTwinsAreNeighbours: redlatch's contenders run in both builds, one beside the other; nobody else's does.
func TestTwinsAreNeighbours(t *testing.T) {
	r := row{contenders: []string{"redlatch", "redsync", "limit"}}
	list, err := selection{against: &program{path: []string{"other"}}}.chosen(r)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range list {
		names = append(names, e.name)
	}
	if got := strings.Join(names, " "); got != "redlatch redlatch@against redsync limit" {
		t.Errorf("the contenders are %s", got)
	}
	if twin := list[1]; twin.known() != "redlatch" || twin.program == nil {
		t.Errorf("the twin runs as %q by %v", twin.known(), twin.program)
	}
}

// TestSystemsTakePartWhenAskedFor, and in the rows that are about them only.
func TestSystemsTakePartWhenAskedFor(t *testing.T) {
	for _, c := range []struct {
		take selection
		in   bool
		want string
	}{
		{selection{}, true, "redlatch redsync"},
		{selection{alone: true}, true, "redlatch"},
		{selection{systems: map[string]bool{"etcd": true}}, true, "redlatch redsync etcd"},
		{selection{systems: map[string]bool{"etcd": true}}, false, "redlatch redsync"},
	} {
		list, err := c.take.chosen(row{contenders: []string{"redlatch", "redsync"}, systems: c.in})
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, e := range list {
			names = append(names, e.name)
		}
		if got := strings.Join(names, " "); got != c.want {
			t.Errorf("%+v, row with systems %t: %s", c.take, c.in, got)
		}
	}
	var in []string
	for _, r := range rows(smallScale()) {
		if r.systems {
			in = append(in, r.name)
		}
	}
	if got := strings.Join(in, " "); got != "uncontended/1 contended/64 processes/8x4 handover" {
		t.Errorf("systems take part in %s", got)
	}
}

// TestPromisesStandBesideSystems: speed without what it costs would mislead.
func TestPromisesStandBesideSystems(t *testing.T) {
	o := exampleOutcome()
	var without, with bytes.Buffer
	o.write(&without, true)
	o.entries = append(o.entries, entry{name: "database", role: system, promise: "rows on disk"})
	o.failed = map[string]error{"database": errors.New("full")}
	o.write(&with, true)
	if strings.Contains(without.String(), promises) {
		t.Errorf("a column of promises without a system:\n%s", &without)
	}
	for _, want := range []string{"| promises |", "| rows on disk |", "failed: database: full"} {
		if !strings.Contains(with.String(), want) {
			t.Errorf("no %q in\n%s", want, &with)
		}
	}
	for _, e := range registry {
		if e.promise == "" {
			t.Errorf("%s promises nothing, not even that", e.name)
		}
	}
}

// TestSummaryCountsGoals: what was missed, and what could not be judged, stands once more at the end.
func TestSummaryCountsGoals(t *testing.T) {
	o := exampleOutcome()
	o.row.goals = append(o.row.goals,
		goal{contender: "ours", metric: throughput, factor: 1, of: "failing"},
		goal{contender: "ours", metric: throughput, factor: 1, of: "absent"})
	o.entries = append(o.entries, entry{name: "failing"})
	var out bytes.Buffer
	writeSummary(&out, []outcome{o}, false)
	for _, want := range []string{
		"Goals: 3 reached, 1 missed, 0 unclear, 1 not measured",
		"example: goal missed: ours: acq/s ≥ 0.95 × limit (0.80)",
		"example: goal not measured: ours: acq/s ≤ 1.00 × failing",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, &out)
		}
	}
	if strings.Contains(out.String(), "absent") {
		t.Errorf("a goal about what did not take part:\n%s", &out)
	}
}

// TestEveryProcessIsTold what it is and how many compete, also where the processes differ.
func TestEveryProcessIsTold(t *testing.T) {
	specs := row{processes: 2, goroutines: []int{63, 1}}.specs(spec{Background: 5})
	if len(specs) != 2 || specs[0].Goroutines != 63 || specs[1].Goroutines != 1 || specs[1].Process != 1 ||
		specs[0].Waiters != 64 || specs[1].Waiters != 64 || specs[0].Background != 5 || specs[1].Background != 0 {
		t.Errorf("%+v", specs)
	}
	specs = row{}.specs(spec{Goroutines: 256, OwnKeys: true})
	if len(specs) != 1 || specs[0].Waiters != 0 {
		t.Errorf("goroutines with keys of their own compete: %+v", specs)
	}
}

// TestTurns: each contender has one turn a round, and not always after the same neighbour.
func TestTurns(t *testing.T) {
	const n = 4
	after := map[[2]int]int{}
	for round := range 2 * n {
		seen := map[int]bool{}
		for i := range n {
			seen[turn(i, round, n)] = true
			if i > 0 {
				after[[2]int{turn(i-1, round, n), turn(i, round, n)}]++
			}
		}
		if len(seen) != n {
			t.Errorf("round %d: %v", round, seen)
		}
	}
	for i := range n {
		next := (i + 1) % n
		if forth, back := after[[2]int{i, next}], after[[2]int{next, i}]; forth == 0 || back == 0 {
			t.Errorf("%d comes after %d %d times, before it %d times", next, i, forth, back)
		}
	}
}
