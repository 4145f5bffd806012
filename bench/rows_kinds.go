package main

import "fmt"

// fairRows measure what a turn costs with queues of several lengths.
func fairRows(s scale) []row {
	var out []row
	for i, n := range s.queues {
		r := row{
			name:       fmt.Sprintf("fair-queue/%d", n),
			title:      fmt.Sprintf("%d goroutines of one process in the queue of one fair lock", n),
			contenders: []string{"redlatch-fair"},
			// A turn of each must fit into the window, or what is counted is how they came in.
			windows: max(1, n/1000),
			// The one inside and those on the way back into the queue are not in it.
			spec:    spec{Workload: pairs, Goroutines: n, Queue: (n - 1) * 8 / 10},
			columns: []metric{throughput, waitP50, waitP99, jain, commands, serverCPU, clientCPU},
			main:    serverCPU,
		}
		if i > 0 {
			r.goals = goalsOf("redlatch-fair", goal{
				metric: serverCPU, factor: 2, of: "redlatch-fair", ofRow: fmt.Sprintf("fair-queue/%d", s.queues[0]),
			})
		}
		out = append(out, r)
	}
	return out
}

// readWriteRows measure mixes of readers and writers, and what a read lock costs beside many others.
func readWriteRows(s scale) []row {
	var out []row
	for _, mix := range []struct {
		name, title string
		perMille    int
		ofOwnKeys   float64 // 0: no goal
	}{
		{"read-mostly", "95 of 100 acquisitions read", 950, 1},
		{"read-nearly-all", "999 of 1,000 acquisitions read", 999, 10},
		{"write-heavy", "half of the acquisitions read", 500, 0},
	} {
		for _, processes := range []int{1, 8} {
			r := row{
				name:       fmt.Sprintf("%s/%d", mix.name, processes),
				title:      fmt.Sprintf("64 goroutines in %s on one lock, %s", where(processes), mix.title),
				contenders: []string{"redlatch-rw", "redlatch-rw-shared", "redlatch", "redlatch-own-keys"},
				processes:  processes,
				spec:       spec{Workload: pairs, Goroutines: 64 / processes, ReadPerMille: mix.perMille},
				columns:    []metric{throughput, waitP50, waitP99, waitMax, jain, commands, serverCPU, clientCPU},
				main:       throughput,
				against:    "redlatch-own-keys",
			}
			if mix.ofOwnKeys > 0 {
				r.goals = goalsOf("redlatch-rw-shared",
					goal{metric: throughput, atLeast: true, factor: mix.ofOwnKeys, of: "redlatch-own-keys"})
			}
			out = append(out, r)
		}
	}
	for i, n := range s.readers {
		r := row{
			name:       fmt.Sprintf("read-unlock/%d", n),
			title:      fmt.Sprintf("Lock + Unlock of one reader beside %d that keep the read lock", n),
			contenders: []string{"redlatch-rw"},
			spec:       spec{Workload: pairs, Goroutines: 1, ReadPerMille: 1000, Background: n},
			columns:    uncontendedColumns,
			main:       serverCPU,
		}
		if i > 0 {
			r.goals = goalsOf("redlatch-rw", goal{
				metric: serverCPU, factor: 1.5, of: "redlatch-rw", ofRow: fmt.Sprintf("read-unlock/%d", s.readers[0]),
			})
		}
		out = append(out, r)
	}
	return out
}

// multiRows measure several locks taken as one. A pair is what users wait for: Lock and Unlock.
func multiRows() []row {
	columns := append([]metric{pairP50}, uncontendedColumns...)
	return []row{
		{
			name:       "multi/one-node",
			title:      "Five keys of one node, 1 goroutine",
			contenders: []string{"redlatch-multi", "redlatch-5-locks", "redlatch"},
			spec:       spec{Workload: pairs, OwnKeys: true, Goroutines: 1},
			columns:    columns,
			main:       pairP50,
			against:    "redlatch",
			goals: goalsOf("redlatch-multi",
				goal{metric: pairP50, factor: 1.15, of: "redlatch"},
				goal{metric: waitP50, factor: 1.15, of: "redlatch"},
				goal{metric: commands, factor: 1.15, of: "redlatch"}),
		},
		{
			name:  "multi/five-masters",
			title: "Five independent masters, 1 goroutine; redlatch and limit use the first alone",
			contenders: []string{
				"redlatch-multi", "redlatch-quorum", "redlatch-slowest", "redsync", "redsync-rueidis", "redlatch", "limit",
			},
			servers: 5,
			spec:    spec{Workload: pairs, OwnKeys: true, Goroutines: 1},
			columns: columns,
			main:    waitP50,
			against: "redlatch-slowest",
			goals: append(
				goalsOf("redlatch-multi", goal{metric: waitP50, factor: 1.5, of: "redlatch-slowest"}),
				goalsOf("redlatch-quorum",
					goal{metric: waitP50, factor: 1.2, of: "redsync-rueidis"},
					goal{metric: pairP50, factor: 1.2, of: "redsync-rueidis"})...),
		},
	}
}
