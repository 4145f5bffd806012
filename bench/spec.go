package main

import "time"

// workload is what the processes of a measurement do.
type workload string

const (
	// pairs: goroutines lock and unlock as fast as they can.
	pairs workload = "pairs"
	// handover: two processes pass one lock to and fro, each waiting until the other one stands in line.
	handover workload = "handover"
	// holding: a process acquires many locks and holds them.
	holding workload = "holding"
)

// A spec tells one process what to do. It is the first line of the process's standard input; then come the lines "go",
// at which it begins to count, and "stop", at which it ends and prints its result. The process prints a line when it is
// ready, in between. It ends when its input ends.
type spec struct {
	Contender string
	Addrs     []string
	Lease     time.Duration
	Workload  workload

	Key        string
	OwnKeys    bool // pairs: each goroutine has a key of its own instead of sharing Key
	Goroutines int
	Waiters    int           // how many goroutines of all processes compete for one key
	WarmUp     time.Duration // pairs with a shared key: how long the goroutines run before the process is ready
	// ReadPercent is how many of 100 acquisitions use the shared mode. A contender that
	// is no readWriter locks exclusively instead, as its users would have to.
	ReadPercent int
	// Background is how many holds in shared mode are kept on Key throughout, by a readWriter.
	Background int
	// Queue is how many owners must stand in the server's queue of Key before the process is ready; 0: any number.
	Queue int

	Holds int // holding: how many locks

	Process int // 0, 1 … within the measurement
	Peer    string
	Profile string // file for a CPU profile of the counted time; "" for none
}

// A message is a line of a process's standard output: first ready, then the result; after an error only the result.
type message struct {
	Ready  *ready  `json:",omitempty"`
	Result *result `json:",omitempty"`
}

// ready is what a process says when it could begin to count.
type ready struct {
	Peer string // handover: where the first process listens for the second
}

// result is what a process has counted between "go" and "stop".
type result struct {
	Err      string
	Elapsed  time.Duration
	Counts   []uint64 // acquisitions by goroutine
	Waits    []uint32 // time in Lock, a sparse histogram; waits that "stop" cut short count with the time they had lasted
	Mallocs  uint64
	Bytes    uint64
	CPU      time.Duration // of the process
	Passes   []pass        // handover
	Heap     int64         // holding: bytes on the heap for all holds, after a collection
	Stack    int64         // holding: bytes of goroutine stacks for all holds
	Routines int           // holding: goroutines, less those before the first acquisition
}

// A pass is one half of a hand-over: the giver says when it began to unlock, the taker when Lock had returned. Number
// pairs them up. Both read the machine's wall clock, which processes share.
type pass struct {
	Number int
	Gave   bool
	UnixNs int64
}
