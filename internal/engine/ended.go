package engine

import (
	"context"
	"errors"
	"time"

	"github.com/redlatch/redlatch/internal/sender"
	"github.com/redlatch/redlatch/lock"
)

// ended says why a wait ended.
func (a *acquisition) ended() error {
	switch {
	case a.ctx.Err() != nil:
		return a.notAcquired(CtxError(a.ctx))
	case a.core.isClosed(), a.core.isDraining() && !a.reenters:
		return lock.ErrClosed
	}
	return a.notAcquired(nil)
}

// CtxError is why ctx ended, with its cause if it has one of its own.
func CtxError(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if cause == nil || errors.Is(cause, err) {
		return err
	}
	return lock.Join(err, cause)
}

// notAcquired is the error of a wait that is over: why, if it was not for its
// length, and what is wrong with the servers, if anything is.
func (a *acquisition) notAcquired(why error) error {
	l := &a.about().lock.of
	e := &lock.NotAcquiredError{
		Name: l.Name, Holder: a.busy.Holder, Remaining: max(a.busy.Remaining, 0), Err: why,
		Own: a.core.owns(a.busy.Holder),
	}
	if !a.seenAt.IsZero() {
		e.Age = time.Since(a.seenAt)
	}
	if trouble := a.trouble(); trouble != nil {
		e.Err = lock.Join(why, a.core.unavailable(l.Name, "acquire", trouble))
	} else if a.lastErr != nil {
		e.Err = lock.Join(why, a.lastErr)
	}
	return e
}

func (c *Core) unavailable(name, op string, why error) *lock.UnavailableError {
	return &lock.UnavailableError{Name: name, Op: op, Nodes: []lock.NodeError{{Node: c.cfg.Addr, Err: why}}}
}

// owns reports whether an owner on the wire is one of this client's.
func (c *Core) owns(field string) bool {
	return len(field) > len(c.cfg.ID) && field[:len(c.cfg.ID)] == c.cfg.ID
}

// trouble is what keeps the servers from answering, whoever asked them. One that answered too
// late for a short lease has answered.
func (a *acquisition) trouble() error {
	if a.lastErr != nil && !errors.Is(a.lastErr, errTooLate) {
		return a.lastErr
	}
	if a.once && !a.serverAnswered && a.busy.Holder == "" && !time.Now().Before(a.patient) {
		return &sender.SilentError{For: a.core.slow()} // it had no longer
	}
	for i := range a.members {
		if err := a.core.send.Trouble(a.members[i].lock.of.Key); err != nil {
			return err
		}
	}
	return nil
}

// stopError ends the loop: trying again is no use or not wanted.
type stopError struct{ err error }

func (e *stopError) Error() string { return e.err.Error() }

func stop(err error) error { return &stopError{err} }
