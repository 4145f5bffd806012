package engine

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/redlatch/redlatch/internal/conn"
	"github.com/redlatch/redlatch/internal/held"
	"github.com/redlatch/redlatch/internal/kind"
	"github.com/redlatch/redlatch/internal/lease"
	"github.com/redlatch/redlatch/internal/observe"
	"github.com/redlatch/redlatch/internal/pubsub"
	"github.com/redlatch/redlatch/internal/sender"
	"github.com/redlatch/redlatch/lock"
)

// acquisition is one call of Lock or TryLock, of one lock or of several at once,
// from its first attempt until it has its holds or has given up.
type acquisition struct {
	core  *Core
	ctx   context.Context // the caller's
	obs   observe.Acquisition
	wait  time.Duration // as asked for
	lease time.Duration // 0: the watchdog's
	until time.Time     // of the wait; zero: no limit

	patient time.Time // of one attempt: a server that has not answered by then is silent
	owner   *held.Owner

	members []member // sorted by key: gates are entered in this order
	at      int      // the member that it is about: the one waited for

	mu sync.Mutex // guards the members' attempts against refreshes of their places

	began time.Time // the acquisition, or the whole that it is a part of; set once
	once  bool      // wait 0
	later bool      // it has waited since: what it asks for next is held since then
	sent  bool      // it has asked the server
	again bool      // the last try re-entered: a Shutdown does not end it

	lead *held.Share // it asks for other readers of this process, too
	came time.Time   // when it first looked for a reader to share a hold with
	left leftover
	undo chan struct{} // closed when what was given up has been undone

	// while it waits
	asleep  atomic.Bool // it waits for a signal
	peer    atomic.Bool // the same owner acquired in another call
	waits   bool        // it has been seen to wait
	counts  bool        // an observer counts the hold that is passed on
	placed  bool        // it has had a place
	noticed bool        // a log line may be asking what it is
	given   *held.Hold  // guarded by the registry's mutex; passed on by another one's unlock
	link    any         // the observer's, for that hold
	trace   string      // its trace context, for those in line behind it
	place   *place
	waiter  *pubsub.Waiter
	line    pubsub.Waiter // in its own memory, for standing in line
	look    time.Time     // when to try without a message
	busy    kind.Outcome
	seenAt  time.Time // when that was known
	own     ownWait
	lastErr error // of the last try, unless it was answered
	retry   *backoff.ExponentialBackOff

	// for what a panic leaves
	gated  bool // the gates are ours
	flies  bool // a command was handed to the sender, and has no answer
	broken bool
	fresh  int // how many members it acquires

	bid      *Bid       // whose attempt it is; nil: nobody's
	parked   bool       // of a bid: it stays with it
	stays    bool       // of a bid: a late answer left a place, which is kept; read after undo
	tell     bool       // ask who the server is
	answered bool       // it said something
	told     conn.Reply // what that was

	values context.Context // the caller's, or that with the observer's span
	call   sender.Call
	one    [1]member
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
	lost   int  // commands without an answer: they may have run, or may still run
	queued bool // an answer said so: a place, or a grant of no use
	away   bool // a command whose answer somebody else takes, who cleans up
}

// failed counts in a command that ended with an error.
func (l *leftover) failed(err error) {
	switch {
	case conn.Classify(err) == conn.Ambiguous:
		l.lost++
	case conn.IsPermanent(err):
		l.queued = true // the script may have been refused half-way
	}
}

func (l leftover) any() bool { return !l.away && (l.queued || l.lost > 0) }

// void is how long the server must refuse late commands.
func (l leftover) void() time.Duration {
	if l.lost == 0 {
		return 0
	}
	return held.VoidTTL
}

// Acquire takes the lock for the owner in ctx. A negative wait has no limit.
func (l *Lock) Acquire(ctx context.Context, wait, lease time.Duration) (*held.Hold, error) {
	a := l.core.newAcquisition()
	a.members = a.one[:]
	a.members[0].lock = l
	if err := a.open(ctx, wait, lease); err != nil {
		return nil, l.refused(ctx, wait, lease, err)
	}
	defer a.closeAndRecycle()
	if err := a.finish(); err != nil {
		return nil, err
	}
	return a.members[0].hold, nil
}

// AcquireAll takes several locks of one client and slot by one command, all or
// none. They have distinct keys, are sorted by them, and are of kinds that can be
// taken together; see [SameGroup]. The holds are in the order of the locks. As a part of
// a longer wait, which began then, it ends at until, if that is not zero, however long an answer takes.
func AcquireAll(ctx context.Context, locks []*Lock, wait, length time.Duration, began, until time.Time) ([]*held.Hold, error) {
	a := &acquisition{members: make([]member, len(locks)), began: began, later: true}
	for i, l := range locks {
		a.members[i].lock = l
	}
	if err := a.open(ctx, wait, length); err != nil {
		return nil, locks[0].refused(ctx, wait, length, err)
	}
	defer a.close()
	a.until = lease.Earlier(a.until, until)
	if err := a.finish(); err != nil {
		return nil, err
	}
	holds := make([]*held.Hold, len(locks))
	for i := range a.members {
		holds[i] = a.members[i].hold
	}
	return holds, nil
}

// open begins an acquisition; close ends it.
func (a *acquisition) open(ctx context.Context, wait, length time.Duration) error {
	for i := range a.members {
		if err := a.members[i].lock.err; err != nil {
			return err
		}
	}
	if err := lease.Check(length); err != nil {
		return err
	}
	c := a.members[0].lock.core
	if ctx.Err() != nil {
		return &lock.NotAcquiredError{Name: a.members[0].lock.of.Name, Err: CtxError(ctx)}
	}
	o, err := c.reg.Owner(ctx) // first: the ctx may be a type of the user's, and panic
	if err != nil {
		return err
	}
	if err := c.reg.Begin(); err != nil {
		o.Unpin()
		return err
	}
	a.core, a.ctx, a.wait, a.lease, a.once, a.owner = c, ctx, wait, length, wait == 0, o
	a.values = ctx
	for i := range a.members {
		m := &a.members[i]
		m.claim = o.Claim(c.reg, m.lock.of.Key)
	}
	switch {
	case wait == 0:
		// One attempt; a server that is silent must not keep it. An answer may wait for replicas.
		a.patient = c.patience()
		a.until = a.patient
	case wait > 0:
		a.until = time.Now().Add(wait)
	}
	if a.began.IsZero() {
		a.began = time.Now()
	}
	return nil
}

func (a *acquisition) close() {
	for i := range a.members {
		a.members[i].claim.Release()
	}
	a.owner.Unpin()
	a.core.reg.End()
}

// about is the member that the acquisition is about at the moment.
func (a *acquisition) about() *member { return &a.members[a.at] }

// toEnd is finish without its guard.
func (a *acquisition) toEnd() error {
	a.observe()
	behind := a.standsBehind()
	a.later = a.later || behind
	if a.obs != nil || !a.mayShare() && (!behind || a.about().lock.of.Line == "") {
		if a.bid == nil || a.members[0].attempt.Field == "" {
			a.newID() // else when it asks: most are handed the lock by others of this process
		}
	} else if a.mayShare() {
		a.members[0].attempt.Lease = a.core.cfg.LeaseTime // a re-entry's
	}
	err := a.run(!behind)
	a.unlead(err)
	a.observed(err)
	if err != nil {
		if a.park(err) {
			return err
		}
		a.giveUp()
		if errors.Is(err, lock.ErrReplicaAcks) {
			a.awaitUndone()
		}
		return err
	}
	a.leave()
	return nil
}

// run is the one loop of all kinds: try, and while the lock is busy sleep until
// something may have changed.
func (a *acquisition) run(try bool) error {
	if try && !a.mayShare() { // else when it asks
		a.listenEarly()
	}
	for {
		if try {
			if a.members[0].attempt.Field == "" && !a.mayShare() {
				a.newID()
			}
			won, err := a.try()
			if won {
				return nil
			}
			a.later = true
			var stop *stopError
			switch {
			case errors.As(err, &stop):
				return stop.err
			case errors.Is(err, errSessionGone), errors.Is(err, errLookAgain), errors.Is(err, held.ErrMoved):
				// There is nothing to re-enter any more: acquire, unless it was asked
				// for with the lost hold's context. Or another server is to be asked.
				if a.ctx.Err() != nil {
					return a.ended()
				}
				continue
			case err != nil:
				first := a.lastErr == nil
				a.lastErr = err
				if a.lead != nil { // those who can't wait hear by themselves what is wrong
					a.core.reg.Refused(a.lead, held.Seen{})
				}
				if a.once {
					return a.notAcquired(nil)
				}
				if a.retry == nil {
					a.retry = held.NewRetry()
				} else if first {
					a.retry.Reset()
				}
				late := errors.Is(err, errTooLate)
				if late {
					a.look = time.Time{}
					if a.waiter != nil {
						a.forget() // what it can't have, those behind it in the line can
					}
				} else {
					a.tellOfOutage(err)
				}
				if !a.pause(a.retry.NextBackOff()) {
					return a.ended()
				}
				try = !late || !a.standsBehind()
				continue
			case a.once:
				return a.notAcquired(nil)
			}
			a.lastErr = nil
			if a.retry != nil {
				a.retry.Reset()
			}
		}
		if a.waiter == nil {
			a.join(a.about().lock.of.Kind.Wait(&a.about().attempt))
		} else if try {
			a.waiter.Expect(a.look, a.seen())
		}
		a.waiter.Listen(a.busy.Channels, a.busy.Patterns)
		if a.busy.Foreign {
			a.waiter.HearOthers()
		}
		if a.obs != nil && !a.waits {
			a.waits = true
			a.obs.Wait()
		}
		won, again, err := a.sleep()
		if won || err != nil {
			return err
		}
		try = again
	}
}

// stop is closed when the acquisition must end: a re-entry works until Close.
func (a *acquisition) stop() <-chan struct{} {
	if a.again {
		return a.core.closing
	}
	return a.core.draining
}

// leave ends the waiting of an acquisition that got its holds.
func (a *acquisition) leave() {
	m := a.about()
	if a.place != nil {
		a.core.places.remove(a.place)
	}
	if a.waiter != nil {
		m.claim.Unwatch(a)
		a.waiter.Leave(false, m.hold.ValidUntil(), a.holder())
	}
	if a.reentered() {
		a.takeBack() // what it had left when it tried by itself
	}
}

// reentered reports whether nothing of what the acquisition got is its own.
func (a *acquisition) reentered() bool {
	for i := range a.members {
		if m := &a.members[i]; m.hold.Field().Name == m.attempt.Field {
			return false
		}
	}
	return true
}

// giveUp ends the waiting of an acquisition without a hold. What it may have
// left on the server is undone in the background.
func (a *acquisition) giveUp() {
	if a.place != nil {
		a.core.places.remove(a.place)
	}
	if a.waiter != nil {
		a.about().claim.Unwatch(a)
		a.desert()
		switch h, _ := a.core.reg.Given(&a.given); { // passed on just before it left
		case h == nil:
		case a.broken:
			h.Drop()
		default:
			held.Release(a.values, []*held.Hold{h}, nil)
		}
	} else if a.answered {
		a.unlist(a.at)
	}
	a.takeBack()
}

// unlist leaves the list of those that wait on which a refusal has put this client, if nobody of
// the process waits there: the caller has gone before it began to. part is the member that was
// refused. A quorum's copies may be watched afterwards: its bid's end does it.
func (a *acquisition) unlist(part int) {
	m := &a.members[part]
	if m.attempt.Place == "" {
		return
	}
	if a.bid != nil {
		a.bid.listed.Store(true)
		if !a.bid.over.Load() {
			return
		}
	}
	if !a.core.hub.Wanted(m.lock.of.Calls) {
		a.core.deserted(&m.lock.of, true)
	}
}

// takeBack undoes, in the background, what the acquisition may have left. Nothing
// is to be undone of a re-entry, but of tries before it: what a re-entry raised ends
// with the session.
func (a *acquisition) takeBack() {
	if !a.left.any() {
		return
	}
	done := make(chan struct{})
	a.undo = done
	a.core.reg.Undo(a.values, a.leftovers(), a.left.void(), false, func() { close(done) })
	a.left = leftover{}
}

// leftovers are what an attempt may have left, for whoever undoes it: copies,
// since the acquisition may go on under a new id.
func (a *acquisition) leftovers() []held.Leftover {
	a.mu.Lock()
	defer a.mu.Unlock()
	out := make([]held.Leftover, 0, len(a.members))
	for i := range a.members {
		m := &a.members[i]
		attempt := m.attempt
		m.claim.Retain()
		out = append(out, held.Leftover{Lock: &m.lock.of, Claim: m.claim, Attempt: &attempt})
	}
	return out
}

// anew undoes a grant that is of no use, in the background, while the acquisition
// goes on under a new id.
func (a *acquisition) anew() {
	a.left.queued = true
	if a.place != nil {
		a.core.places.remove(a.place)
		a.place = nil // the new id gets a place of its own
	}
	a.takeBack()
	a.newID()
}

// awaitUndone blocks until what was given up is undone, as long as the caller
// would have waited.
func (a *acquisition) awaitUndone() {
	if a.undo == nil {
		return
	}
	limit := time.Hour
	if !a.until.IsZero() {
		limit = time.Until(a.until)
	}
	t := time.NewTimer(limit)
	defer t.Stop()
	select {
	case <-a.undo:
	case <-a.ctx.Done():
	case <-t.C:
	case <-a.core.closing:
	}
}
