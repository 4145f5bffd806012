package work

import "time"

// A Workload is what the processes of a measurement do.
type Workload string

const (
	// Pairs lets goroutines lock and unlock as fast as they can.
	Pairs Workload = "pairs"
	// Handover lets two processes pass one lock to and fro, each waiting until the other one stands in line.
	Handover Workload = "handover"
	// Holding lets a process acquire many locks and hold them.
	Holding Workload = "holding"
	// Topics lets one waiter after the other subscribe and be woken, beside many that stand elsewhere.
	Topics Workload = "topics"
)

// A Ctx says what kind of ctx a worker locks and unlocks with.
type Ctx string

const (
	// CtxRequest gives each pair a ctx of its own that can be cancelled, as a request has. What it costs to make is
	// taken off the allocations.
	CtxRequest Ctx = ""
	// CtxKept is one that can be cancelled, for all pairs of a goroutine.
	CtxKept Ctx = "kept"
	// CtxNone is one that nobody can cancel.
	CtxNone Ctx = "none"
)

// A Spec tells one process what to do.
type Spec struct {
	Contender string
	Addrs     []string
	Lease     time.Duration
	Workload  Workload

	Key        string
	OwnKeys    bool // pairs: each goroutine has a key of its own instead of sharing Key
	OwnClients bool // pairs: each goroutine has a contender of its own, with connections of its own
	Goroutines int
	Waiters    int           // how many goroutines of all processes compete for one key
	WarmUp     time.Duration // pairs with a shared key: how long the goroutines run before the process is ready
	// Ctx is what the workers of pairs lock and unlock with.
	Ctx Ctx
	// Section is how long each holder sleeps inside.
	Section time.Duration
	// InsideCommands is how many commands each holder sends to the server, one after the other, before it sleeps.
	InsideCommands int
	// ReadPerMille is how many of 1,000 acquisitions use the shared mode. A contender that
	// is no [ReadWriter] locks exclusively instead, as its users would have to.
	ReadPerMille int
	// Background is how many holds in shared mode are kept on Key throughout, by a [ReadWriter].
	Background int
	// Queue is how many owners must stand in the server's queue of Key before the process is ready; 0: any number.
	Queue int
	// Holds is how many locks are held (holding), or by the owner of every further one (pairs), or how many waiters stand
	// elsewhere (topics).
	Holds int
	// CountMessages asks for the messages that the server sends to waiters.
	CountMessages bool

	// Turns asks for each turn of pairs that share a key.
	Turns bool

	Process  int // 0, 1 … within the measurement
	Peer     string
	Profiles Profiles
}

// A Message is a line of a process's standard output: first ready, then the result; after an error only the result.
type Message struct {
	Ready  *Ready  `json:",omitempty"`
	Result *Result `json:",omitempty"`
}

// Ready is what a process says when it could begin to count.
type Ready struct {
	Peer string // handover: where the first process listens for the second
}

// Result is what a process has counted between "go" and "stop".
type Result struct {
	Err     string
	Elapsed time.Duration
	Counts  []uint64 // acquisitions by goroutine
	Waits   Sparse   // time in Lock; waits that "stop" cut short count with the time they had lasted
	Pairs   Sparse   // time from Lock to the end of Unlock, less the section: pairs with keys of their own
	Inside  time.Duration
	Mallocs uint64
	Bytes   uint64
	// Started is how many goroutines were started; -1: unknown.
	Started  int64
	CPU      time.Duration // of the process
	System   time.Duration // of that, in the system
	Sleeps   int64         // how often a thread of it went to sleep
	Messages int64         // that the server sent to waiters; -1: not counted
	Passes   []Pass        // handover
	Turns    []Turn        // pairs, if asked for
	Wakes    Sparse        // topics: from Unlock to the return of the waiter's Lock
	Heap     int64         // holding: bytes on the heap for all holds, after a collection
	Stack    int64         // holding: bytes of goroutine stacks for all holds
	Routines int           // holding: goroutines, less those before the first acquisition
}

// A Pass is one half of a hand-over: the giver says when it began to unlock, the taker when Lock had returned. Number
// pairs them up. Both read the machine's wall clock, which processes share.
type Pass struct {
	Number int
	Gave   bool
	UnixNs int64
}
