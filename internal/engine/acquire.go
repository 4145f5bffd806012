package engine

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/redlatch/redlatch/internal/conn"
	"github.com/redlatch/redlatch/internal/observe"
	"github.com/redlatch/redlatch/internal/pubsub"
	"github.com/redlatch/redlatch/lock"
)

// acquisition is one call of Lock or TryLock, from its first attempt until it
// has a hold or has given up.
type acquisition struct {
	core     *Core
	lock     *Lock
	kind     Kind
	slot     *slot
	ctx      context.Context // the caller's
	cctx     context.Context // for the commands: with the span, if there is one
	obs      observe.Acquisition
	wait     time.Duration // as asked for
	lease    time.Duration // 0: the watchdog's
	until    time.Time     // of the wait; zero: no limit
	once     bool          // wait 0
	group    *group        // of several locks; lock, kind and slot are then the one waited for
	tell     bool          // ask who the server is
	told     conn.Reply    // what it said
	answered bool          // it said something

	values detached // cctx, unless an observer has put its span into it

	mu      sync.Mutex // guards attempt against the watchdog's refreshes
	attempt Attempt

	waits     bool          // it has been seen to wait
	limbo     int           // commands that may have run or may still run
	queued    bool          // there may be a place of ours on the server
	adrift    bool          // a command is under way that nobody waits for; it cleans up
	unsettled *session      // a re-entry that may have raised its count and lease in vain
	undone    chan struct{} // closed when what was given up has been undone
	place     *place
	waiter    *pubsub.Waiter
	peers     chan struct{} // signalled when the same owner acquired in another call
	look      time.Time     // when to try without a message
	busy      Outcome
	lastErr   error
	retry     *backoff.ExponentialBackOff
}

// Acquire takes the lock for the owner in ctx. A negative wait has no limit.
func (l *Lock) Acquire(ctx context.Context, wait, lease time.Duration) (*Hold, error) {
	a, err := l.open(ctx, wait, lease)
	if err != nil {
		return nil, err
	}
	defer a.close()
	return a.finish()
}

// open begins an acquisition; close ends it.
func (l *Lock) open(ctx context.Context, wait, lease time.Duration) (*acquisition, error) {
	if l.err != nil {
		return nil, l.refused(ctx, wait, lease, l.err)
	}
	if err := CheckLease(lease); err != nil {
		return nil, l.refused(ctx, wait, lease, err)
	}
	c := l.core
	if ctx.Err() != nil {
		return nil, l.refused(ctx, wait, lease, &lock.NotAcquiredError{Name: l.name, Err: ctxError(ctx)})
	}
	if err := c.begin(); err != nil {
		return nil, l.refused(ctx, wait, lease, err)
	}
	o, err := c.owner(ctx)
	if err != nil {
		c.wg.Done()
		return nil, l.refused(ctx, wait, lease, err)
	}
	a := &acquisition{core: c, lock: l, kind: l.kind, slot: o.slot(c, l.key), ctx: ctx, wait: wait, lease: lease, once: wait == 0}
	a.values.Context = ctx
	a.cctx = &a.values
	switch {
	case wait == 0:
		// One attempt; an unanswered one must not last for ever.
		a.until = time.Now().Add(c.cfg.UnlockTimeout)
	case wait > 0:
		a.until = time.Now().Add(wait)
	}
	return a, nil
}

func (a *acquisition) close() {
	if a.group != nil {
		a.group.release()
	} else {
		a.slot.release()
	}
	a.core.wg.Done()
}

// finish runs the acquisition to its end.
func (a *acquisition) finish() (*Hold, error) {
	a.newID()
	a.observe(a.wait)
	h, err := a.run()
	a.observed(h, err)
	if err != nil {
		a.giveUp()
		if errors.Is(err, lock.ErrReplicaAcks) {
			a.awaitUndone()
		}
		return nil, err
	}
	a.leave(h)
	return h, nil
}

// CheckLease refuses leases that make no sense.
func CheckLease(lease time.Duration) error {
	switch {
	case lease < 0:
		return &lock.InvalidOptionError{Option: "lease", Reason: "it is negative"}
	case lease > 0 && lease < time.Millisecond:
		return &lock.InvalidOptionError{Option: "lease", Reason: "it is below the server's resolution of 1ms"}
	}
	return nil
}

// newID makes the acquisition a new one for the server.
func (a *acquisition) newID() {
	c := a.core
	field := append(make([]byte, 0, 80), c.cfg.ID...)
	field = append(append(append(field, ':'), a.slot.owner.text...), '-')
	at := len(field)
	name := string(strconv.AppendUint(field, c.acq.Add(1), 36))
	lease := a.lease
	if lease == 0 {
		lease = c.cfg.LeaseTime
	}
	if a.waiter != nil && a.waiter.Keyed() {
		// messages come by the id: listen for the new one
		a.forget()
	}
	a.mu.Lock()
	a.attempt = Attempt{
		Lock: a.lock, ID: name[at:], Field: name,
		Lease: lease, Trace: a.attempt.Trace,
	}
	a.mu.Unlock()
	a.limbo, a.queued = 0, false
	if a.group != nil {
		a.group.newID(a)
	}
}

// run is the one loop of all kinds: try, and while the lock is busy sleep until
// something may have changed.
func (a *acquisition) run() (*Hold, error) {
	try := !a.standsBehind()
	if try {
		a.listenEarly()
	}
	for {
		if try {
			h, err := a.try()
			if h != nil {
				return h, nil
			}
			var stop *stopError
			switch {
			case errors.As(err, &stop):
				return nil, stop.err
			case errors.Is(err, errSessionGone):
				// There is nothing to re-enter any more: acquire, unless it was asked
				// for with the lost hold's context.
				if a.ctx.Err() != nil {
					return nil, a.ended()
				}
				continue
			case err != nil && a.once:
				return nil, a.unavailable(err)
			case err != nil:
				a.lastErr = err
				if a.retry == nil {
					a.retry = newRetry()
				}
				if !sleep(a.ctx, a.core.draining, a.until, a.retry.NextBackOff()) {
					return nil, a.ended()
				}
				continue
			case a.once:
				return nil, a.notAcquired(nil)
			}
			a.lastErr = nil
			if a.retry != nil {
				a.retry.Reset()
			}
		}
		if a.waiter == nil {
			a.join()
		} else if try {
			a.waiter.Expect(a.look, a.seen())
		}
		a.waiter.Listen(a.busy.Channels, a.busy.Patterns)
		if a.obs != nil && !a.waits {
			a.waits = true
			a.obs.Wait()
		}
		h, again, err := a.sleep()
		if h != nil || err != nil {
			return h, err
		}
		try = again
	}
}

// standsBehind reports whether others of this process wait already: then this
// one queues up behind them without asking the server, and they are served in
// their order.
func (a *acquisition) standsBehind() bool {
	if a.once {
		return false
	}
	if a.group != nil {
		return a.group.standsBehind(a)
	}
	spec, opts := a.lock.spec(&a.attempt)
	if len(opts) > 0 || !a.core.hub.Waiting(spec.ID) {
		return false
	}
	a.core.mu.Lock()
	defer a.core.mu.Unlock()
	// else it re-enters (and a reader who asks to write need not be looked for: join
	// tells it of its session, so that it tries and is refused)
	return a.slot.sessions[modeIndex(a.kind.Mode())] == nil
}

// listenEarly begins to listen before the first attempt where the subscription
// stands already: what the attempt leaves in a queue can't be granted before it
// is heard then, so there is no need to look again.
func (a *acquisition) listenEarly() {
	if _, ok := a.kind.(Queuer); !ok || a.once {
		return
	}
	spec, opts := a.lock.spec(&a.attempt)
	if len(opts) == 0 || !a.core.hub.Standing(spec.ID) {
		return
	}
	a.core.mu.Lock()
	reenters := a.slot.sessions[modeIndex(a.kind.Mode())] != nil
	a.core.mu.Unlock()
	if !reenters {
		a.join()
		a.waiter.Take()
	}
}

// leave ends the waiting of an acquisition that got its hold.
func (a *acquisition) leave(h *Hold) {
	if a.place != nil {
		a.core.dog.removePlace(a.place)
	}
	if a.waiter != nil {
		a.slot.unwatch(a.peers)
		a.waiter.Leave(false, h.ValidUntil(), a.holder(h))
	}
	if a.group == nil && h.s.Field != a.attempt.Field {
		a.undo() // it re-entered after having tried by itself
	}
}

// giveUp ends the waiting of an acquisition without a hold. What it may have
// left on the server is undone in the background.
func (a *acquisition) giveUp() {
	if a.place != nil {
		a.core.dog.removePlace(a.place)
	}
	if a.waiter != nil {
		a.slot.unwatch(a.peers)
		a.waiter.Leave(true, time.Time{}, pubsub.Holder{})
	}
	if !a.adrift {
		a.undo()
	}
	if a.unsettled != nil {
		a.core.settleApart(a.unsettled)
	}
}

// undoApart takes back, in the background, a grant that is of no use, while the
// acquisition goes on under a new id.
func (a *acquisition) undoApart() {
	a.mu.Lock()
	b := &acquisition{
		core: a.core, lock: a.lock, kind: a.kind, slot: a.slot, ctx: a.ctx, cctx: a.cctx,
		attempt: a.attempt, limbo: a.limbo, queued: true, place: a.place,
	}
	a.mu.Unlock()
	if a.group != nil {
		b.group = a.group.apart()
	}
	a.limbo, a.queued, a.place = 0, false, nil // the new id gets a place of its own
	b.undo()
}

// awaitUndone blocks until what was given up is undone, as long as the caller
// would have waited.
func (a *acquisition) awaitUndone() {
	var tick <-chan time.Time
	if !a.until.IsZero() {
		t := a.core.pools.startTimer(time.Until(a.until))
		defer a.core.pools.stopTimer(t)
		tick = t.C
	}
	select {
	case <-a.undone:
	case <-a.ctx.Done():
	case <-tick:
	case <-a.core.closing:
	}
}

// undo takes back, in the background, what the acquisition may have left.
func (a *acquisition) undo() {
	if !a.queued && a.limbo == 0 {
		return
	}
	undone := make(chan struct{})
	a.undone = undone
	if a.group != nil {
		a.group.undo(a)
		return
	}
	a.slot.retain()
	a.core.wg.Add(1)
	go func() { // ends with the server's answer or the lease
		defer a.core.wg.Done()
		defer close(undone)
		defer a.slot.release()
		if a.slot.gate.enter(context.Background(), a.core.closingLate()) {
			a.abandon()
			a.slot.gate.leave()
		}
	}()
}

// ended says why a wait ended.
func (a *acquisition) ended() error {
	switch {
	case a.ctx.Err() != nil:
		return a.notAcquired(ctxError(a.ctx))
	case a.core.isDraining():
		return lock.ErrClosed
	case a.lastErr != nil:
		return a.unavailable(a.lastErr)
	}
	return a.notAcquired(nil)
}

func (c *Core) isDraining() bool {
	select {
	case <-c.draining:
		return true
	default:
		return false
	}
}

// CtxError is why ctx ended, with its cause if it has one of its own.
func CtxError(ctx context.Context) error { return ctxError(ctx) }

// ctxError is why ctx ended, with its cause if it has one of its own.
func ctxError(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if cause == nil || errors.Is(cause, err) {
		return err
	}
	return errors.Join(err, cause)
}

func (a *acquisition) notAcquired(why error) error {
	if why != nil && a.lastErr != nil {
		why = errors.Join(why, a.unavailable(a.lastErr))
	}
	return &lock.NotAcquiredError{Name: a.lock.name, Holder: a.busy.Holder, Remaining: max(a.busy.Remaining, 0), Err: why}
}

func (a *acquisition) unavailable(err error) error {
	return &lock.UnavailableError{Name: a.lock.name, Op: "acquire", Nodes: []lock.NodeError{{Node: a.core.cfg.Addr, Err: err}}}
}

// permanent wraps an answer that no retry will change.
func (a *acquisition) permanent(err error) error {
	return &stopError{&lock.ServerError{Name: a.lock.name, Op: "acquire", Err: err}}
}

// stopError ends the loop: trying again is no use or not wanted.
type stopError struct{ err error }

func (e *stopError) Error() string { return e.err.Error() }

// classify turns a failed command into what run does next.
func (a *acquisition) classify(err error) error {
	if a.core.isClosed() {
		return &stopError{lock.ErrClosed}
	}
	if conn.Classify(err) == conn.Permanent {
		return a.permanent(err)
	}
	return err
}
