package multilock

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/redlatch/redlatch/internal/engine"
	"github.com/redlatch/redlatch/internal/lease"
	"github.com/redlatch/redlatch/internal/observe"
	"github.com/redlatch/redlatch/lock"
)

// acquisition is one call of Lock or TryLock: what rounds and quorums have in
// common.
type acquisition struct {
	m     *MultiLock
	plain context.Context // the caller's, with the owner: the hold is made with it
	ctx   context.Context // and with the whole's span: the members' are below it
	obs   observe.Acquisition
	once  bool
	began time.Time // or what it is a unit of
	until time.Time // of the wait; zero: no limit
	lease time.Duration

	pause  *backoff.ExponentialBackOff
	signal chan struct{} // of a quorum: there is news
	told   atomic.Bool   // of a quorum: the owner has got the lock in another call
	waits  bool          // it has been seen to wait
	last   error         // what the last round failed with
}

// take is Lock and TryLock, as a part of what began then; a negative wait has no limit. It ends at until, if that is
// not zero, also where an attempt without waiting would take longer.
func (m *MultiLock) take(ctx context.Context, began, until time.Time, wait, lease time.Duration) (h *hold, err error) {
	spanned, obs := m.observe(ctx, wait, lease)
	ended, told := false, false
	defer func() {
		switch { // a panic in the user's code
		case !ended && obs != nil:
			obs.End(observe.Result{Err: observe.ErrPanic})
		case !told && h != nil: // nobody gets the hold
			h.drop()
		}
	}()
	h, err = m.acquire(ctx, spanned, obs, began, until, wait, lease)
	ended = true
	m.observed(obs, h, err)
	told = true
	return h, err
}

// acquire is take without its observation. spanned is ctx with the span that the
// members' are children of.
func (m *MultiLock) acquire(
	ctx, spanned context.Context, obs observe.Acquisition, began, until time.Time, wait, length time.Duration,
) (*hold, error) {
	if err := m.refused(); err != nil {
		return nil, err
	}
	if err := lease.Check(length); err != nil {
		return nil, err
	}
	a := &acquisition{m: m, obs: obs, once: wait == 0, began: began, until: until, lease: length, pause: newPause()}
	var done func()
	a.plain, a.ctx, done = engine.OneOwner(ctx, spanned)
	defer done()
	if _, err := engine.OwnerOf(a.ctx); err != nil {
		return nil, err
	}
	if ctx.Err() != nil {
		return nil, a.notAcquired(nil)
	}
	if wait > 0 {
		a.until = lease.Earlier(time.Now().Add(wait), until)
	}
	take := a.takeAll
	if m.quorum {
		take = a.takeQuorum
	}
	h, err := take()
	if err != nil && !observe.Waited(err) && endsWithHold(ctx) {
		return nil, a.notAcquired(nil)
	}
	return h, err
}

// newPause is the random pause between rounds: anything from nothing to twice the
// interval, so that two that keep disturbing each other come apart.
func newPause() *backoff.ExponentialBackOff {
	return backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(time.Millisecond),
		backoff.WithRandomizationFactor(1),
		backoff.WithMultiplier(2),
		backoff.WithMaxInterval(200*time.Millisecond),
		backoff.WithMaxElapsedTime(0),
	)
}

// over reports whether the wait or the caller's ctx has ended.
func (a *acquisition) over() bool {
	return a.ctx.Err() != nil || !a.until.IsZero() && !time.Now().Before(a.until)
}

// limited is ctx, which ends with the wait, too.
func (a *acquisition) limited() (context.Context, context.CancelFunc) {
	if a.until.IsZero() {
		return a.ctx, func() {}
	}
	return context.WithDeadline(a.ctx, a.until)
}

// sleep pauses between rounds. An error is what the acquisition ends with.
func (a *acquisition) sleep() error {
	for at := time.Now().Add(a.pause.NextBackOff()); ; {
		if over, err := a.sleepUntil(at); over || err != nil {
			return err
		}
	}
}

// sleepUntil blocks until at (over), a signal, or the end of the wait (an error).
func (a *acquisition) sleepUntil(at time.Time) (over bool, err error) {
	if a.obs != nil && !a.waits {
		a.obs.Wait()
	}
	a.waits = true
	if !a.until.IsZero() && a.until.Before(at) {
		at = a.until
	}
	t := time.NewTimer(time.Until(at))
	defer t.Stop()
	select {
	case <-t.C:
		if !a.over() {
			return true, nil
		}
	case <-a.signal:
		return false, nil
	case <-a.ctx.Done():
	}
	return true, a.notAcquired(a.last)
}

// closed reports whether so many of the clients take no more acquisitions that one with ctx can't be
// made. Each round begins with it; nothing watches them between rounds.
func (m *MultiLock) closed(ctx context.Context) bool {
	spare := 0
	if m.quorum {
		spare = len(m.leaves) - majority(len(m.leaves))
	}
	for _, l := range m.leaves {
		if l.closed(ctx) {
			spare--
		}
	}
	return spare < 0
}

// closed is about one leaf. A client that takes no more
// acquisitions lets an owner re-enter, until it is closed.
func (l leaf) closed(ctx context.Context) bool {
	if l.quorum != nil {
		return l.quorum.closed(ctx)
	}
	core := l.eng.Core()
	return core.Refuses(false) && core.Refuses(l.eng.Inside(ctx))
}

// errTooLate: what was taken first had ended before the last was there.
var errTooLate = errors.New("the first members' leases ended before the last were acquired")

// passing reports whether another round may get what failed with err.
func passing(err error) bool {
	return observe.Waited(err) || errors.Is(err, lock.ErrUnavailable) || errors.Is(err, errTooLate) || errors.Is(err, errHoldLate)
}

// verdict is what the acquisition ends with after a round that failed with err;
// nil: there is to be another one.
func (a *acquisition) verdict(err error) error {
	a.last = err
	ends := errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
	switch over := a.once || a.over(); {
	case over && (passing(err) || ends):
		return a.notAcquired(err)
	case passing(err):
		return nil
	}
	return err
}

// notAcquired is the error of an acquisition whose wait or ctx is over; last is
// what the last round failed with, if there was one.
func (a *acquisition) notAcquired(last error) error {
	out := &lock.NotAcquiredError{Name: a.m.name}
	if busy, ok := errors.AsType[*lock.NotAcquiredError](last); ok {
		*out = *busy
		last = busy.Err
	}
	if ended := a.ctx.Err(); ended != nil && !errors.Is(last, ended) {
		last = lock.Join(engine.CtxError(a.ctx), last)
	}
	out.Err = last
	return out
}

// nodesOf are the nodes whose failure err tells of.
func nodesOf(err error) []lock.NodeError {
	switch un, ok := errors.AsType[*lock.UnavailableError](err); {
	case ok && len(un.Nodes) > 0:
		return un.Nodes
	case errors.Is(err, lock.ErrUnavailable):
		return []lock.NodeError{{Err: err}}
	}
	return nil
}

// unavailable adds to what is known of a wait that some nodes failed; it is what
// it was when none did.
func (m *MultiLock) unavailable(known error, away []lock.NodeError) error {
	if len(away) == 0 {
		return known
	}
	out := &lock.NotAcquiredError{Name: m.name}
	if busy, ok := errors.AsType[*lock.NotAcquiredError](known); ok && busy.Holder != "" { // else the set is what is not available
		*out = *busy
	}
	out.Err = &lock.UnavailableError{Name: m.name, Op: "acquire", Nodes: away}
	return out
}

// valid reports whether the part is held by now.
func (p *part) valid(now time.Time) bool {
	for _, h := range p.holds() {
		if lease.Passed(now, h.ValidUntil()) || errors.Is(endOf(h), lock.ErrLeaseLost) {
			return false
		}
	}
	return true
}

// giveBack frees what a failed round took, of which some may be nil. It waits for the answers, but not for longer than
// limit, nor past the end of the wait, of ctx or of a client: what can't be freed by then is freed in the background,
// or by its lease.
func (a *acquisition) giveBack(parts []*part, limit time.Duration) {
	var waits []func() []error
	for i, p := range parts {
		if p != nil {
			parts[i] = nil // whatever its release comes to, it is not begun again
			waits = append(waits, p.release(context.WithoutCancel(a.ctx), time.Now()))
		}
	}
	if len(waits) == 0 {
		return
	}
	ctx, cancel := a.limited()
	defer cancel()
	over := time.NewTimer(limit)
	defer over.Stop()
	freed := make(chan any, 1)
	go func() { // ends with the answers, whose time is bounded
		freed <- caught(func() {
			for _, wait := range waits {
				wait()
			}
		})
	}()
	look := time.NewTicker(50 * time.Millisecond)
	defer look.Stop()
	for {
		select {
		case broke := <-freed:
			if broke != nil {
				panic(broke)
			}
			return
		case <-ctx.Done():
			return
		case <-over.C:
			return
		case <-look.C:
			if a.m.closed(a.ctx) {
				return
			}
		}
	}
}
