package lock

import (
	"time"

	"github.com/redlatch/redlatch/internal/settings"
)

// Kind says what kind of lock a key is.
type Kind string

// The kinds that an [Inspection] can show.
const (
	KindNone      Kind = ""           // nobody holds it or waits for it
	KindReentrant Kind = "reentrant"  // RLock, alone or in a MultiLock, or a FairLock that nobody waits for
	KindFair      Kind = "fair"       // FairLock
	KindReadWrite Kind = "read-write" // ReadWriteLock
	KindUnknown   Kind = "unknown"    // something looks like a lock and can't be read; see Inspection.Problem
)

// Inspection is what the server knows about a lock of any kind, for people and
// dashboards. It may be out of date when you read it: never use it to decide who may do
// something. In JSON, Remaining is remaining_seconds, a number with a fraction, and times are RFC 3339.
type Inspection struct {
	// Name is the name of the lock, Key its Redis key. They are equal without a prefix
	// and a name mapper.
	Name string `json:"name"`
	Key  string `json:"key"`

	// Kind is deduced from the keys on the server. A FairLock without waiters can't be told from an RLock.
	Kind Kind `json:"kind"`
	// Problem says why the lock can't be read, if Kind is KindUnknown: what the server said, or
	// that the name is too long for a lock's. Then only Name and Key are known besides. Others
	// may have written it.
	Problem string `json:"problem,omitempty"`
	// Mode is how it is held; ModeNone: it is free.
	Mode Mode `json:"mode"`
	// At is when this was read. It and the times of waiters are by the server's clock.
	At time.Time `json:"at"`
	// Remaining is what is left of the lease that ends last; 0 if the lock is free or its
	// key has no TTL.
	Remaining time.Duration `json:"-"`
	// Token is the last fencing token issued, 0 if there is none.
	Token uint64 `json:"token,omitempty"`

	// HolderCount is the number of holders; Holders lists at most the first 1,000.
	HolderCount int      `json:"holder_count"`
	Holders     []Holder `json:"holders"`

	// QueueLength is the number of waiters that the server knows:
	//   - RLock: 0, since only their own processes know its waiters (see Waiting);
	//   - FairLock: all;
	//   - ReadWriteLock: all readers, and of the writers the first of each process. With ShareReads of the readers, too,
	//     only the first of each process.
	//
	// Queue lists at most the first 1,000 of them: of a FairLock the next one first, of a ReadWriteLock the writers in
	// order and then the readers.
	QueueLength int      `json:"queue_length"`
	Queue       []Waiter `json:"queue"`

	// Processes is the number of processes that listen for an unlock, or have a waiter in
	// the queue of a FairLock: those that wait, or waited a moment ago. Of a ReadWriteLock
	// there may be more, if processes of Java wait, too. -1 if it is not known. On a cluster
	// without sharded channels it counts those that listen at the lock's own node.
	Processes int `json:"processes"`
	// Waiting lists those of them that wait for an RLock with this library, or waited a moment ago, in the order in which
	// they were refused: at most the first 1,000.
	Waiting []WaitingProcess `json:"waiting,omitempty"`
}

// Held reports whether the lock is held.
func (i Inspection) Held() bool { return i.Mode != ModeNone }

// Holder is one holder in an [Inspection].
type Holder struct {
	// Owner is the owner as Redis stores it, as IfOwner and log lines use it.
	Owner string `json:"owner"`
	Process
	Mode      Mode          `json:"mode"`
	Count     int           `json:"count"` // holds, re-entries included
	Remaining time.Duration `json:"-"`     // of its lease; 0: it has no end, or it is not known
	// AskedSince is when the acquisition began, and HeldSince when it got the lock, both in UTC; zero if it is not
	// known, as of Redisson's holders. They are by the client's clock; HeldSince is by the server's if the lock was
	// handed over (FairLock). A re-entry changes neither. If processes pass the lock on inside, or readers share a
	// hold, they are the first one's. If replies were lost, HeldSince is when the first of these commands was sent.
	AskedSince time.Time `json:"asked_since,omitzero"`
	HeldSince  time.Time `json:"held_since,omitzero"`
	// TraceID is the trace of the acquisition, if its holder stored it beside the lock.
	TraceID string `json:"trace_id,omitempty"`
}

// Waiter is one waiter in an [Inspection].
type Waiter struct {
	Owner string `json:"owner"` // as Redis stores it
	Process
	Mode Mode `json:"mode"` // how it wants the lock
	// AskedSince is when its acquisition began, by the client's clock, in UTC; of a writer, or a waiter whose id does
	// not tell, when it arrived, by the server's; zero if it is not known.
	AskedSince time.Time `json:"asked_since,omitzero"`
}

// WaitingProcess is a process with waiters in an [Inspection].
type WaitingProcess struct {
	Process
	// AskedSince is when the first of those waiters was refused, by the server's clock, in UTC; zero
	// if it is not known.
	AskedSince time.Time `json:"asked_since,omitzero"`
}

// OnceRun is the last run of a job that runs once per period.
type OnceRun struct {
	// Began is when its period began, Due when that is over, by the server's clock, in UTC: from a tenth
	// of the period before Due on, the next call runs the job. Zero: no run is known, since none was made
	// or the period is over.
	Began time.Time `json:"began,omitzero"`
	Due   time.Time `json:"due,omitzero"`
	// Process is where it was run; of a version before this field nothing is known.
	Process
}

// Process is where an owner runs.
type Process struct {
	ClientID string `json:"client_id"` // of the Client; of a Redisson instance
	// Client is the Client's name (Config.Name) and Addr its address, from the server's
	// CLIENT LIST; "" if it is no longer connected, has no name there, or the list may not
	// be read. Whoever may connect can give any name to a connection, and this client's id
	// with it: don't base decisions on it.
	Client string `json:"client,omitempty"`
	Addr   string `json:"addr,omitempty"`
	// Unlisted: CLIENT LIST was read, and names no connection of the client. It has ended, or its
	// connections have other names: those of Redisson, and of an application's own client.
	Unlisted bool `json:"unlisted,omitempty"`
	// Disputed: connections with other names say that they are this client. Client and Addr
	// list them, with ", " between.
	Disputed bool `json:"disputed,omitempty"`
}

// ForceOption changes one ForceUnlock. A nil ForceOption changes nothing.
type ForceOption interface{ forceOption }

type forceOption = settings.Option[settings.Force]

// IfOwner ends the holds of this owner only. Pass the whole text, as State, Inspect and
// log lines show it. If another owner holds the lock by then, ForceUnlock returns
// [ErrOtherOwner] and changes nothing. An empty owner, say of a variable that was never set,
// is an [ErrInvalidOption]: it does not mean all owners.
func IfOwner(owner string) ForceOption { return IfOwners(owner) }

// IfOwners ends the holds of these owners only, at most 1,000, for instance of those that somebody has seen and agreed
// to evict. Those of them that hold the lock no more are left out; if only others hold it, ForceUnlock does as
// with [IfOwner]. Without owners it ends no hold, and only wakes the waiters of a lock that is free.
func IfOwners(owners ...string) ForceOption {
	return settings.Func[settings.Force](func(s *settings.Force) { s.Owners, s.Bound = owners, true })
}
