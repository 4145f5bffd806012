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
func (l *Lock) observed() observe.Lock {
	if l.kind == nil { // a bad name or option
		return observe.Lock{Name: l.name, Type: "unknown"}
	}
	return observe.Lock{Name: l.name, Type: l.kind.Type()}
}

// Observer is the client's observer, or nil.
func (c *Core) Observer() observe.Observer { return c.cfg.Observer }

// refused observes an acquisition that ended before it began.
func (l *Lock) refused(ctx context.Context, wait, lease time.Duration, err error) error {
	if o := l.core.cfg.Observer; o != nil {
		if _, obs := o.Acquire(ctx, l.observed(), wait, lease); obs != nil {
			obs.End(observe.Result{Err: err})
		}
	}
	return err
}

// operation begins the observation of an operation that is no acquisition.
func (l *Lock) operation(ctx context.Context, op, owner string) (context.Context, func(error)) {
	if o := l.core.cfg.Observer; o != nil {
		return o.Operation(ctx, l.observed(), op, owner)
	}
	return ctx, func(error) {}
}

// observe begins the observation of an acquisition.
func (a *acquisition) observe(wait time.Duration) {
	o := a.core.cfg.Observer
	if o == nil {
		return
	}
	if a.group != nil {
		a.obs = a.group.observe(a, o, wait)
	} else {
		var ctx context.Context
		ctx, a.obs = o.Acquire(a.ctx, a.lock.observed(), wait, a.lease)
		a.values.Context = ctx
	}
	if a.obs != nil {
		a.attempt.Trace = a.obs.Trace()
	}
}

// observed ends it.
func (a *acquisition) observed(h *Hold, err error) {
	if a.group != nil {
		a.group.observed(a, err)
		return
	}
	if h != nil && h.counted {
		a.core.cfg.Observer.Held(a.lock.observed())
	}
	if a.obs != nil {
		a.obs.End(result(a, h, err))
	}
}

// result is what an acquisition came to, for an observer.
func result(a *acquisition, h *Hold, err error) observe.Result {
	r := observe.Result{Err: err, Owner: a.attempt.Field}
	if h != nil {
		a.core.mu.Lock()
		r.Owner, r.Token = h.s.Field, h.s.Token
		r.Count, _ = h.s.remainLocked(nil, time.Now())
		a.core.mu.Unlock()
	}
	return r
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

// RunMulti implements conn.Runner.
func (r observed) RunMulti(ctx context.Context, cmds []conn.Command) []conn.Result {
	began := time.Now()
	out := r.Runner.RunMulti(ctx, cmds)
	for i, res := range out {
		r.o.Batch(cmds[i].Script.Name, len(cmds[i].Keys), began, res.Err)
	}
	return out
}

// givenBack logs that a lock that the server had granted is given back.
func (a *acquisition) givenBack(what string) {
	a.core.cfg.Log.InfoContext(a.ctx, "redlatch: "+what, a.logArgs()...)
}

// logArgs are the arguments of a log line about the acquisition.
func (a *acquisition) logArgs(more ...any) []any {
	var link any
	if a.obs != nil {
		link = a.obs.Link()
	}
	return a.core.tracedArgs(a.ctx, link,
		append([]any{"lock", a.lock.name, "owner", a.attempt.Field, "type", a.kind.Type()}, more...)...)
}

// about is logArgs for other goroutines.
func (a *acquisition) about() []any {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.logArgs()
}

// tracedArgs are the arguments of a log line about an acquisition, with its
// trace: many handlers don't look for one in the ctx.
func (c *Core) tracedArgs(ctx context.Context, link any, args ...any) []any {
	if c.cfg.Observer == nil {
		return args
	}
	traceID, spanID := c.cfg.Observer.TraceOf(ctx, link)
	if traceID == "" {
		return args
	}
	return append(args, "trace_id", traceID, "span_id", spanID)
}
