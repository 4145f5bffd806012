package multilock

import (
	"context"
	"time"

	"github.com/redlatch/redlatch/internal/engine"
	"github.com/redlatch/redlatch/internal/observe"
	"github.com/redlatch/redlatch/lock"
)

// core is the first leaf's client, which tells an observer of the whole; nil: there is no leaf, which
// no acquisition gets past.
func (m *MultiLock) core() *engine.Core {
	switch {
	case len(m.leaves) == 0:
		return nil
	case m.leaves[0].eng != nil:
		return m.leaves[0].eng.Core()
	}
	return m.leaves[0].quorum.core()
}

// observer is that of the first member's client, or nil.
func (m *MultiLock) observer() observe.Observer {
	if c := m.core(); c != nil {
		return c.Observer()
	}
	return nil
}

func (m *MultiLock) about() observe.Lock { return observe.Lock{Name: m.name, Type: "multi"} }

// observe begins the observation of an acquisition; the members' are below it.
func (m *MultiLock) observe(ctx context.Context, wait, lease time.Duration) (context.Context, observe.Acquisition) {
	if o := m.observer(); o != nil {
		return o.Acquire(ctx, m.about(), wait, lease)
	}
	return ctx, nil
}

// attempt notes that all members are tried.
func attempt(obs observe.Acquisition) {
	if obs != nil {
		obs.Attempt()
	}
}

// observed ends it.
func (m *MultiLock) observed(obs observe.Acquisition, h *hold, err error) {
	if h != nil && h.counted {
		m.observer().Held(m.about())
	}
	if obs == nil {
		return
	}
	r := observe.Result{Err: err}
	if h != nil {
		r.Count, r.Token, r.Owner = 1, h.Token(), h.owner()
		link := obs.Link()
		h.mu.Lock()
		h.link = link
		h.mu.Unlock()
	}
	obs.End(r)
}

// owner is that of the first member.
func (h *hold) owner() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case len(h.parts) == 0:
		return ""
	case h.parts[0].quorum == nil:
		return h.parts[0].eng[0].Field().Name
	}
	return h.parts[0].quorum.owner()
}

// operate observes an operator's call; what the members' tell is below it.
func operate[T any](ctx context.Context, m *MultiLock, op string, f func(context.Context) (T, error)) (out T, err error) {
	ctx, end := observe.Operation(ctx, m.observer(), m.about(), op, "")
	err = observe.ErrPanic
	defer func() { end(err) }()
	return f(ctx)
}

// operation begins the observation of an operation on a hold.
func (h *hold) operation(ctx context.Context, op string) (context.Context, observe.End) {
	return observe.Operation(ctx, h.m.observer(), h.m.about(), op, h.owner())
}

// ended tells, once, that the hold is over: how is "released", "lost",
// "expired" or "closed".
func (h *hold) ended(how string) {
	if tell := h.toTell(how); tell != nil {
		tell()
	}
}

// toTell tells how the hold ended; nil: nobody is to be told, or has been.
func (h *hold) toTell(how string) func() {
	h.mu.Lock()
	defer h.mu.Unlock()
	o, link, lasted := h.m.observer(), h.link, time.Since(h.began)
	if o == nil || h.told {
		return nil
	}
	h.told = true
	return func() { o.Ended(h.m.about(), link, h.counted, how, lasted) }
}

var _ lock.MultiHold = (*hold)(nil)
