package lock

import "time"

// Kind says what kind of lock stands at a key.
type Kind string

// The kinds that an [Inspection] can show.
const (
	KindNone      Kind = ""           // nobody holds it or waits for it
	KindPlain     Kind = "plain"      // RLock, a member of a MultiLock, or a FairLock that nobody waits for
	KindFair      Kind = "fair"       // FairLock
	KindReadWrite Kind = "read-write" // ReadWriteLock
)

// Inspection is what the server knows of a lock of whatever kind, for people and
// dashboards: by the time it is read it may be out of date, so it must not decide
// who may do something.
type Inspection struct {
	// Name is the lock's name, Key the key that it stands at: the same without a
	// prefix and a name mapper.
	Name string `json:"name"`
	Key  string `json:"key"`

	// Kind was found by looking at what stands there. A fair lock that nobody waits
	// for can't be told from a plain one.
	Kind Kind `json:"kind"`
	// Mode is how it is held; ModeNone: it is free.
	Mode Mode `json:"mode"`
	// At is when this was read, by the server's clock, as are all waiters' times.
	At time.Time `json:"at"`
	// Remaining is what is left of the lease that ends last; 0 when it is free, or
	// when its key has no end.
	Remaining time.Duration `json:"remaining"`
	// Token is the last fencing token given out, 0 when there is none.
	Token uint64 `json:"token,omitempty"`

	// HolderCount is the number of holders; Holders are at most the first 1,000.
	HolderCount int      `json:"holder_count"`
	Holders     []Holder `json:"holders"`

	// QueueLength is the number of waiters that the server knows: all of a fair
	// lock; of a read-write lock those that have a place. Queue are at most the
	// first 1,000, the next one first. A plain lock's waiters are known to their own
	// processes only.
	QueueLength int      `json:"queue_length"`
	Queue       []Waiter `json:"queue"`

	// Processes is the number of processes that listen for an unlock, or stand in
	// the queue of a fair lock: those that wait or have waited a moment ago. -1 when
	// it is not known. On a cluster without sharded channels it counts those that
	// listen at the lock's own node.
	Processes int `json:"processes"`
}

// Held reports whether somebody holds the lock.
func (i Inspection) Held() bool { return i.Mode != ModeNone }

// Holder is one holder in an [Inspection].
type Holder struct {
	// Owner is the owner as on the wire: what IfOwner and log lines mean.
	Owner string `json:"owner"`
	Process
	Mode      Mode          `json:"mode"`
	Count     int           `json:"count"`     // holds, re-entries included
	Remaining time.Duration `json:"remaining"` // of its lease; 0: it has no end, or it is not known
	// Since is when the acquisition was asked for, by the client's clock; zero when
	// it is not known.
	Since time.Time `json:"since,omitzero"`
	// TraceID is the trace of the acquisition, when its holder left it beside the
	// lock.
	TraceID string `json:"trace_id,omitempty"`
}

// Waiter is one waiter in an [Inspection].
type Waiter struct {
	Owner string `json:"owner"` // as on the wire
	Process
	Mode Mode `json:"mode"` // how it wants the lock
	// Since is when it came: by the server's clock where its place says so, else by
	// the client's; zero when it is not known.
	Since time.Time `json:"since,omitzero"`
}

// Process is where an owner runs.
type Process struct {
	ClientID string `json:"client_id"` // of the Client; of a Redisson instance
	// Client is the Client's name (Config.Name) and Addr its address, as the server's
	// CLIENT LIST has them; "" when it is not connected any more, has no name there, or
	// the list may not be read.
	Client string `json:"client,omitempty"`
	Addr   string `json:"addr,omitempty"`
}

// ForceOption changes one ForceUnlock.
type ForceOption func(*ForceSettings)

// ForceSettings is what [ForceOption]s fill in.
type ForceSettings struct {
	Owner string // the only one to evict; "": whoever holds the lock
}

// IfOwner ends the holds of this owner only: the whole text, as State, Inspect and
// log lines show it. When somebody else holds the lock by then, ForceUnlock returns
// [ErrOtherOwner] and touches nothing.
func IfOwner(owner string) ForceOption { return func(s *ForceSettings) { s.Owner = owner } }

// ApplyForce collects options.
func ApplyForce(opts []ForceOption) ForceSettings {
	var s ForceSettings
	for _, o := range opts {
		if o != nil {
			o(&s)
		}
	}
	return s
}
