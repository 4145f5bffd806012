package engine

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/redlatch/redlatch/internal/conn"
	"github.com/redlatch/redlatch/internal/held"
	"github.com/redlatch/redlatch/internal/kind"
	"github.com/redlatch/redlatch/internal/observe"
	"github.com/redlatch/redlatch/internal/pubsub"
	"github.com/redlatch/redlatch/internal/sender"
)

// acquisition is one call of Lock or TryLock, of one lock or of several at once, from its first attempt until it has
// its holds or has given up: open, finish, close. The loop in finish is run's: try sends an attempt and takes its
// answer, sleep waits for a reason to try again. With holds it ends in endWaiting, without them in giveUp.
//
// The caller's goroutine works on it. Others reach it in four ways:
//   - refreshes of its place, and whoever writes a log line about it, read the members' attempts and at, under mu;
//   - a call that acquires for the same owner sets ownerActed and wakes the waiter (Told);
//   - an unlocking holder passes its hold on while asleep is true (accept), under the mutexes of the registry and the hub;
//   - the sender brings the answer to a command that the caller has left (takeLate). That goroutine gets the gates with
//     the command, and all that is said below to be its.
//
// Invariant: if a command may have run on the server, and its answer has not been processed, leftover counts it in.
type acquisition struct {
	request
	progress
	waiting
	sharing
	bidding
}

// request is what was asked for. open sets it. A bid sets ctx, values, obs, until and patient anew for each attempt
// (renew), AcquireAll brings until forward, and after a panic nothing of the caller's is left in values and obs (broke).
type request struct {
	core   *Core
	ctx    context.Context     // the caller's
	values context.Context     // the same, or that with the observer's span; for its values alone
	obs    observe.Acquisition // nil: nothing records it
	owner  *held.Owner         // pinned from open to close
	fresh  bool                // the owner is this call's own: it holds nothing, and nobody else acquires for it

	wait    time.Duration // as asked for; negative: no limit
	once    bool          // wait is 0: one attempt
	lease   time.Duration // 0: the watchdog's
	began   time.Time     // the acquisition, or the whole that it is a part of
	until   time.Time     // the wait's end; zero: no limit
	patient time.Time     // of one attempt: a server that has not answered by then is silent
}

// progress is what the attempts have come to.
type progress struct {
	members []member  // sorted by key: gates are entered in this order
	one     [1]member // the memory of members if it is one
	mu      sync.Mutex
	at      int // guarded by mu; the member that it is about, the one waited for: see focus

	call     sender.Call // the attempt under way
	acquires int         // how many members it acquires; it re-enters the others

	leftover leftover                    // of the present id; newID and takeBack clear it
	undone   chan struct{}               // closed when what was given up has been undone; nil: nothing was
	lastErr  error                       // of the last attempt; nil: it was answered
	retry    *backoff.ExponentialBackOff // nil: none has failed

	reenters bool // the last attempt re-entered all: a Shutdown does not end it
	inGates  bool // the gates are this goroutine's; leaveCommand clears it for whoever gets the answer
	inFlight bool // call was handed to the sender and has no answer; leaveCommand clears it, too
	asked    bool // it has asked the server, or shares no hold for another reason
	waited   bool // it has waited: what it asks for next is held since then
	endTold  bool // obs has been told of the end
	panicked bool // code of the user's did; set by broke
}

// waiting is how the acquisition waits while the lock is busy.
type waiting struct {
	waiter *pubsub.Waiter // nil: it does not listen; join sets it, stopListening clears it
	line   pubsub.Waiter  // the memory of waiter in a line; recycle.go keeps its channel
	place  *place         // nil: it has none that is refreshed, or restart gave it up; after leaveCommand takeLate's

	busy   kind.Outcome // what the last refusal, or the line, said of the holder
	seenAt time.Time    // when that was
	look   time.Time    // when to try without a message
	own    ownWait      // how long it waits for a hold of its own client

	// What an unlocking holder passes on. join sets all but the first for it.
	passed     *held.Hold // guarded by the registry's mutex; nil: nothing
	passLink   any        // the observer's, for that hold
	passTrace  string     // its trace context, for those in line behind it
	passCounts bool       // an observer counts that hold

	waitTold    bool        // obs has been told that it waits
	hadPlace    bool        // so its memory is not used again,
	mayBeLogged bool        // nor while a log line about it may be in the making
	asleep      atomic.Bool // in sleep: a hold may be passed on to it
	ownerActed  atomic.Bool // the same owner acquired in another call; sleep clears it
}

// sharing is a reader's way into a hold that other readers of its process have, or ask for.
type sharing struct {
	leads      *held.Share // it asks for others, too, until unlead
	shareSince time.Time   // when it first looked for such a hold
}

// bidding is for the attempts of a Bid.
type bidding struct {
	bid            *Bid       // nil: it is nobody's
	serverReply    conn.Reply // to the last attempt
	serverAnswered bool       // there is one
	asksServer     bool       // each attempt asks who the server is
	parked         bool       // it stays with its bid: see park
	keepsPlace     bool       // the place that a late answer left is kept; takeLate's until undone is closed
}

// member is one of the locks that an acquisition is about.
type member struct {
	lock    *Lock
	claim   *held.Claim
	attempt kind.Attempt
	session *held.Session // held already: the try under way re-enters it
	count   int           // to reach then
	hold    *held.Hold    // the result
}

// leftover is what the attempts under the present id may have left on the server.
type leftover struct {
	lost       int  // commands without an answer: they may have run, or may still run
	queued     bool // an answer said so: a place, or a grant of no use
	handedOver bool // a command whose answer somebody else takes, who cleans up
}

// failed counts in a command that ended with an error.
func (l *leftover) failed(err error) {
	switch {
	case conn.Classify(err) == conn.Ambiguous:
		l.lost++
	case conn.IsPermanent(err) && !conn.NeverRan(err):
		l.queued = true // the script may have been refused half-way
	}
}

func (l leftover) any() bool { return !l.handedOver && (l.queued || l.lost > 0) }

// void is how long the server must refuse late commands.
func (l leftover) void() time.Duration {
	if l.lost == 0 {
		return 0
	}
	return held.VoidTTL
}
