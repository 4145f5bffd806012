package main

import "fmt"

// crowdedRows measure what must not grow with the number of others: of clients that want the lock, of other locks that
// a client waits for, of other locks that an owner holds.
func crowdedRows(s scale) []row {
	out := make([]row, 0, len(s.crowds)+4)
	for _, n := range s.crowds {
		out = append(out, crowd(n))
	}
	for _, n := range []int{0, s.topics} {
		r := row{
			name:       fmt.Sprintf("topics/%d", n),
			title:      fmt.Sprintf("Until a new waiter listens, and until it is woken, in a client of which %d wait for other locks", n),
			contenders: []string{"redlatch"},
			// The locks that the others wait for are held for longer than the row takes: their renewals belong to other rows.
			spec:    spec{Workload: topics, Holds: n, Lease: longLease},
			windows: 3,
			columns: []metric{waitP50, waitP99, wakeP50, wakeP99, passesSeen},
			main:    waitP50,
		}
		if n > 0 {
			r.goals = goalsOf("redlatch",
				goal{metric: waitP50, factor: 2, of: "redlatch", ofRow: "topics/0"},
				goal{metric: wakeP50, factor: 2, of: "redlatch", ofRow: "topics/0"})
		}
		out = append(out, r)
	}
	for _, n := range []int{0, s.owned} {
		r := row{
			name:       fmt.Sprintf("owner/%d", n),
			title:      fmt.Sprintf("Lock + Unlock by an owner that holds %d other locks, 1 goroutine", n),
			contenders: []string{"redlatch-owner"},
			spec:       spec{Workload: pairs, OwnKeys: true, Goroutines: 1, Holds: n, Lease: longLease},
			columns:    append([]metric{pairP50}, uncontendedColumns...),
			main:       pairP50,
		}
		if n > 0 {
			r.goals = goalsOf("redlatch-owner",
				goal{metric: pairP50, factor: 2, of: "redlatch-owner", ofRow: "owner/0"},
				goal{metric: clientCPU, factor: 2, of: "redlatch-owner", ofRow: "owner/0"})
		}
		out = append(out, r)
	}
	return out
}

// crowdProcesses share the clients of a crowd.
const crowdProcesses = 4

// crowd is one waiter in each of n clients. Several turns of each must fit into the window, or the longest wait says
// nothing.
func crowd(n int) row {
	goals := append(
		goalsOf("redlatch-fair",
			goal{metric: commands, factor: 2.1, why: "two, and what waiters send to be seen alive"},
			goal{metric: messages, factor: 1.1}),
		goalsOf("redlatch",
			goal{metric: attempts, factor: 3},
			goal{metric: maxToMean, factor: 3})...)
	return row{
		name:       fmt.Sprintf("crowd/%d", n),
		title:      fmt.Sprintf("%d clients with connections of their own on one key, in %s", n, where(crowdProcesses)),
		contenders: []string{"redlatch", "redlatch-fair", "floor"},
		processes:  crowdProcesses,
		windows:    10,
		spec:       spec{Workload: pairs, OwnClients: true, Goroutines: n / crowdProcesses, CountMessages: true},
		columns: []metric{
			throughput, waitP50, waitP99, waitMax, maxToMean, jain, commands, attempts, messages, serverCPU, clientCPU,
		},
		main:    throughput,
		against: "floor",
		goals:   goals,
	}
}
