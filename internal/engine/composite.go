package engine

import (
	"context"
	"time"

	"github.com/redlatch/redlatch/internal/conn"
	"github.com/redlatch/redlatch/internal/luascript"
	"github.com/redlatch/redlatch/internal/pubsub"
	"github.com/redlatch/redlatch/lock"
)

// What locks made of several need of the engine.

// OneOwner returns a context whose acquisitions have one owner, on every client:
// that of ctx, or else a new one; and the same of spanned, which is ctx with a
// span. done ends what keeps a new one alive while
// nothing is held yet.
func OneOwner(ctx, spanned context.Context) (one, oneSpanned context.Context, done func()) {
	k, _ := ctx.Value(ownerKey{}).(carried)
	if k.explicit || (k.owner != nil && k.owner.live.Load() > 0) {
		return ctx, spanned, func() {}
	}
	o := newOwner()
	o.live.Add(1)
	who := carried{owner: o}
	one = context.WithValue(ctx, ownerKey{}, who)
	if oneSpanned = one; spanned != ctx {
		oneSpanned = context.WithValue(spanned, ownerKey{}, who)
	}
	return one, oneSpanned, func() { o.live.Add(-1) }
}

// Addr is where the client's servers are, for errors.
func (c *Core) Addr() string { return c.cfg.Addr }

// UnlockTimeout bounds unlocking.
func (c *Core) UnlockTimeout() time.Duration { return c.cfg.UnlockTimeout }

// Draining is closed when the client takes no new acquisitions.
func (c *Core) Draining() <-chan struct{} { return c.draining }

// Attempted is what an attempt on one copy of a lock came to.
type Attempted struct {
	Hold   *Hold
	Err    error
	Server conn.Server // who answered, if somebody did
	Known  bool        // Server is known
}

// Try makes one attempt that ends after limit at the latest, and asks who the
// server is, in the same round trip. An attempt without an answer is undone in
// the background.
func (l *Lock) Try(ctx context.Context, limit, lease time.Duration) Attempted {
	a, err := l.open(ctx, 0, lease)
	if err != nil {
		return Attempted{Err: err}
	}
	defer a.close()
	a.until = earlier(a.until, time.Now().Add(limit))
	a.tell = true
	h, err := a.finish()
	out := Attempted{Hold: h, Err: err}
	if a.answered {
		out.Server, out.Known = a.told.Server, a.told.ServerErr == nil && a.told.Server.RunID != ""
		if a.told.ServerErr != nil && err == nil {
			out.Err = &lock.ServerError{Name: l.name, Op: "ask for the server", Err: a.told.ServerErr}
		}
	}
	return out
}

// Server asks which server the lock's key is on.
func (l *Lock) Server(ctx context.Context) (conn.Server, error) {
	if l.err != nil {
		return conn.Server{}, l.err
	}
	r, err := l.ask(ctx, "state", func() conn.Command {
		return conn.Command{Script: luascript.Server, Keys: []string{l.key}}
	}, conn.Ambiguous)
	return conn.ReadServer(r), err
}

// RaiseToken makes the lock's fencing counter, and the token of the hold and of
// those that re-enter it, at least token. It blocks until the server answers, but
// no longer than limit.
func (h *Hold) RaiseToken(ctx context.Context, token uint64, limit time.Duration) error {
	l, c := h.s.Lock, h.s.slot.core
	if err := c.begin(); err != nil {
		return err
	}
	defer c.wg.Done()
	cmd := conn.Command{
		Script: luascript.RaiseToken, Keys: []string{luascript.TokenKey(l.key)},
		Args: []string{formatToken(token), FenceArg(c.cfg.FenceTTL)},
	}
	f, ok := c.fly(ctx, ctx, time.Now().Add(limit), cmd, nil)
	switch {
	case !ok && ctx.Err() != nil:
		return ctx.Err()
	case !ok:
		return h.unavailable("acquire", errNoAnswer)
	case f.err != nil:
		return h.unavailable("acquire", f.err)
	}
	c.mu.Lock()
	h.s.Token = max(h.s.Token, token)
	c.mu.Unlock()
	return nil
}

// Watch is a waiter that looks at a lock without taking it: it stands in the line
// of its process, and its owner tries when it is told to. It is for the copies of
// a quorum, whose attempt is one on all of them.
type Watch struct {
	l       *Lock
	w       *pubsub.Waiter
	attempt Attempt
	expect  time.Time
}

// Watch begins to listen; signal, of capacity 1, gets a value when there may be
// news. The caller has looked and found that the lock may be taken until expect
// (zero: not known) by holder.
func (l *Lock) Watch(signal chan struct{}, expect time.Time, holder string) *Watch {
	w := &Watch{l: l, attempt: Attempt{Lock: l, Field: l.core.cfg.ID + ":g-watch"}, expect: expect}
	spec, opts := l.spec(&w.attempt)
	w.w = l.core.hub.Join(spec, append(opts, pubsub.Signal(signal))...)
	if !expect.IsZero() && len(opts) == 0 {
		w.w.Expect(expect, pubsub.Holder{Owner: holder})
	}
	return w
}

// Expect notes what another look found.
func (w *Watch) Expect(at time.Time, holder string) {
	w.expect = at
	if !at.IsZero() {
		w.w.Expect(at, pubsub.Holder{Owner: holder})
	}
}

// Look reports whether to try now, and when to try without being told: zero if
// somebody else in the line of this process does.
func (w *Watch) Look() (try bool, at time.Time) {
	n := w.w.Take()
	if n.Try {
		return true, time.Time{}
	}
	if !n.Head {
		return false, time.Time{}
	}
	at = w.expect
	if n.Line && !n.Expect.IsZero() {
		at = n.Expect
	}
	if !n.Confirmed {
		at = earlier(at, time.Now().Add(unconfirmedPoll))
	}
	return false, at
}

// Leave ends it. A waiter that did not get the lock passes the turn on.
func (w *Watch) Leave(h *Hold) {
	if h == nil {
		w.w.Leave(true, time.Time{}, pubsub.Holder{})
		return
	}
	w.w.Leave(false, h.ValidUntil(), pubsub.Holder{Owner: h.s.Field})
}

// Waiting reports whether somebody of this process stands in the lock's line.
func (l *Lock) Waiting() bool {
	spec, opts := l.spec(&Attempt{Lock: l, Field: l.core.cfg.ID + ":g-watch"})
	return len(opts) == 0 && l.core.hub.Waiting(spec.ID)
}

// Line is where the quorum acquisitions of one process stand for a lock, first
// come, first served: only one of them asks the servers.
type Line struct {
	c    *Core
	name string
	gate gate
	refs int // guarded by core.mu
}

// Line finds the line of a name; Leave gives it back.
func (c *Core) Line(name string) *Line {
	c.mu.Lock()
	defer c.mu.Unlock()
	l := c.lines[name]
	if l == nil {
		l = &Line{c: c, name: name}
		c.lines[name] = l
	}
	l.refs++
	return l
}

// Enter blocks until it is the caller's turn (true), ctx ends, or the client closes.
func (l *Line) Enter(ctx context.Context) bool { return l.gate.enter(ctx, l.c.draining) }

// Leave gives the line back, and the turn if entered says that it was taken.
func (l *Line) Leave(entered bool) {
	if entered {
		l.gate.leave()
	}
	l.c.mu.Lock()
	defer l.c.mu.Unlock()
	if l.refs--; l.refs == 0 {
		delete(l.c.lines, l.name)
	}
}

// LastServer is the run_id of the server that answered last; "" if none was asked.
func (c *Core) LastServer() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lastServer
}

// Saw notes who answered, and for how long that run of the server has been there.
// It reports whether that is at least need by now, and whether any run has been
// found to be there for as long as was needed then.
func (c *Core) Saw(runID string, up, need time.Duration) (longEnough, any bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lastServer = runID
	// For each need anew: a run that is old enough for a short lease may still have
	// forgotten one that was taken for long. The longest is kept since a server's clock
	// may go back.
	if up >= need {
		c.trusted[runID] = max(c.trusted[runID], up)
	}
	return c.trusted[runID] >= need, len(c.trusted) > 0
}

// Held reports whether the owner that ctx carries holds the lock by now, as far
// as this client knows.
func (l *Lock) Held(ctx context.Context) bool {
	k, _ := ctx.Value(ownerKey{}).(carried)
	c := l.core
	o := k.owner
	if k.explicit {
		c.mu.Lock()
		o = c.owners[k.id]
		c.mu.Unlock()
	}
	if o == nil {
		return false
	}
	o.mu.Lock()
	var found *slot
	for _, s := range o.slots {
		if s.core == c && s.key == l.key {
			found = s
		}
	}
	o.mu.Unlock()
	if found == nil {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return found.sessions[modeIndex(l.kind.Mode())] != nil
}
