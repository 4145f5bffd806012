package multilock

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/redlatch/redlatch/internal/engine"
	"github.com/redlatch/redlatch/internal/held"
	"github.com/redlatch/redlatch/internal/observe"
	"github.com/redlatch/redlatch/lock"
)

// take is Lock and TryLock; a negative wait has no limit.
func (m *MultiLock) take(ctx context.Context, wait, lease time.Duration) (lock.Hold, error) {
	spanned, obs := m.observe(ctx, wait, lease)
	h, err := m.acquire(ctx, spanned, obs, wait, lease)
	m.observed(obs, h, err)
	if err != nil {
		return nil, err
	}
	return h, nil
}

// acquire is take without its observation. spanned is ctx with the span that the
// members' are children of.
func (m *MultiLock) acquire(ctx, spanned context.Context, obs observe.Acquisition, wait, lease time.Duration) (*hold, error) {
	if m.err != nil {
		return nil, m.err
	}
	if err := held.CheckLease(lease); err != nil {
		return nil, err
	}
	if ctx.Err() != nil {
		return nil, &lock.NotAcquiredError{Name: m.name, Err: engine.CtxError(ctx)}
	}
	one, spanned, done := engine.OneOwner(ctx, spanned)
	defer done()
	var until time.Time
	if wait > 0 {
		until = time.Now().Add(wait)
	}
	if m.quorum {
		return m.takeQuorum(one, spanned, obs, wait == 0, until, lease)
	}
	units, err := m.settle(ctx)
	if err != nil {
		return nil, err
	}
	if len(units) == 1 {
		attempt(obs)
		p, err := units[0].acquire(spanned, wait, lease)
		if err != nil {
			return nil, err
		}
		return newHold(one, m, []*part{p}, len(p.leaves)), nil
	}
	r := &rounds{ctx: spanned, obs: obs, m: m, units: units, once: wait == 0, until: until, lease: lease}
	parts, err := r.run()
	if err != nil {
		return nil, err
	}
	return newHold(one, m, parts, len(m.leaves)), nil
}

// rounds is one acquisition of several units.
type rounds struct {
	ctx   context.Context
	obs   observe.Acquisition
	m     *MultiLock
	units []unit
	once  bool
	until time.Time // zero: no limit
	lease time.Duration

	round int
	pause *backoff.ExponentialBackOff
	last  error // why the last round failed
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

// run makes rounds until one gets everything.
func (r *rounds) run() ([]*part, error) {
	if r.once {
		return r.from(-1)
	}
	return r.from(r.behind())
}

// from makes rounds; in the next one, unit first is waited for before the others
// are tried, unless it is negative.
func (r *rounds) from(first int) ([]*part, error) {
	for ; ; r.round++ {
		parts, busy, err := r.try(first)
		switch {
		case err == nil:
			return parts, nil
		case r.ctx.Err() != nil && !errors.Is(err, r.ctx.Err()):
			r.last = err
			return nil, r.ended()
		case r.once || r.final(err):
			return nil, err
		}
		r.last = err
		waited := first >= 0
		first = busy
		if waited || busy < 0 {
			if r.pause == nil {
				r.pause = newPause()
			}
			if err := r.sleep(r.pause.NextBackOff()); err != nil {
				return nil, err
			}
		}
	}
}

// behind is the first unit that others of this process wait for: they were here
// before.
func (r *rounds) behind() int {
	for i := range r.units {
		for _, l := range r.units[i].leaves {
			if l.eng != nil && l.eng.Waiting() && !l.eng.Holds(r.ctx) {
				return i
			}
		}
	}
	return -1
}

// final reports whether another round is no use.
func (r *rounds) final(err error) bool {
	if r.ctx.Err() != nil || (!r.until.IsZero() && !time.Now().Before(r.until)) {
		return true
	}
	return !errors.Is(err, lock.ErrNotAcquired) && !errors.Is(err, lock.ErrUnavailable) && !errors.Is(err, errTooLate)
}

// patience is how long a round that holds something queues for a fair member.
func (r *rounds) patience(u *unit) time.Duration {
	core := u.leaves[0].eng.Core()
	return min(20*time.Millisecond<<min(r.round, 10), core.LeaseTime()/10)
}

// try makes one round: unit first is waited for, then all others are tried at
// once. When it fails nothing is kept; busy is the unit to wait for, -1 if none.
func (r *rounds) try(first int) (parts []*part, busy int, err error) {
	attempt(r.obs)
	parts = make([]*part, len(r.units))
	errs := make([]error, len(r.units))
	if first >= 0 {
		wait := time.Duration(-1)
		if !r.until.IsZero() {
			if wait = time.Until(r.until); wait <= 0 {
				return nil, -1, r.ended()
			}
		}
		if parts[first], err = r.units[first].acquire(r.ctx, wait, r.lease); err != nil {
			return nil, -1, err
		}
	}
	var wg sync.WaitGroup
	for i := range r.units {
		if i == first {
			continue
		}
		u, wait := &r.units[i], time.Duration(0)
		if first >= 0 && u.fair() {
			wait = r.patience(u)
		}
		wg.Go(func() { parts[i], errs[i] = u.acquire(r.ctx, wait, r.lease) }) // ends with the attempt, which is bounded
	}
	wg.Wait()
	busy, err = r.verdict(parts, errs)
	if err == nil {
		return parts, -1, nil
	}
	r.giveBack(parts)
	return nil, busy, err
}

var errTooLate = errors.New("redlatch: the first members' leases ended before the last were acquired")

// verdict says what a round came to: nil if everything is held.
func (r *rounds) verdict(parts []*part, errs []error) (busy int, err error) {
	busy = -1
	var away []lock.NodeError
	var busyErr error
	for i, e := range errs {
		var un *lock.UnavailableError
		switch {
		case e == nil:
		case errors.Is(e, lock.ErrNotAcquired):
			if busyErr == nil {
				busy, busyErr = i, e
			}
		case errors.As(e, &un):
			away = append(away, un.Nodes...)
		default:
			return -1, e
		}
	}
	switch {
	case len(away) > 0:
		return busy, &lock.UnavailableError{Name: r.m.name, Op: "acquire", Nodes: away}
	case busyErr != nil:
		return busy, busyErr
	}
	now := time.Now()
	for _, p := range parts {
		for _, h := range p.holds() {
			if held.Passed(now, h.ValidUntil()) || errors.Is(context.Cause(h.Context()), lock.ErrLeaseLost) {
				return -1, errTooLate
			}
		}
	}
	return -1, nil
}

// giveBack frees what a failed round took. It waits for the answers, unless the
// caller has gone.
func (r *rounds) giveBack(parts []*part) {
	var waits []func() []error
	for _, p := range parts {
		if p != nil {
			waits = append(waits, p.release(context.WithoutCancel(r.ctx)))
		}
	}
	if r.ctx.Err() != nil {
		return
	}
	for _, wait := range waits {
		wait() // what can't be freed now is freed in the background, or by its lease
	}
}

// sleep pauses between rounds.
func (r *rounds) sleep(d time.Duration) error {
	if !r.until.IsZero() {
		d = min(d, time.Until(r.until))
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-r.ctx.Done():
	}
	if r.ctx.Err() != nil || (!r.until.IsZero() && !time.Now().Before(r.until)) {
		return r.ended()
	}
	return nil
}

// ended says why the wait ended: with what the last round failed.
func (r *rounds) ended() error {
	if r.ctx.Err() == nil {
		if r.last != nil {
			return r.last
		}
		return &lock.NotAcquiredError{Name: r.m.name}
	}
	out := &lock.NotAcquiredError{Name: r.m.name, Err: engine.CtxError(r.ctx)}
	var busy *lock.NotAcquiredError
	switch {
	case errors.As(r.last, &busy):
		out.Name, out.Holder, out.Remaining = busy.Name, busy.Holder, busy.Remaining
	case r.last != nil:
		out.Err = errors.Join(out.Err, r.last)
	}
	return out
}
