package main

import (
	"fmt"
	"time"
)

// section is what a holder does in the rows with a critical section.
const section = time.Millisecond

const (
	// tenure is the default of redlatch.Config.Tenure, for how long a process passes a lock on inside. (Builds of other
	// versions, for -against, have no such name.)
	tenure = 6 * time.Millisecond
	// pause is how long a process leaves the lock alone, at most, after that: docs/DESIGN.md, "Passing on".
	pause = 4 * time.Millisecond
)

// loneBound is how long a waiter of another process waits at most for a process that passes the lock on among its own,
// as docs/SAFETY.md has it: the time that a process may keep it, the section under way at its end, and the pause within
// which the waiter takes it.
func loneBound(inside time.Duration) time.Duration { return tenure + inside + pause }

func contendedRows() []row {
	out := []row{
		contended("contended/8", "8 goroutines of one process on one key", 8),
		contended("contended/64", "64 goroutines of one process on one key", 64),
		contended("contended/512", "512 goroutines of one process on one key", 512),
	}
	out[1].systems = true

	processes := competing("processes/8x4", "8 processes with 4 goroutines each on one key", 0)
	processes.systems = true
	processes.goals = append(
		goalsOf("redlatch",
			goal{metric: throughput, atLeast: true, factor: 3, of: bestPeer},
			goal{metric: leastShare, atLeast: true, factor: 0.5},
			goal{metric: waitMax, factor: 1, of: bestPeer}),
		goalsOf("redlatch-fair",
			goal{metric: throughput, atLeast: true, factor: 0.95, of: "floor"},
			goal{metric: jain, atLeast: true, factor: 0.999})...)

	inside := competing("processes/8x4/1ms", "The same with a critical section of 1 ms", section)
	inside.main = utilisation
	inside.columns = append([]metric{utilisation}, processColumns...)
	inside.goals = goalsOf("redlatch",
		goal{metric: utilisation, atLeast: true, factor: 0.97},
		goal{metric: leastShare, atLeast: true, factor: 0.5})

	busy := competing("processes/8x4/2cmds", "The same with two commands to the server inside", 0)
	busy.spec.InsideCommands = 2

	out = append(out, processes, inside, busy)
	return append(append(out, replicas()...),
		lone("lone/63+1", "A process of 63 goroutines and one of 1 on one key: how long the lone one waits", 0),
		lone("lone/63+1/1ms", "The same with a critical section of 1 ms", section))
}

// replicas are rows of many processes with one waiter each, as the replicas of a service are.
func replicas() []row {
	var out []row
	for _, n := range []int{8, 50, 100} {
		out = append(out, replica(fmt.Sprintf("replicas/%dx1", n), fmt.Sprintf("%d processes with a goroutine each on one key", n), n,
			"redlatch", "redlatch-fenced", "redlatch-rw", "redlatch-fair"))
	}
	inside := replica("replicas/50x1/1ms", "50 processes with a goroutine each and a critical section of 1 ms", 50,
		"redlatch", "redlatch-fenced", "redlatch-rw", "redlatch-fair")
	inside.spec.Section = section
	busy := replica("replicas/50x1/2cmds", "The same with two commands to the server inside", 50, "redlatch", "redlatch-fair")
	busy.spec.InsideCommands = 2
	return append(out, inside, busy)
}

func replica(name, title string, n int, kinds ...string) row {
	r := row{
		name: name, title: title, contenders: besideLibraries("floor", kinds...), processes: n, windows: 5,
		spec: spec{Workload: pairs, Goroutines: 1}, columns: processColumns, main: throughput, against: "floor",
		goals: goalsOf("redlatch",
			goal{metric: throughput, atLeast: true, factor: 0.65, of: "redsync"},
			goal{metric: waitMax, factor: 1.0 / 15, of: "redsync"},
			goal{metric: commands, factor: 3.2},
			goal{metric: jain, atLeast: true, factor: 0.98}),
	}
	return r
}

func contended(name, title string, goroutines int) row {
	return row{
		name:       name,
		title:      title,
		contenders: besideLibraries("floor", "redlatch", "redlatch-fair"),
		spec:       spec{Workload: pairs, Goroutines: goroutines},
		columns:    contendedColumns,
		main:       throughput,
		against:    "floor",
		goals: goalsOf("redlatch",
			goal{metric: throughput, atLeast: true, factor: 20, of: bestPeer},
			goal{metric: jain, atLeast: true, factor: 0.99},
			goal{metric: waitP99, factor: 1, of: bestPeer},
			goal{metric: started, factor: 0.01, why: "no goroutine per hold, wait or command"}),
	}
}

// competing is a row of eight processes with four goroutines each.
func competing(name, title string, inside time.Duration) row {
	return row{
		name:       name,
		title:      title,
		contenders: besideLibraries("floor", "redlatch", "redlatch-fair"),
		processes:  8,
		windows:    3, // the longest wait of a second says little
		spec:       spec{Workload: pairs, Goroutines: 4, Section: inside},
		columns:    processColumns,
		main:       throughput,
		against:    "floor",
	}
}

func lone(name, title string, inside time.Duration) row {
	columns := []metric{loneMax, loneP50, loneP99, loneShare, throughput, waitP99, commands}
	goals := []goal{{metric: loneMax, factor: micros(loneBound(inside)), why: "Config.Tenure, a section and the pause after it"}}
	if inside > 0 {
		columns = append(columns, utilisation)
		goals = append(goals, goal{metric: utilisation, atLeast: true, factor: 0.97})
	}
	return row{
		name:       name,
		title:      title,
		contenders: besideLibraries("floor", "redlatch", "redlatch-fair"),
		processes:  2,
		goroutines: []int{63, 1},
		windows:    3,
		spec:       spec{Workload: pairs, Section: inside},
		columns:    columns,
		main:       loneMax,
		against:    "floor",
		goals:      goalsOf("redlatch", goals...),
	}
}

// far is how much longer each way takes in the row of a server far away.
const far = 2 * time.Millisecond

func handoverRows() []row {
	near := row{
		name:       "handover",
		title:      "From Unlock in one process to the return of Lock in another",
		contenders: besideLibraries("floor", "redlatch", "redlatch-fair"),
		systems:    true,
		processes:  2,
		windows:    3, // one hand-over at a time takes more of it for a tail that means something
		spec:       spec{Workload: handover},
		columns:    handoverColumns,
		main:       waitP50,
		against:    "floor",
		goals:      append(ofFloor("redlatch", 1.6), ofFloor("redlatch-fair", 1.15)...),
	}
	// What hand-over costs where the way to the server is what takes long, as it is between machines: a turn of two
	// commands is four ways, one of one command two.
	away := near
	away.name = "handover/far"
	away.title = fmt.Sprintf("The same with %v more on each way between process and server", far)
	away.systems = false
	away.far = far
	away.goals = append(ofFloor("redlatch", 2), ofFloor("redlatch-fair", 1.02)...)
	return []row{near, away}
}

// ofFloor bounds a hand-over's median and tail.
func ofFloor(contender string, factor float64) []goal {
	return goalsOf(contender,
		goal{metric: waitP50, factor: factor, of: "floor"},
		goal{metric: waitP99, factor: factor, of: "floor"})
}
