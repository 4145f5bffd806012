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

// A MessageCounter counts the pub/sub messages that the server has sent to it.
type MessageCounter interface {
	Messages() uint64
}

// A Locker waits in Lock until it holds its key or ctx ends.
type Locker interface {
	Lock(ctx context.Context) (Hold, error)
}

// A Hold is what a locker has acquired.
type Hold interface {
	Unlock(ctx context.Context) error
}

// A Timer is a [Hold] that knows better how long its Lock took than whoever called it: the contender that takes
// several locks in turn to find the slowest.
type Timer interface {
	Took() time.Duration
}

// Env is what a contender is opened with.
type Env struct {
	Addrs []string
	Lease time.Duration
	// Waiters is how many goroutines of all processes compete for one key.
	Waiters int
	// Holds is how many locks an owner has already, for a contender that is about that.
	Holds int
	// CountMessages asks for a contender that is a [MessageCounter], if it can be one.
	CountMessages bool
}

// Addr is the only address, or the first.
func (e Env) Addr() string { return e.Addrs[0] }

// An Open opens a contender by its name.
type Open func(contender string, e Env) (Contender, error)

// PollEvery is the interval of contenders that poll where few wait: short, so that a free lock is soon found. A holder
// of the workload [Handover] stays inside for longer than that, at random.
const PollEvery = 10 * time.Millisecond
