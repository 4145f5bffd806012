package engine

import (
	"context"
	"errors"
	"time"

	"github.com/redlatch/redlatch/internal/conn"
	"github.com/redlatch/redlatch/lock"
)

// try makes one attempt: a re-entry when the owner holds the lock already, else
// an acquisition. Neither a hold nor an error means busy.
func (a *acquisition) try() (*Hold, error) {
	if a.group != nil {
		return a.group.try(a)
	}
	if !a.enterGate() {
		return nil, &stopError{a.endedUnanswered()} // another command of the owner's gets no answer
	}
	c := a.core
	c.mu.Lock()
	sess := a.slot.sessions[modeIndex(a.kind.Mode())]
	upgrade := sess == nil && a.upgradesLocked()
	other := ""
	if w := a.slot.sessions[modeWrite]; w != nil && a.kind.Mode() == lock.ModeRead {
		other = w.Field
	}
	drains := c.drains && other == "" // a writer that also reads re-enters
	c.mu.Unlock()
	switch {
	case sess != nil:
		return a.reenter(sess)
	case upgrade:
		a.slot.gate.leave()
		return nil, &stopError{lock.ErrUpgrade}
	case drains:
		a.slot.gate.leave()
		return nil, &stopError{lock.ErrClosed}
	}
	a.mu.Lock()
	a.attempt.Other = other
	a.mu.Unlock()
	return a.acquire()
}

// upgradesLocked reports whether a reader asks for the write lock.
func (a *acquisition) upgradesLocked() bool {
	return a.kind.Mode() == lock.ModeWrite && a.slot.sessions[modeRead] != nil
}

// enterGate waits for the owner's other command of this lock, if there is one.
func (a *acquisition) enterGate() bool {
	if a.slot.gate.tryEnter() {
		return true
	}
	ctx := a.ctx
	if !a.until.IsZero() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, a.until)
		defer cancel()
	}
	return a.slot.gate.enter(ctx, a.core.closing)
}

// acquire sends one 0→1 attempt. The gate is ours and is left at its end; if the
// caller goes first, by the command's goroutine.
func (a *acquisition) acquire() (*Hold, error) {
	c := a.core
	select {
	case c.inFlight <- struct{}{}:
	default:
		if !a.queueForFlight() {
			a.slot.gate.leave()
			return nil, &stopError{a.ended()}
		}
	}
	a.mu.Lock()
	a.attempt.Wait = a.waitLeft()
	cmd := a.kind.Acquire(&a.attempt)
	a.mu.Unlock()
	if c.cfg.ReplicaAcks > 0 {
		cmd.Acks, cmd.AckTimeout = c.cfg.ReplicaAcks, c.cfg.AckTimeout
	}
	cmd.Tell = a.tell
	if a.obs != nil {
		a.obs.Attempt()
	}
	f, ok := c.fly(a.ctx, a.cctx, a.until, cmd, a)
	if !ok {
		a.adrift = true
		return nil, &stopError{a.endedUnanswered()}
	}
	<-c.inFlight
	defer a.slot.gate.leave()
	if f.err != nil {
		a.failed(f.err)
		return nil, a.classify(f.err)
	}
	a.told, a.answered = f.reply, true
	out := a.read(f)
	switch {
	case out.Upgrade:
		return nil, &stopError{lock.ErrUpgrade}
	case out.Void:
		a.newID()
		return nil, errVoid
	case !out.Acquired:
		return nil, nil //nolint:nilnil // busy is neither
	}
	return a.won(f, out)
}

var errVoid = errors.New("the server had marked this acquisition as given up")

// queueForFlight waits for one of the places of commands under way.
func (a *acquisition) queueForFlight() bool {
	var tick <-chan time.Time
	if !a.until.IsZero() {
		t := time.NewTimer(time.Until(a.until))
		defer t.Stop()
		tick = t.C
	}
	select {
	case a.core.inFlight <- struct{}{}:
		return true
	case <-a.ctx.Done():
	case <-a.core.draining:
	case <-tick:
	}
	return false
}

func (a *acquisition) waitLeft() time.Duration {
	switch {
	case a.once:
		return 0
	case a.until.IsZero():
		return forever
	}
	return max(time.Until(a.until), time.Millisecond)
}

// endedUnanswered is ended for an attempt that got no answer: a wait that was
// used up this way says "unavailable", not "busy".
func (a *acquisition) endedUnanswered() error {
	if a.ctx.Err() == nil && a.lastErr == nil {
		a.lastErr = errNoAnswer
	}
	return a.ended()
}

// failed notes what a failed command may have left.
func (a *acquisition) failed(err error) {
	if conn.Classify(err) == conn.Ambiguous {
		a.limbo++
	}
}

// read interprets an answer and notes what it leaves on the server, and what it
// tells a waiter.
func (a *acquisition) read(f *flight) Outcome {
	out := a.settle(f)
	if !out.Acquired {
		a.busy = out
		look := out.LookIn
		if look == 0 {
			look = out.Remaining + 2*time.Millisecond
		}
		if out.Remaining == 0 && out.LookIn == 0 {
			look = a.core.cfg.LeaseTime // a key without a lease: nobody knows
		}
		a.look = time.Now().Add(look)
		if a.obs != nil {
			a.obs.Busy(out.Holder, out.Trace, out.Position)
		}
	}
	return out
}

// settle interprets an answer and notes what it leaves on the server: all that
// matters of an answer that came too late. The caller, who has gone on, tells of
// the holder and ends the observation meanwhile, so nothing here touches those.
func (a *acquisition) settle(f *flight) Outcome {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.attempt.Sent = f.sent
	out := a.kind.Acquired(&a.attempt, f.reply)
	a.queued = out.Queued
	if out.Renewed && a.limbo > 0 {
		a.limbo-- // one of the lost replies was this acquisition's
	}
	return out
}

// leaving implements latecomer.
func (a *acquisition) leaving() { a.slot.retain() }

// late takes the answer of an attempt whose caller has gone: a grant is given
// back, a place in the queue left.
func (a *acquisition) late(f *flight) {
	<-a.core.inFlight
	defer a.slot.release()
	defer a.slot.gate.leave()
	undo := a.queued || a.limbo > 0
	if f.err != nil {
		a.failed(f.err)
		undo = undo || a.limbo > 0
	} else {
		out := a.settle(f)
		undo = undo || out.Acquired || out.Queued || a.limbo > 0
		if out.Acquired {
			a.givenBack("late grant given back")
		}
	}
	if undo {
		a.abandon()
	}
}

// limboTTL is how long the server refuses late commands of an acquisition that
// was given up while some of its commands had no answer. What is left of them is
// in the server's own buffers: connections that are closed discard what they
// have not sent.
const limboTTL = 5 * time.Second

func (a *acquisition) void() time.Duration {
	if a.limbo == 0 {
		return 0
	}
	return limboTTL
}

// abandon undoes what the acquisition may have left, until the server has
// answered or a grant would have run out by itself. The gate is the caller's.
func (a *acquisition) abandon() {
	if a.place != nil {
		a.core.dog.removePlace(a.place)
		a.place.wait() // a refresh under way must not come after it
	}
	deadline := time.Now().Add(a.attempt.Lease)
	retry := newRetry()
	for {
		a.mu.Lock()
		cmd := a.kind.Abandon(&a.attempt, a.void())
		a.mu.Unlock()
		_, err := a.core.run.Run(context.WithoutCancel(a.cctx), cmd)
		if err == nil || conn.IsPermanent(err) {
			if err != nil {
				a.core.cfg.Log.WarnContext(a.ctx, "redlatch: giving back refused", a.logArgs("error", err)...)
			}
			a.limbo, a.queued = 0, false
			return
		}
		if !sleep(context.Background(), a.core.closingLate(), deadline, retry.NextBackOff()) {
			return
		}
	}
}

// won makes a hold of a grant, unless it came too late or too few replicas have
// it. The gate is ours.
func (a *acquisition) won(f *flight, out Outcome) (*Hold, error) {
	sent, lease := f.sent, a.attempt.Lease
	if !out.Granted.IsZero() {
		sent, lease = out.Granted, out.Lease
	}
	if passed(time.Now(), sent.Add(lease-drift(lease))) {
		a.givenBack("grant given back: its answer came after the lease had run out")
		a.undoApart()
		a.newID()
		return nil, errTooLate
	}
	if want := a.core.cfg.ReplicaAcks; want > 0 && out.Granted.IsZero() && f.reply.Acked < want {
		a.givenBack("grant given back: too few replicas acknowledged it")
		a.queued = true // giving up undoes it
		return nil, &stopError{&lock.ReplicaAcksError{Name: a.lock.name, Want: want, Got: f.reply.Acked, Err: f.reply.Waits}}
	}
	if h := a.hold(sent, lease, out); h != nil {
		return h, nil
	}
	// Close or Shutdown came while the answer was on its way: nobody would renew
	// or end the hold.
	a.undoApart()
	return nil, &stopError{lock.ErrClosed}
}

var errTooLate = errors.New("the answer came after the lease had run out")

// hold makes the session and its first hold; nil when the client takes no more.
func (a *acquisition) hold(sent time.Time, lease time.Duration, out Outcome) *Hold {
	a.mu.Lock() // a refresh of the queue place may still be writing to Data
	defer a.mu.Unlock()
	a.slot.retain()
	a.core.mu.Lock()
	if a.core.closed || a.core.drains && a.attempt.Other == "" { // a writer that reads re-enters
		a.core.mu.Unlock()
		a.slot.release()
		return nil
	}
	defer a.core.mu.Unlock()
	return a.holdLocked(sent, lease, out)
}

// holdLocked is hold; the slot has been retained for it.
func (a *acquisition) holdLocked(sent time.Time, lease time.Duration, out Outcome) *Hold {
	c := a.core
	g := &grant{session: session{
		Lock: a.lock, Field: a.attempt.Field, Token: out.Token, Data: a.attempt.Data,
		Traced: len(a.attempt.Trace) > 1, slot: a.slot, limbo: a.limbo, index: -1,
	}}
	s := &g.session
	s.holds = g.list[:0]
	if a.obs != nil {
		s.link = a.obs.Link()
	}
	a.slot.sessions[modeIndex(a.kind.Mode())] = s
	s.until = sent.Add(lease - drift(lease))
	h := s.newHoldLocked(a.ctx, &g.hold, a.lease, sent)
	if !out.Granted.IsZero() {
		// shorter than asked for until it is confirmed
		h.until = s.until
		s.confirm, s.granted = a.attempt.Lease, time.Now()
		// Late enough that a short section needs no confirmation at all, early
		// enough for several tries.
		s.confirmAt = s.granted.Add(s.until.Sub(s.granted) / 4)
	}
	c.dog.scheduleLocked(s, sent)
	a.slot.tellWatchersLocked()
	return h
}

// reenter adds a hold to the owner's session. The gate is ours.
func (a *acquisition) reenter(s *session) (*Hold, error) {
	c := a.core
	lease := a.attempt.Lease
	c.mu.Lock()
	lost := c.expireLocked(s, time.Now())
	dead := s.dead
	count, _ := s.remainLocked(nil, time.Now())
	c.mu.Unlock()
	c.tell(lost)
	if dead {
		a.slot.gate.leave()
		return nil, errSessionGone
	}
	if a.obs != nil {
		a.obs.Attempt()
	}
	cmd := s.Lock.kind.Reenter(s, count+1, lease)
	cmd.Tell = a.tell
	f, ok := c.fly(a.ctx, a.cctx, a.until, cmd, reentry{s})
	if !ok {
		a.unsettled = nil // what comes of this one settles it
		return nil, &stopError{a.endedUnanswered()}
	}
	defer a.slot.gate.leave()
	if f.err != nil {
		if conn.Classify(f.err) == conn.Ambiguous {
			a.unsettled = s
		}
		return nil, a.classify(f.err)
	}
	a.told, a.answered = f.reply, true
	a.slot.retain() // the hold's; not under the mutex
	h, lost, err := a.reenteredLocking(s, f, lease)
	if h == nil {
		a.slot.release()
		a.unsettled = s
	} else {
		a.unsettled = nil
	}
	c.tell(lost)
	return h, err
}

// reenteredLocking takes the answer of a re-entry.
func (a *acquisition) reenteredLocking(s *session, f *flight, lease time.Duration) (h *Hold, lost []*Hold, err error) {
	c := a.core
	c.mu.Lock()
	defer c.mu.Unlock()
	if f.reply.Code == 0 {
		lost = c.loseLocked(s, lock.LossGone, nil)
	}
	switch {
	case c.closed:
		return nil, lost, &stopError{lock.ErrClosed}
	case s.dead:
		return nil, lost, errSessionGone
	case passed(time.Now(), f.sent.Add(lease-drift(lease))):
		return nil, lost, errTooLate
	}
	return a.reenteredLocked(s, f.sent, lease), nil, nil
}

// reenteredLocked adds the hold of a re-entry; the slot has been retained for it.
func (a *acquisition) reenteredLocked(s *session, sent time.Time, lease time.Duration) *Hold {
	if a.lease == 0 {
		s.until = later(s.until, sent.Add(lease-drift(lease)))
	}
	h := s.newHoldLocked(a.ctx, &holdMemory{}, a.lease, sent)
	h.again = true
	a.core.dog.scheduleLocked(s, sent)
	return h
}

var errSessionGone = errors.New("the hold to re-enter was lost")

// granted reads messages for this waiter alone.
func (a *acquisition) granted(payloads []string) (*Hold, bool, error) {
	q, ok := a.kind.(Queuer)
	if !ok {
		return nil, true, nil
	}
	if !a.enterGate() {
		return nil, false, a.ended()
	}
	defer a.slot.gate.leave()
	a.mu.Lock()
	out, mine := q.Granted(&a.attempt, payloads)
	a.mu.Unlock()
	if !mine {
		return nil, true, nil
	}
	a.queued = true // until there is a hold, giving up must undo the grant
	if a.core.cfg.ReplicaAcks > 0 || time.Until(out.Granted.Add(out.Lease-drift(out.Lease))) < out.Lease/2 {
		// Acquire recognises the grant and sets the whole lease.
		return nil, true, nil
	}
	h, err := a.won(&flight{sent: out.Granted}, out)
	var stop *stopError
	if errors.As(err, &stop) {
		return nil, false, stop.err
	}
	if err != nil {
		return nil, true, nil
	}
	return h, false, nil
}

// closingLate is closed UnlockTimeout after Close began: work that leaves
// nothing behind may take that long.
func (c *Core) closingLate() <-chan struct{} { return c.closedLate }
