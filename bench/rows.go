package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/redlatch/redlatch/bench/internal/work"
)

// A row is one kind of work, measured for each of its contenders.
type row struct {
	name       string
	title      string
	contenders []string      // by name, in the order of the table
	systems    bool          // the systems take part as well, where they are asked for
	processes  int           // 0: 1
	servers    int           // independent ones; 0: 1
	far        time.Duration // how much longer each way to a server takes
	goroutines []int         // of each process, where they differ
	windows    int           // how many times the usual time is counted; 0: 1
	spec       spec          // what each process does; the runner fills in who and where
	columns    []metric
	// main is the figure that ratios and goals are about, and against names the bound that it is compared with besides
	// the best peer ("" for none).
	main    metric
	against string
	goals   []goal
}

// lowerIsBetter says whether a small main figure is the good one.
func (r row) lowerIsBetter() bool { return r.main != throughput && r.main != utilisation }

var (
	uncontendedColumns = []metric{
		throughput, waitP50, waitP99, commands, serverExec, serverCPU, clientCPU, allocs, allocBytes, started,
	}
	contendedColumns = []metric{throughput, waitP50, waitP99, waitMax, jain, commands, serverCPU, clientCPU, started}
	processColumns   = []metric{throughput, waitP50, waitP99, waitMax, jain, leastShare, commands, serverCPU, clientCPU}
	handoverColumns  = []metric{waitP50, waitP99, passesSeen, commands, serverCPU}
	holdingColumns   = []metric{
		heapPerHold, stackPerHold, goroutines, renewalRate, perCommand, burst, clientShare, serverShare,
	}
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

// scale sets the sizes that take long to reach.
type scale struct {
	holds   int   // locks in the row of held locks
	queues  []int // lengths of the fair lock's queue
	readers []int // readers beside the one whose read unlock is measured
	crowds  []int // clients with connections of their own that want one lock
	topics  int   // locks that others of a client wait for when a new waiter comes
	owned   int   // locks that an owner has already when it takes the next
}

// fullScale is what issues and documents speak of.
func fullScale(holds int) scale {
	return scale{
		holds: holds, queues: []int{10, 1_000, 10_000}, readers: []int{1, 100, 1_000},
		crowds: []int{100, 1_000}, topics: 20_000, owned: 30_000,
	}
}

// rows lists everything that can be measured.
func rows(s scale) []row {
	all := append(uncontendedRows(), contendedRows()...)
	all = append(all, handoverRows()...)
	all = append(all, holdingRow(s), reentryRow())
	all = append(all, fairRows(s)...)
	all = append(all, readWriteRows(s)...)
	all = append(all, multiRows()...)
	return append(all, crowdedRows(s)...)
}

func uncontendedRows() []row {
	one := uncontended("uncontended/1", "Lock + Unlock, 1 goroutine", 1, 0.95)
	one.systems = true
	return []row{
		one,
		uncontended("uncontended/16", "Lock + Unlock, 16 goroutines with a key each", 16, 0.9),
		uncontended("uncontended/256", "Lock + Unlock, 256 goroutines with a key each", 256, 1),
		otherCtx("ctx-kept/1", "Lock + Unlock with one ctx for all pairs, which can be cancelled, 1 goroutine", 1, work.CtxKept),
		otherCtx("ctx-none/1", "Lock + Unlock with a ctx that can't be cancelled, 1 goroutine", 1, work.CtxNone),
		otherCtx("ctx-none/256", "The same, 256 goroutines with a key each", 256, work.CtxNone),
	}
}

func uncontended(name, title string, goroutines int, ofLimit float64) row {
	goals := []goal{
		{metric: throughput, atLeast: true, factor: ofLimit, of: "limit"},
		{metric: throughput, atLeast: true, factor: 1.15, of: "rueidislock"},
		{metric: throughput, atLeast: true, factor: 1, of: "redsync-rueidis"},
		{metric: allocs, factor: 8},
		{metric: allocBytes, factor: 1024},
		{metric: started, factor: 0.01, why: "no goroutine per hold, wait or command"},
	}
	if goroutines == 256 {
		goals = append(goals, goal{metric: serverCPU, factor: 1.3, of: "limit"})
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

// otherCtx is what the same costs those who have no ctx of their own for each pair.
func otherCtx(name, title string, goroutines int, ctx work.Ctx) row {
	return row{
		name:       name,
		title:      title,
		contenders: besideLibraries("limit", "redlatch"),
		spec:       spec{Workload: pairs, OwnKeys: true, Goroutines: goroutines, Ctx: ctx},
		columns:    uncontendedColumns,
		main:       throughput,
		against:    "limit",
	}
}

func holdingRow(s scale) row {
	return row{
		name:       "holding",
		title:      "Locks held by the watchdog for two thirds of the lease",
		contenders: []string{"redlatch", "rueidislock"}, // the other libraries have no watchdog
		spec:       spec{Workload: holding, Holds: s.holds},
		columns:    holdingColumns,
		main:       heapPerHold,
		goals: goalsOf("redlatch",
			goal{metric: heapPerHold, factor: 1024},
			goal{metric: goroutines, factor: 16, why: "whatever the number of holds"},
			goal{metric: perCommand, atLeast: true, factor: 100},
			goal{metric: burst, factor: 2},
			goal{metric: clientShare, factor: 2}),
	}
}

func reentryRow() row {
	return row{
		name:       "reentry",
		title:      "Lock + Unlock, 1 goroutine: again by an owner that holds the lock, and from outside",
		contenders: []string{"redlatch-reentry", "redlatch"},
		spec:       spec{Workload: pairs, OwnKeys: true, Goroutines: 1},
		columns:    uncontendedColumns,
		main:       throughput,
		against:    "redlatch",
	}
}

// fileName makes a row's name fit for a part of a file name.
func fileName(name string) string {
	return strings.NewReplacer("/", "-", " ", "").Replace(name)
}

// where words the number of processes.
func where(processes int) string {
	if processes == 1 {
		return "one process"
	}
	return fmt.Sprintf("%d processes", processes)
}

// longLease is the lease where renewals would disturb what is measured.
const longLease = 10 * time.Minute
