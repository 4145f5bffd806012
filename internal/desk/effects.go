package desk

import (
	"math"
	"time"

	"github.com/redlatch/redlatch/internal/lease"
)

// Time is the client's monotonic clock, since its start. A deadline is a [lease.Instant]: on both clocks.
type Time = time.Duration

// never is when nothing is due.
const never Time = math.MaxInt64

// Now is the time of an event, on both clocks.
type Now = lease.Instant

// Verb is what a command does on the server; each is one script.
type Verb uint8

// The verbs, in the words of docs/PROTOCOL.md.
const (
	Acquire  Verb = iota // acquire.lua
	Reenter              // reenter.lua: sets the count, raises the lease
	SetCount             // release.lua with a count: nothing but that
	Release              // release.lua with count 0
	Renew                // renew.lua: raises the lease, or checks only
	Leave                // wait_leave.lua: this client waits no more
)

// Place is what an [Acquire] tells the server of this client's place on the list: beside these the time, in µs, that
// the client was called with.
type Place int64

// Places beside those of calls.
const (
	StandsBack Place = -2 // go on the list, though the lock be free
	NoPlace    Place = -1 // it does not wait: stay off the list
	NewPlace   Place = 0  // it may be new on the list
	Listed     Place = 1  // it may be on the list
)

// Listing is what a [Release] does with this client's place on the list.
type Listing uint8

// What becomes of the place.
const (
	KeepListing Listing = iota // nothing
	TakeOff                    // off the list
	PutBehind                  // behind the client that the release calls, if it calls one
)

// Command is one command for the server, as data: the shell builds the script's arguments from it. The table
// owns it until it is answered; the shell only reads it, and hands it back with the answer.
type Command struct {
	Verb    Verb
	Key     string
	Session *Session      // nil: of [Leave]
	Field   uint64        // the session's id on the server; 0: of [Leave]
	Owner   Owner         // who asked for the session: a part of the field's name
	Count   int           // of Reenter, SetCount
	Lease   time.Duration // of Acquire, Reenter, Renew; 0: check only
	Fenced  bool          // of Acquire: with a token
	Place   Place         // of Acquire
	Listing Listing       // of Release
	Void    bool          // of Release: late commands of the session are to be refused

	entry  *Entry     // set once
	sent   Now        // when it was taken to be written: set by [Table.Sent]
	wrote  bool       // sent is set
	covers int        // of SetCount: how many unlocks it answers
	join   *Request   // of Reenter: who enters again; cleared when that leaves
	extend *Extension // of Reenter: what is extended; cleared when its caller leaves
}

// Holder is who has the lock, as a refusal tells.
type Holder struct {
	Field   uint64 // of this client: the session's; else 0
	Name    string // as on the server, for people
	Foreign bool   // another library's: its release calls nobody
}

// Verdict is what an answer comes to.
type Verdict uint8

// Verdicts. Failed stands for an answer that never came.
const (
	Failed  Verdict = iota // no answer: it may have run, or may still run
	NotRun                 // it did not run, and will not: withdrawn, or the server refused it for the moment
	Refused                // the server refused it for good
	Done                   // it did what it says: an Acquire has the lock
	Gone                   // not held by this session
	Busy                   // of Acquire: somebody else has the lock
	Void                   // of Acquire: this session was given up before
	NoAcks                 // of Acquire: done, but too few replicas have it
)

// Answer is what the server said to a command, read by the shell.
type Answer struct {
	Verdict Verdict
	Token   uint64        // of Acquire, fenced
	Holder  Holder        // of Busy
	TTL     time.Duration // of Busy: what is left of the holder's lease; negative: not known
	Look    time.Duration // of Busy: when to look again; 0: not said
	Called  bool          // of Release: a client was called
	Loser   bool          // of Release: one that had lost before
	Heard   bool          // of Release: others got the message for all
	Pause   time.Duration // of NotRun: do not ask before; 0: not said
}

// EffectKind is what the shell has to do.
type EffectKind uint8

// Effects. All but Tell of the later steps are carried out under the shell's mutex, in their order (R10).
const (
	Send     EffectKind = iota // push Command into its node's lane
	Cancel                     // withdraw Command, if it is not written: then it did not run
	Listen                     // subscribe to the calls of Key, or with Others to its channel for all
	Unlisten                   // the opposite
	End                        // end the context of Hold, with Why
	Grant                      // Request has the lock: Hold
	Reject                     // Request has ended without it: Why, and who has the lock as far as known
	Unlocked                   // the Unlock of Hold returns: Why
	Extended                   // Extension returns: Why
	Drained                    // nothing is held or under way any more, after Drain
	Arm                        // set the timer to At; never: stop it
)

// Why is why something ended, or how.
type Why uint8

// Reasons. OK is none.
const (
	OK          Why = iota
	IsUnlocked      // by its Unlock
	LostGone        // the server knows nothing of it
	LostExpired     // its deadline passed
	IsClosed        // the client was closed, or drains
	IsBusy          // somebody else has the lock
	HasLeft         // its caller left
	Unavailable     // nobody knows: the command had no answer
	WasRefused      // the server refused it for good
	TooFewAcks      // too few replicas have it
	NotHeld         // it was unlocked before
	Invalid         // a token of an unfenced session
)

// Effect is one thing to do. Which fields are set, the kind says.
type Effect struct {
	Kind      EffectKind
	Why       Why
	Others    bool
	Key       string
	Command   *Command
	Request   *Request
	Hold      *Hold
	Extension *Extension
	Holder    Holder
	At        Time
}
