package main

import (
	"fmt"
	"time"

	"github.com/redlatch/redlatch/bench/internal/work"
)

// A row is one kind of work, measured for each of its contenders.
type row struct {
	name, title string
	contenders  []string // by name
	systems     bool     // the systems take part as well, where they are asked for
	processes   int      // 0: 1
	servers     int      // independent ones; 0: 1
	windows     int      // how many times the usual time is counted; 0: 1
	spec        spec     // what each process does; the runner fills in who and where
}

// libraries are the peers of the plain lock.
var libraries = []string{"rueidislock", "redsync", "redsync-rueidis", "redislock"}

// besideLibraries puts the peers between redlatch's kinds and the bound.
func besideLibraries(bound string, kinds ...string) []string {
	return append(append(kinds, libraries...), bound)
}

// scale sets the sizes that take long to reach.
type scale struct {
	holds int // locks in the row of held locks
	queue int // owners in the fair lock's queue
	crowd int // clients with connections of their own that want one lock
}

var fullScale = scale{holds: 100_000, queue: 1_000, crowd: 1_000}

// rows lists everything that can be measured. The comments say what redlatch is to reach.
func rows(s scale) []row {
	return []row{
		// Two commands, ≤ 16 allocations and ≤ 2 KB: ≥ 0.95 × limit, ≥ 0.9 × limit with 16 goroutines, ≥ limit with 256,
		// where the server's time is ≤ 1.3 × limit's.
		uncontended(1), uncontended(16), uncontended(256),
		// Passed on inside the process: ≥ 20 × the best library, Jain ≥ 0.99, p99 not above the best library's.
		contended(8), contended(64), contended(512),
		// ≥ 3 × the best library, its longest wait not above theirs; FairLock ≥ 0.95 × floor, Jain ≥ 0.999.
		{
			name: "processes/8x4", title: "8 processes with 4 goroutines each on one key", systems: true,
			contenders: besideLibraries("floor", "redlatch", "redlatch-fair"), processes: 8,
			windows: 3, // the longest wait of a second says little
			spec:    spec{Workload: work.Pairs, Goroutines: 4},
		},
		// Many processes with one waiter each, as the replicas of a service are: ≥ 0.65 × redsync's acquisitions
		// (0.85 with 1 ms inside), ≤ 3.2 commands, longest wait ≤ 1/15 of redsync's, Jain ≥ 0.98; p99 ≤ 60 ms with 50.
		replicas(8, 0), replicas(50, 0), replicas(100, 0), replicas(50, time.Millisecond),
		// The same of several locks taken as one: what their units allow.
		{
			name: "replicas/50x1/one-node", title: "50 processes with a goroutine each on five keys of one node",
			contenders: []string{"redlatch-multi", "redlatch"}, processes: 50, windows: 5,
			spec: spec{Workload: work.Pairs, Goroutines: 1},
		},
		{
			name: "replicas/8x1/five-masters", title: "8 processes with a goroutine each on one key of five independent masters",
			contenders: []string{"redlatch-multi", "redlatch-quorum", "redsync", "redsync-rueidis"}, processes: 8, servers: 5, windows: 5,
			spec: spec{Workload: work.Pairs, Goroutines: 1},
		},
		// Median and p99 ≤ 1.6 × floor; FairLock ≤ 1.15 × floor.
		{
			name: "handover", title: "From Unlock in one process to the return of Lock in another", systems: true,
			contenders: besideLibraries("floor", "redlatch", "redlatch-fair"), processes: 2,
			windows: 3, // one hand-over at a time takes more of it for a tail that means something
			spec:    spec{Workload: work.Handover},
		},
		// ≤ 1 KB on the heap for a hold, ≤ 16 goroutines for all, ≥ 100 renewals a command, ≤ 0.02 of a core. The other
		// libraries have no watchdog.
		{
			name: "holding", title: fmt.Sprintf("%d locks held by the watchdog for two thirds of the lease", s.holds),
			contenders: []string{"redlatch", "rueidislock"}, spec: spec{Workload: work.Holding, Holds: s.holds},
		},
		{
			name: "reentry", title: "Lock + Unlock, 1 goroutine: again by an owner that holds the lock, and from outside",
			contenders: []string{"redlatch-reentry", "redlatch"}, spec: spec{Workload: work.Pairs, OwnKeys: true, Goroutines: 1},
		},
		// A turn costs the server ≤ 2 × what it costs in contended/8.
		{
			name: "fair-queue/1000", title: fmt.Sprintf("%d goroutines of one process in the queue of one fair lock", s.queue),
			contenders: []string{"redlatch-fair"},
			// The one inside and those on the way back into the queue are not in it.
			spec: spec{Workload: work.Pairs, Goroutines: s.queue, Queue: (s.queue - 1) * 8 / 10},
		},
		readWrite("read-mostly/8", "95 of 100 acquisitions read", 950),
		readWrite("write-heavy/8", "half of the acquisitions read", 500),
		// Several locks taken as one: within 1.15 × a single lock on one node. On five masters a MultiLock waits
		// ≤ 1.5 × as long as redlatch on one of them, a QuorumLock ≤ 1.2 × as long as redsync-rueidis.
		{
			name: "multi/one-node", title: "Five keys of one node, 1 goroutine",
			contenders: []string{"redlatch-multi", "redlatch"},
			spec:       spec{Workload: work.Pairs, OwnKeys: true, Goroutines: 1},
		},
		{
			name: "multi/five-masters", title: "Five independent masters, 1 goroutine; redlatch and limit use the first alone",
			contenders: []string{"redlatch-multi", "redlatch-quorum", "redsync", "redsync-rueidis", "redlatch", "limit"},
			servers:    5, spec: spec{Workload: work.Pairs, OwnKeys: true, Goroutines: 1},
		},
		// ≤ 7 commands a turn, FairLock ≤ 2.1. Several turns of each must fit into the window, or the longest wait says
		// nothing.
		{
			name: "crowd/1000", title: fmt.Sprintf("%d clients with connections of their own on one key, in 4 processes", s.crowd),
			contenders: []string{"redlatch", "redlatch-fair", "floor"}, processes: 4, windows: 10,
			spec: spec{Workload: work.Pairs, OwnClients: true, Goroutines: s.crowd / 4},
		},
	}
}

func uncontended(goroutines int) row {
	return row{
		name:       fmt.Sprintf("uncontended/%d", goroutines),
		title:      fmt.Sprintf("Lock + Unlock, %d goroutine(s) with a key each", goroutines),
		contenders: besideLibraries("limit", "redlatch"), systems: goroutines == 1,
		spec: spec{Workload: work.Pairs, OwnKeys: true, Goroutines: goroutines},
	}
}

func contended(goroutines int) row {
	return row{
		name:       fmt.Sprintf("contended/%d", goroutines),
		title:      fmt.Sprintf("%d goroutines of one process on one key", goroutines),
		contenders: besideLibraries("floor", "redlatch", "redlatch-fair"), systems: goroutines == 64,
		spec: spec{Workload: work.Pairs, Goroutines: goroutines},
	}
}

func replicas(n int, inside time.Duration) row {
	r := row{
		name: fmt.Sprintf("replicas/%dx1", n), title: fmt.Sprintf("%d processes with a goroutine each on one key", n),
		contenders: besideLibraries("floor", "redlatch", "redlatch-fenced", "redlatch-rw", "redlatch-fair"),
		processes:  n, windows: 5,
		spec: spec{Workload: work.Pairs, Goroutines: 1, Section: inside},
	}
	if inside > 0 {
		r.name += fmt.Sprintf("/%v", inside)
		r.title += fmt.Sprintf(", with a critical section of %v", inside)
	}
	return r
}

func readWrite(name, mix string, perMille int) row {
	return row{
		name: name, title: "64 goroutines in 8 processes on one lock, " + mix,
		contenders: []string{"redlatch-rw", "redlatch-rw-shared", "redlatch"}, processes: 8,
		spec: spec{Workload: work.Pairs, Goroutines: 8, ReadPerMille: perMille},
	}
}

// specs are what each process of the row is told, made of what is the same for all.
func (r row) specs(s spec) []spec {
	out := make([]spec, max(r.processes, 1))
	if !s.OwnKeys {
		s.Waiters = s.Goroutines * len(out)
	}
	for i := range out {
		out[i] = s
		out[i].Process = i
	}
	return out
}
