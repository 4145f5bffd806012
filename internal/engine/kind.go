package engine

import (
	"time"

	"github.com/redlatch/redlatch/internal/conn"
	"github.com/redlatch/redlatch/internal/luascript"
	"github.com/redlatch/redlatch/internal/pubsub"
	"github.com/redlatch/redlatch/lock"
)

// Kind is what differs between the lock kinds: their scripts, what the answers
// mean and whom a message wakes. It builds commands and reads replies; the
// engine runs them, repeats them and decides what follows. A Kind has no state
// of its own and is safe for concurrent use.
type Kind interface {
	// Type is the value of the lock.type attribute.
	Type() string
	// Mode is how a holder holds the lock; it names the owner's session.
	Mode() lock.Mode

	// Acquire builds an attempt to take the lock for a new session.
	Acquire(a *Attempt) conn.Command
	// Acquired reads the answer to Acquire.
	Acquired(a *Attempt, r conn.Reply) Outcome
	// Reenter sets the count of a session and raises its remaining lease.
	// The reply's code is 1, or 0 when the session is gone.
	Reenter(s *Session, count int, lease time.Duration) conn.Command
	// Release sets the count of a session, with the lease that remains, or ends
	// it (count 0). The code is 1, or 0 when the session is gone; 2 with a text
	// when it is done but the server refused the message; 3 with the end of the lease
	// when the count is set but the lease lasts longer than asked for: to be lowered by
	// another one that says in s.Ends which end it means. void > 0 makes the
	// server refuse late commands of the acquisition for that long. With a code of 1
	// may come how many listened to the unlock message.
	Release(s *Session, count int, lease, void time.Duration) conn.Command
	// Abandon undoes whatever an attempt may have left: a grant or a place in a
	// queue. Codes as for Release.
	Abandon(a *Attempt, void time.Duration) conn.Command
	// Renew builds a session's part of a renewal batch. lease 0: check only; remain is
	// what the session still needs in any case. The
	// first of its integers in the reply is 1 held, 0 gone, -1 refused.
	Renew(s *Session, lease, remain time.Duration) Item

	// Wait says which messages concern the attempt's waiter and how it waits.
	Wait(a *Attempt) (pubsub.Spec, []pubsub.Option)

	// State and ForceUnlock look at, or end, what stands in the kind's mode.
	State() conn.Command
	ReadState(r conn.Reply) (lock.State, error)
	ForceUnlock() conn.Command
}

// Queuer is a Kind whose waiters have a place on the server. The scheduler keeps
// the places of all waiters of a client alive, in batches.
type Queuer interface {
	Kind
	// Every is the time between two refreshes of a place.
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
	// at once, by Acquire, when little is left of it or replica acks are asked for.
	Granted(a *Attempt, payloads []string) (out Outcome, ok bool)
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

// Outcome is what an attempt came to.
type Outcome struct {
	Acquired bool
	// Renewed: a retry recognised its own acquisition and set the lease again.
	Renewed bool
	// Void: the server refused it as given up; take a new acquisition id.
	Void    bool
	Upgrade bool // read to write by one owner
	Token   uint64

	// Granted and Lease tell of a lease that was set by somebody else's command:
	// it lasts at least Lease from Granted on. Zero: the asked lease from when
	// the attempt was sent.
	Granted time.Time
	Lease   time.Duration

	// When not acquired: who holds the lock, for how long as far as known (0: not
	// known), what trace the holder left, and when to look again without a
	// message (0: with Remaining; it may be sooner in a queue).
	Holder    string
	Remaining time.Duration
	Trace     string
	LookIn    time.Duration
	Position  int  // in the queue, 1 is next; 0: no queue
	Queued    bool // the attempt left a place on the server
	// Watched: the refreshes of the place look for the waiter: it does not try
	// again on a timer. RefreshIn is when the first one is due, 0: after Every.
	Watched   bool
	RefreshIn time.Duration
	// Channels (for this waiter alone) and Patterns (for all of the lock's) that
	// the waiter must hear besides those of Wait.
	Channels, Patterns []string
}
