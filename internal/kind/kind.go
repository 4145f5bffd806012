// Package kind is the seam between the engine and the lock kinds: what a kind
// has to tell of itself, and what the engine tells it.
//
// A kind builds commands and reads replies. The engine sends the commands,
// repeats them, and decides what follows.
//
// # Adding a lock kind
//
//  1. Write its scripts in internal/luascript, with headers that list KEYS, ARGV, RETURN and why they may run twice,
//     and put every key name there. A script for a holder begins with a write that takes no memory and always
//     happens: if the server refuses it, that is the answer.
//  2. Implement kind.Kind in its own package: Traits says what it can do; the other methods build commands and read
//     replies. A kind has no state, no goroutine and no retry; the engine has those. For waiters with a place on the
//     server implement kind.Queuer, for commands with several keys kind.Splitter, for several locks at once
//     kind.Group.
//  3. Refuse unknown options with kind.Only.
//  4. Wrap engine.Lock in a public type, as thin as rlock/rlock.go, and give Client a method for it.
//  5. Test the wire format, each hazard of kind (lost reply of each script, late grant, cancellation, refusal) and
//     every topology.
package kind

import (
	"time"

	"github.com/redlatch/redlatch/internal/conn"
	"github.com/redlatch/redlatch/internal/luascript"
	"github.com/redlatch/redlatch/internal/pubsub"
	"github.com/redlatch/redlatch/internal/settings"
	"github.com/redlatch/redlatch/lock"
)

// Traits is what a kind can do. Everything that asks "which kind is it?" asks
// here.
type Traits struct {
	// Type is the value of the lock.type attribute.
	Type string
	// Mode is how a holder holds the lock; an owner has one session per mode.
	Mode lock.Mode
	// Fenced: acquisitions get tokens.
	Fenced bool
	// Queued: waiters of all processes stand in one queue on the server, which an
	// attempt without waiting can't pass.
	Queued bool
	// Passes: an unlock may pass the lock on to a waiter of the same process
	// without a command.
	Passes bool
	// Shares, unless empty: readers of the same process for whom it is equal may share
	// a hold on the server.
	Shares string
	// Overtakes: they do so also while a writer of the process waits.
	Overtakes bool
}

// Kind is what differs between the lock kinds: their scripts, what the answers
// mean and whom a message wakes. A Kind has no state of its own and is safe for
// concurrent use.
type Kind interface {
	Traits() *Traits

	// Acquire builds an attempt to take the lock for a new session.
	Acquire(a *Attempt) conn.Command
	// Acquired reads the answer to Acquire.
	Acquired(a *Attempt, r conn.Reply) Outcome
	// Reenter sets the count of a session and raises its lease to at least this.
	// The reply's code is 1, or 0 when the session is gone.
	Reenter(f Field, count int, lease time.Duration) conn.Command
	// Release sets the count of a session and nothing else, or ends it (count 0).
	// void > 0 makes the server refuse late commands of the ended acquisition for
	// that long. The codes of the reply are those of [Released].
	Release(f Field, count int, void time.Duration) conn.Command
	// Abandon undoes whatever an attempt may have left: a grant or a place in a
	// queue. Codes as for Release.
	Abandon(a *Attempt, void time.Duration) conn.Command
	// Renew builds a session's part of a renewal batch; lease 0: check only. The
	// first of its integers in the reply is 1 held, 0 gone, -1 refused. A server that
	// refuses all writes answers the whole batch with its error.
	Renew(f Field, lease time.Duration) Item

	// Wait says which messages concern the attempt's waiter and how it waits.
	Wait(a *Attempt) (pubsub.Spec, []pubsub.Option)

	// State looks at the lock.
	State() conn.Command
	ReadState(r conn.Reply) (lock.State, error)
}

// Group is a Kind of which several locks of one slot can be taken and freed by
// one command.
type Group interface {
	Kind
	// AcquireAll takes all parts or none.
	AcquireAll(lease time.Duration, parts []Part) conn.Command
	// AcquiredAll reads the answer. part is the part that Outcome is about when it
	// is not acquired. tokens has one per part when it is; nil: none has one.
	AcquiredAll(parts []Part, r conn.Reply) (out Outcome, part int, tokens []uint64)
	// ReleaseAll makes one command of several that Release or Abandon built. The
	// reply has a code and a text for each, in their order: see [Released].
	ReleaseAll(cmds []conn.Command) conn.Command
}

// Part is one lock of several: a new session (Count 0), or one that the owner
// holds already and re-enters.
type Part struct {
	Kind    Kind // of the lock: all parts are of one Go type
	Attempt *Attempt
	Field   Field
	Count   int // the absolute count to reach
}

// Splitter is a Kind whose commands have several keys. While a cluster moves a
// slot it refuses those for as long as only some of the keys have moved
// (TRYAGAIN). What a holder can't wait for is done then by commands of one key
// each, which the cluster takes.
type Splitter interface {
	Kind
	// ReleaseSplit frees the lock as far as exclusion goes: count as for Release.
	// The command of Release follows as soon as the cluster takes it.
	ReleaseSplit(f Field, count int) conn.Command
	// RenewSplit does what Renew does, in commands of one key. The first one's code
	// is that of Renew; the others are sent only when it is 1, and must answer 1, too.
	RenewSplit(f Field, lease time.Duration) []conn.Command
}

// Caller is a Kind whose release calls one client of those that wait: the first on a list that the server keeps.
type Caller interface {
	Kind
	// Leave takes this client off the list. What it may have been called for goes to the next. A command
	// without a script: whoever gives up has left with that.
	Leave() conn.Command
}

// PlaceLives is for how long a place lives without a refresh, in times of Queuer.Every.
const PlaceLives = 5

// Queuer is a Kind whose waiters have a place on the server. The engine keeps the
// places of all waiters of a client alive, in batches.
type Queuer interface {
	Kind
	// Every is the time between two refreshes of a place, which lives for [PlaceLives] of
	// them.
	Every() time.Duration
	// Refresh builds a waiter's part of a refresh batch.
	Refresh(a *Attempt) Item
	// Refreshed reads the waiter's integers in the reply, sent when the command
	// was; wake makes the waiter try again, next is when to refresh the place
	// again (0: after Every).
	Refreshed(a *Attempt, vals []conn.Value, sent time.Time) (wake bool, next time.Duration)
	// Granted reads messages for this waiter: the lock itself may have been
	// handed over. ok is false when the waiter has to try by itself.
	// A grant is confirmed once by Renew up to the asked lease, in the background;
	// at once, by Acquire, when little is left of it, when a connection broke since the place
	// was last refreshed, or when replica acks are asked for.
	Granted(a *Attempt, payloads []string) (out Outcome, ok bool)
}

// Field names a session on the server.
type Field struct {
	Name   string // in the lock's hash: <client>:<owner>-<acquisition>
	Traced bool   // it left its trace context beside the lock

	// Listed, of the last release: "0" takes this client off the list of those that wait; "1", since
	// others of it wait, puts it there again, behind whom the release calls; "" does nothing.
	Listed string

	// Room is for the arguments of a command that releases it, if not nil: the caller's,
	// until the command has its answer.
	Room *[8]string
}

// Attempt is one acquisition under way, as its kind sees it. The engine calls
// the kind's methods with an Attempt one at a time.
type Attempt struct {
	ID    string        // of the acquisition, unique in the client
	Entry string        // among the waiters on the server: <client>:<owner>-<ID>
	Field string        // in the lock's hash: Entry, and behind it for how long it had waited; see [Waited]
	Lease time.Duration // what the grant shall last
	Wait  time.Duration // what is left of the wait; 0: this is the only attempt; negative: no limit
	Other string        // to read: the field of the owner's write hold; "" when it has none
	Trace string        // "", "-" (read the holder's), or what to leave beside the lock
	Sent  time.Time     // when the last Acquire command was sent
	Data  any           // the kind's own
	Place string        // of the client on the list of those that wait, as the scripts take it; "": it does not wait
	Args  [5]string     // room for the arguments of its command, of which one is under way at a time
}

// Named is the attempt's field.
func (a *Attempt) Named() Field { return Field{Name: a.Field, Traced: len(a.Trace) > 1} }

// Outcome is what an attempt came to.
type Outcome struct {
	Acquired bool
	// Renewed: a retry recognised its own acquisition and set the lease again.
	Renewed bool
	// Void: the server refused it as given up; take a new acquisition id.
	Void bool
	// Gone: of a group, a part that was to be re-entered is not held any more.
	Gone bool
	// NoLock: the key holds something that is no lock of this kind. It was not touched.
	NoLock bool
	// Open: the acquisition has just been made, and no writer waited that it has to stand
	// back for: readers of the same process may share the hold.
	Open bool
	// Along: writers wait, but readers of the same process that have waited since before
	// this instant may share the hold all the same. Zero: none may.
	Along time.Time
	Token uint64

	// Granted and Lease tell of a lease that was set by somebody else's command:
	// it lasts at least Lease from Granted on. Zero: the asked lease from when
	// the attempt was sent.
	Granted time.Time
	Lease   time.Duration

	// When not acquired, or handed over: who holds (or held) the lock, for how long as far as known (0: not
	// known), what trace the holder left, and when to look again without a
	// message (0: with Remaining; it may be sooner in a queue).
	Holder    string
	Remaining time.Duration
	Trace     string
	LookIn    time.Duration
	Position  int  // in the queue, 1 is next; 0: no queue
	Foreign   bool // the holder is another library's: its release calls nobody
	Queued    bool // the attempt left a place on the server
	// Watched: the refreshes of the place look for the waiter: it does not try
	// again on a timer. RefreshIn is when the first one is due, 0: after Every.
	Watched   bool
	RefreshIn time.Duration
	// Channels (for this waiter alone) and Patterns (for all of the lock's) that
	// the waiter must hear besides those of Wait.
	Channels, Patterns []string
}

// Released are the codes of a release, single (the reply's code, with a text or a
// number behind it) or in a group (a code and a text for each part).
const (
	ReleaseRefused = -1 // of a group: the server refused this part; the text says why
	ReleaseGone    = 0  // not held by this acquisition
	// ReleaseDone: behind it whom it called (see the Call… constants), and of a single release how
	// many listened to the unlock message.
	ReleaseDone   = 1
	ReleaseSilent = 2 // done, but the server refused the message or the hand-over; the text says why
)

// Whom a release has called, of the clients that wait.
const (
	CalledDead   = -1 // nobody: too many that are dead stood in front
	CalledNobody = 0
	CalledFirst  = 1
	CalledLoser  = 2 // one that had been called before and found the lock taken: it is left to it
)

// Foreign reports whether a holder is another library's.
func Foreign(holder string) bool {
	const owner = 37 // behind the client's UUID and ':'
	return len(holder) > owner && holder[owner-1] == ':' && holder[owner] != 'g'
}

// Item is one part of a batch: commands of one script and slot become one.
type Item struct {
	Script  *luascript.Script
	Keys    []string
	Args    []string
	Replies int // how many integers of the reply are this item's
	// Shared: items with the same Keys become one command with the keys once and
	// the Args of all behind each other; Head goes in front of them.
	Shared bool
	Head   []string
}

// Only refuses options that a kind does not know: an option that is ignored would
// look like a promise.
func Only(set settings.Lock, kind string, skipAfter, preferReaders bool) error {
	refuse := func(option string) error {
		return &lock.InvalidOptionError{Option: option, Reason: "it is not supported by " + kind}
	}
	switch {
	case set.SkipAfter != 0 && !skipAfter:
		return refuse("WithSkipAfter")
	case set.PreferReaders && !preferReaders:
		return refuse("PreferReaders")
	case set.ShareReads && !preferReaders:
		return refuse("ShareReads")
	}
	return nil
}
