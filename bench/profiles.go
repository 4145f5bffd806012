package main

import (
	"flag"
	"fmt"
	"slices"

	"github.com/redlatch/redlatch/bench/internal/work"
)

// profiles are prefixes of the files that each process writes about its work; "" is none.
type profiles struct{ cpu, allocs, trace string }

func (p *profiles) flags(to *flag.FlagSet) {
	to.StringVar(&p.cpu, "cpuprofile", "", "write a CPU profile of each process to files whose names begin with this `prefix`")
	to.StringVar(&p.allocs, "memprofile", "", "the same with a profile of every allocation; the other figures are slow then")
	to.StringVar(&p.trace, "trace", "", "the same with an execution trace (go tool trace)")
}

// of are the files of one process of a measurement.
func (p profiles) of(measurement string, process int) work.Profiles {
	file := func(prefix, suffix string) string {
		if prefix == "" {
			return ""
		}
		name := prefix + "-" + measurement + suffix
		if process > 0 {
			name += fmt.Sprintf(".%d", process)
		}
		return name
	}
	return work.Profiles{CPU: file(p.cpu, ".pprof"), Allocs: file(p.allocs, ".pprof"), Trace: file(p.trace, ".trace")}
}

// What -turns adds to the rows in which processes compete for one lock.
const (
	stintsSeen   metric = "stints"         // what a process has of the lock before another one has it
	stintP50     metric = "stint p50 µs"   // how long it lasts
	stintsMissed metric = "stints missed"  // the most that others had between two of one process
	idleWithin   metric = "idle within %"  // nobody inside, between two turns of one process
	idleBetween  metric = "idle between %" // between turns of two
	changeP50    metric = "change p50 µs"  // from Unlock in one process to the return of Lock in another
	changeP99    metric = "change p99 µs"  //
	changeMax    metric = "change max µs"  //
)

// withTurns is the row in which each turn is noted, if processes compete for one lock there.
func withTurns(r row) row {
	if r.spec.Workload != pairs || r.spec.OwnKeys || r.processes < 2 {
		return r
	}
	r.spec.Turns = true
	r.columns = append(slices.Clone(r.columns), stintsSeen, stintP50, stintsMissed, idleWithin, idleBetween, changeP50, changeP99, changeMax)
	return r
}

// stintFigures are those of -turns.
func stintFigures(results []result, to figures) {
	s := work.StintsOf(results)
	to[stintsSeen], to[stintsMissed] = float64(s.Number), float64(s.Missed)
	to[idleWithin], to[idleBetween] = 100*s.Within, 100*s.Between
	if s.Lengths.Total() > 0 {
		to[stintP50] = micros(s.Lengths.Quantile(0.5))
		to[changeP50], to[changeP99] = micros(s.Changes.Quantile(0.5)), micros(s.Changes.Quantile(0.99))
		to[changeMax] = micros(s.Changes.Max())
	}
}
