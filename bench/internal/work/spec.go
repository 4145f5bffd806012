package work

import (
	"context"
	"time"
)

// A Contender is one way to lock, opened once in each process of a measurement. Locker and Close are called from one
// goroutine; the lockers it hands out are used by one goroutine each, many at a time.
type Contender interface {
	// Locker returns what one goroutine uses to lock key, in the way that the library's users would: a shared lock
	// object where the library allows it, one object per goroutine where it does not.
	Locker(key string) Locker
	Close()
}

// A ReadWriter has a shared mode besides the exclusive one that Locker gives.
type ReadWriter interface {
	ReadLocker(key string) Locker
}

// A Locker waits in Lock until it holds its key or ctx ends.
type Locker interface {
	Lock(ctx context.Context) (Hold, error)
}

// A Hold is what a locker has acquired.
type Hold interface {
	Unlock(ctx context.Context) error
}

// Env is what a contender is opened with.
type Env struct {
	Addrs []string
	Lease time.Duration
	// Waiters is how many goroutines of all processes compete for one key.
	Waiters int
}

// Addr is the only address, or the first.
func (e Env) Addr() string { return e.Addrs[0] }

// An Open opens a contender by its name.
type Open func(contender string, e Env) (Contender, error)

// PollEvery is the interval of contenders that poll where few wait: short, so that a free lock is soon found. A holder
// of the workload [Handover] stays inside for longer than that, at random.
const PollEvery = 10 * time.Millisecond

// A Workload is what the processes of a measurement do.
type Workload string

const (
	// Pairs lets goroutines lock and unlock as fast as they can.
	Pairs Workload = "pairs"
	// Handover lets two processes pass one lock to and fro, each waiting until the other one stands in line.
	Handover Workload = "handover"
	// Holding lets a process acquire many locks and hold them.
	Holding Workload = "holding"
)

// A Spec tells one process what to do.
type Spec struct {
	Contender string
	Addrs     []string
	Lease     time.Duration
	Workload  Workload

	Key          string
	OwnKeys      bool // pairs: each goroutine has a key of its own instead of sharing Key
	OwnClients   bool // pairs: each goroutine has a contender of its own, with connections of its own
	Goroutines   int
	Waiters      int           // how many goroutines of all processes compete for one key
	WarmUp       time.Duration // pairs with a shared key: how long the goroutines run before the process is ready
	Section      time.Duration // how long each holder sleeps inside
	ReadPerMille int           // of 1,000 acquisitions; who is no [ReadWriter] locks exclusively instead
	Queue        int           // how many must stand in the server's queue of Key before the process is ready
	Holds        int           // holding: how many locks

	Process int    // 0, 1 … within the measurement
	Board   string // a file of [BoardSize] zeros, which the processes share; "": this process is alone
	Profile string // where to write a CPU profile; "": nowhere
}

// A Message is a line of a process's standard output: first ready, then the result; after an error only the result.
type Message struct {
	Ready  bool    `json:",omitempty"`
	Result *Result `json:",omitempty"`
}

// Result is what a process has counted between "go" and "stop". Programs in other languages leave out what they can't
// tell.
type Result struct {
	Err      string
	Elapsed  time.Duration
	Counts   []uint64 // acquisitions by goroutine
	Waits    Sparse   // time in Lock; waits that "stop" cut short count with the time they had lasted
	Pairs    Sparse   // time from Lock to the end of Unlock: pairs with keys of their own
	Mallocs  uint64
	Bytes    uint64
	CPU      time.Duration // of the process
	Passes   []Pass        // handover
	Heap     int64         // holding: bytes on the heap for all holds, after a collection
	Stack    int64         // holding: bytes of goroutine stacks for all holds
	Routines int           // holding: goroutines, less those before the first acquisition
}

// A Pass is one half of a hand-over: the giver says when it began to unlock, the taker when Lock had returned. Number
// pairs them up. Both read the machine's wall clock, which processes share.
type Pass struct {
	Number int64
	Gave   bool
	UnixNs int64
}
