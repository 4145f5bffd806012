package engine

import (
	"context"
	"time"

	"github.com/redlatch/redlatch/internal/conn"
	"github.com/redlatch/redlatch/internal/held"
	"github.com/redlatch/redlatch/internal/kind"
	"github.com/redlatch/redlatch/internal/lease"
	"github.com/redlatch/redlatch/internal/pubsub"
	"github.com/redlatch/redlatch/lock"
)

// What those need who try locks on several servers at a time.

// Attempted is what one attempt came to.
type Attempted struct {
	Hold      *held.Hold
	Err       error
	Server    conn.Server // who answered, if somebody did
	Known     bool        // Server is known
	ServerErr error       // why it is not, though the attempt was answered
}

// capped is the lease that is asked of a server for one copy of a quorum.
func (c *Core) capped(lease time.Duration) time.Duration {
	if lease == 0 {
		return c.cfg.LeaseTime
	}
	return min(lease, c.cfg.LeaseTime)
}

// Token is that of the owner's hold in a mode, as far as this client knows; 0 if it has none.
func (l *Lock) Token(ctx context.Context, m lock.Mode) uint64 {
	if s := l.core.reg.Holds(ctx, l.of.Key, m); s != nil {
		return s.Token()
	}
	return 0
}

// Trouble says what is wrong with the lock's server, whoever asked it: it failed
// since it last answered, or it has been silent for too long. nil: nothing is.
func (l *Lock) Trouble() error { return l.core.send.Trouble(l.of.Key) }

// Watch is a waiter that looks at a lock without taking it. It stands in no line: its owner can't
// take the lock when it alone is free, and must hold up nobody who can. It is for the copies of a
// quorum, whose attempt is one on all of them.
type Watch struct {
	l      *Lock
	w      *pubsub.Waiter
	expect time.Time
	since  time.Time
}

// watching is the attempt of one that only looks.
func (l *Lock) watching() *kind.Attempt { return &kind.Attempt{Field: l.core.cfg.ID + ":g-watch"} }

// Watch begins to listen; signal, of capacity 1, gets a value when there may be
// news. The caller has looked and found that holder may have the lock until expect
// (zero: not known).
func (l *Lock) Watch(signal chan struct{}, expect time.Time, holder string) *Watch {
	spec, opts := l.of.Kind.Wait(l.watching())
	if len(opts) == 0 {
		opts = []pubsub.Option{pubsub.Aside()}
	}
	w := &Watch{l: l, since: time.Now()}
	w.w = l.core.hub.Join(spec, append(opts[:len(opts):len(opts)], pubsub.Signal(signal), pubsub.About(w))...)
	w.Expect(expect, holder)
	return w
}

// Expect notes what another look found.
func (w *Watch) Expect(at time.Time, holder string) {
	w.expect = at
	if at.IsZero() {
		return
	}
	who := pubsub.Holder{Owner: holder, Foreign: kind.Foreign(holder)}
	if w.w.Expect(at, who); who.Foreign {
		w.w.HearOthers()
	}
}

// Look reports whether to try now, and when to try without being told.
func (w *Watch) Look() (try bool, at time.Time) {
	n := w.w.Take()
	if n.Try {
		return true, time.Time{}
	}
	if !n.Confirmed {
		return false, lease.Earlier(w.expect, time.Now().Add(unconfirmedPoll))
	}
	return false, lease.Earlier(w.expect, n.Look)
}

// Leave ends it. h is what its owner got, if it did.
func (w *Watch) Leave(h *held.Hold) {
	if h == nil {
		deserted := w.w.Leave(true, time.Time{}, pubsub.Holder{})
		if caller, ok := w.l.of.Kind.(kind.Caller); ok && deserted {
			w.l.core.Leave(caller.Leave(), w.l.of.Calls)
		}
		return
	}
	w.w.Leave(false, h.ValidUntil(), pubsub.Holder{Owner: h.Field().Name})
}

// Waiting reports whether somebody of this process stands in the lock's line.
func (l *Lock) Waiting() bool {
	spec, opts := l.of.Kind.Wait(l.watching())
	return len(opts) == 0 && l.core.hub.Waiting(spec.ID)
}
