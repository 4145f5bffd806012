package engine

import (
	"context"
	"errors"
	"time"

	"github.com/redlatch/redlatch/internal/conn"
	"github.com/redlatch/redlatch/internal/observe"
	"github.com/redlatch/redlatch/lock"
)

// observed is the lock as an observer knows it.
func (l *Lock) observed() observe.Lock { return observe.Lock{Name: l.name, Type: l.kind.Type()} }

// observe begins the observation of an acquisition.
func (a *acquisition) observe(wait time.Duration) {
	o := a.core.cfg.Observer
	if o == nil {
		return
	}
	a.cctx, a.obs = o.Acquire(a.ctx, a.lock.observed(), wait, a.lease)
	if a.obs != nil {
		a.attempt.Trace = a.obs.Trace()
	}
}

// observed ends it.
func (a *acquisition) observed(h *Hold, err error) {
	if h != nil {
		if o := a.core.cfg.Observer; o != nil {
			o.Held(a.lock.observed())
		}
	}
	if a.obs == nil {
		return
	}
	r := observe.Result{Err: err, Owner: a.attempt.Field, Position: a.busy.Position}
	if h != nil {
		a.core.mu.Lock()
		r.Owner, r.Token = h.s.Field, h.s.Token
		r.Count, _ = h.s.remainLocked(nil, time.Now())
		a.core.mu.Unlock()
	}
	a.obs.End(r)
}

// endedHow names the end of a hold.
func endedHow(cause error) string {
	switch {
	case cause == nil:
		return "released"
	case errors.Is(cause, lock.ErrClosed):
		return "closed"
	}
	return "lost"
}

// renewalError is what a renewal came to, for an observer.
func renewalError(vals []conn.Value, err error) error {
	switch {
	case err != nil:
		return err
	case vals[0].Int < 0:
		return errRefused
	case vals[0].Int == 0:
		return lock.ErrLeaseLost
	}
	return nil
}

// observed is a Runner whose commands an Observer sees.
type observed struct {
	conn.Runner
	o observe.Observer
}

// Run implements conn.Runner.
func (r observed) Run(ctx context.Context, cmd conn.Command) (conn.Reply, error) {
	ctx, end := r.o.Command(ctx, cmd.Script.Name)
	reply, err := r.Runner.Run(ctx, cmd)
	end(err)
	return reply, err
}
