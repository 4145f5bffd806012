package main

import (
	"fmt"
	"strings"
	"time"
)

// A row is one kind of work, measured for each of its contenders.
type row struct {
	name       string
	title      string
	contenders []string      // by name, in the order of the table
	processes  int           // 0: 1
	servers    int           // independent ones; 0: 1
	far        time.Duration // how much longer each way to a server takes
	spec       spec          // what each process does; the runner fills in who and where
	columns    []metric
	// main is the figure that ratios and goals are about, and against names the bound that it is compared with besides
	// the best peer ("" for none).
	main    metric
	against string
	goals   []goal
}

// lowerIsBetter says whether a small main figure is the good one.
func (r row) lowerIsBetter() bool { return r.main != throughput }

var (
	uncontendedColumns = []metric{throughput, waitP50, waitP99, commands, serverCPU, clientCPU, allocs, allocBytes}
	contendedColumns   = []metric{throughput, waitP50, waitP99, jain, commands, serverCPU, clientCPU}
	processColumns     = []metric{throughput, waitP50, waitP99, jain, leastShare, commands, serverCPU, clientCPU}
	handoverColumns    = []metric{waitP50, waitP99, passesSeen, commands, serverCPU}
	holdingColumns     = []metric{heapPerHold, stackPerHold, goroutines, renewalRate, perCommand, burst, clientShare, serverShare}
)

// libraries are the peers of the plain lock; in a row they come after redlatch and before the bounds.
var libraries = []string{"rueidislock", "redsync", "redsync-rueidis", "redislock"}

// besideLibraries puts the peers between redlatch's kinds and the bound.
func besideLibraries(bound string, kinds ...string) []string {
	return append(append(kinds, libraries...), bound)
}

// goalsOf makes goals of one contender.
func goalsOf(contender string, goals ...goal) []goal {
	for i := range goals {
		goals[i].contender = contender
	}
	return goals
}

func uncontended(name, title string, goroutines int) row {
	goals := []goal{
		{metric: allocs, factor: 10},
		{metric: allocBytes, factor: 1024},
		{metric: serverCPU, factor: 1.3, of: "limit"},
	}
	if goroutines == 1 {
		goals = append(goals, goal{metric: throughput, atLeast: true, factor: 0.95, of: "limit"})
	} else {
		goals = append(goals,
			goal{metric: throughput, atLeast: true, factor: 1.15, of: "rueidislock"},
			goal{metric: throughput, atLeast: true, factor: 0.85, of: "limit"})
	}
	return row{
		name:       name,
		title:      title,
		contenders: besideLibraries("limit", "redlatch"),
		spec:       spec{Workload: pairs, OwnKeys: true, Goroutines: goroutines},
		columns:    uncontendedColumns,
		main:       throughput,
		against:    "limit",
		goals:      goalsOf("redlatch", goals...),
	}
}

func contended(name, title string, processes, goroutines int) row {
	columns := contendedColumns
	goals := goalsOf("redlatch",
		goal{metric: throughput, atLeast: true, factor: 20, of: bestPeer},
		goal{metric: jain, atLeast: true, factor: 0.99},
		goal{metric: waitP99, factor: 1, of: bestPeer})
	if processes > 1 {
		columns = processColumns
		goals = goalsOf("redlatch",
			goal{metric: throughput, atLeast: true, factor: 3, of: bestPeer},
			goal{metric: leastShare, atLeast: true, factor: 0.5})
		goals = append(goals, goalsOf("redlatch-fair",
			goal{metric: throughput, atLeast: true, factor: 0.95, of: "floor"},
			goal{metric: jain, atLeast: true, factor: 0.999})...)
	}
	return row{
		name:       name,
		title:      title,
		contenders: besideLibraries("floor", "redlatch", "redlatch-fair"),
		processes:  processes,
		spec:       spec{Workload: pairs, Goroutines: goroutines},
		columns:    columns,
		main:       throughput,
		against:    "floor",
		goals:      goals,
	}
}

// scale sets the sizes that take long to reach.
type scale struct {
	holds   int   // locks in the row of held locks
	queues  []int // lengths of the fair lock's queue
	readers []int // readers beside the one whose read unlock is measured
}

// far is how much longer each way takes in the row of a server far away.
const far = 2 * time.Millisecond

// rows lists everything that can be measured.
func rows(s scale) []row {
	all := []row{
		uncontended("uncontended/1", "Lock + Unlock, 1 goroutine", 1),
		uncontended("uncontended/16", "Lock + Unlock, 16 goroutines with a key each", 16),
		uncontended("uncontended/256", "Lock + Unlock, 256 goroutines with a key each", 256),
		contended("contended/8", "8 goroutines of one process on one key", 1, 8),
		contended("contended/64", "64 goroutines of one process on one key", 1, 64),
		contended("contended/512", "512 goroutines of one process on one key", 1, 512),
		contended("processes/8x4", "8 processes with 4 goroutines each on one key", 8, 4),
		{
			name:       "handover",
			title:      "From Unlock in one process to the return of Lock in another",
			contenders: besideLibraries("floor", "redlatch", "redlatch-fair"),
			processes:  2,
			spec:       spec{Workload: handover},
			columns:    handoverColumns,
			main:       waitP50,
			against:    "floor",
			goals: append(
				goalsOf("redlatch",
					goal{metric: waitP50, factor: 1.6, of: "floor"},
					goal{metric: waitP99, factor: 1.6, of: "floor"}),
				goalsOf("redlatch-fair",
					goal{metric: waitP50, factor: 1.15, of: "floor"},
					goal{metric: waitP99, factor: 1.15, of: "floor"})...),
		},
		{
			// What hand-over costs where the way to the server is what takes long, as it is between machines: a turn of two
			// commands is four ways, one of one command two.
			name:       "handover/far",
			title:      fmt.Sprintf("The same with %v more on each way between process and server", far),
			contenders: []string{"redlatch", "redlatch-fair", "rueidislock", "floor"},
			processes:  2,
			far:        far,
			spec:       spec{Workload: handover},
			columns:    handoverColumns,
			main:       waitP50,
			against:    "floor",
			goals:      goalsOf("redlatch-fair", goal{metric: waitP50, factor: 0.55, of: "redlatch"}),
		},
		{
			name:       "holding",
			title:      "Locks held by the watchdog for two thirds of the lease",
			contenders: []string{"redlatch", "rueidislock"}, // the other libraries have no watchdog
			spec:       spec{Workload: holding, Holds: s.holds},
			columns:    holdingColumns,
			main:       heapPerHold,
			goals: goalsOf("redlatch",
				goal{metric: heapPerHold, factor: 1024},
				goal{metric: goroutines, factor: 16},
				goal{metric: perCommand, atLeast: true, factor: 100},
				goal{metric: burst, factor: 2},
				goal{metric: clientShare, factor: 2}),
		},
		{
			name:       "reentry",
			title:      "Lock + Unlock, 1 goroutine: again by an owner that holds the lock, and from outside",
			contenders: []string{"redlatch-reentry", "redlatch"},
			spec:       spec{Workload: pairs, OwnKeys: true, Goroutines: 1},
			columns:    uncontendedColumns,
			main:       throughput,
			against:    "redlatch",
		},
	}
	all = append(all, fairRows(s)...)
	all = append(all, readWriteRows(s)...)
	return append(all, multiRows()...)
}

// fileName makes a row's name fit for a part of a file name.
func fileName(name string) string {
	return strings.NewReplacer("/", "-", " ", "").Replace(name)
}
