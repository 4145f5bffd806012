package held

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/redlatch/redlatch/internal/batch"
	"github.com/redlatch/redlatch/internal/conn"
	"github.com/redlatch/redlatch/internal/kind"
	"github.com/redlatch/redlatch/internal/lease"
	"github.com/redlatch/redlatch/internal/sender"
	"github.com/redlatch/redlatch/lock"
)

// renewal is sessions whose renewals fell due together. It implements batch.Work.
type renewal struct {
	w       *watchdog
	due     []*Session
	sets    []time.Duration // what each asks for; 0: only a check
	asks    *time.Time      // the end that the watchdog's lease asks for
	watched bool            // an observer wants to know of each
	links   []any           // the observer's, if so
	began   time.Time

	mu     sync.Mutex
	failed int      // guarded by mu; how many were not renewed
	about  *Session // guarded by mu; one of them
	first  error    // guarded by mu; why, if it was renewed before
}

// settled is what one command's answers come to.
type settled struct {
	good   []batch.Answer
	gone   []*Session
	failed []failure
	seen   []seen // for an observer
	turns  bool   // a failure began, or ended, with one of those
}

// seen is a renewal, or check, as an observer is told of it.
type seen struct {
	of   *Session
	link any
	sent time.Time
	turn bool // a failure began, or ended
	err  error
}

type failure struct {
	s   *Session
	set time.Duration // what it asked for
	err error
}

// addLocked adds a session.
func (n *renewal) addLocked(s *Session) {
	var set time.Duration
	if s.keptHolds > 0 {
		set = n.w.reg.cfg.LeaseTime
	}
	// What the holds count on beyond that: a fixed lease, or what Extend raised. The server may
	// have forgotten it (a failover, a restart with what was saved a second before), and keep the
	// lock for less. One that has it raises nothing.
	own := max(set, lease.Until(n.began, s.countsOnLocked()))
	if full := s.fullLocked(); !full.IsZero() {
		own = max(own, min(n.w.reg.cfg.LeaseTime, lease.Until(n.began, full)))
	}
	if g := s.grant; g != nil {
		// what is left of the asked lease; a fixed one is not extended by it
		own = max(own, g.at.Add(g.asked).Sub(n.began))
	}
	switch {
	case own > set:
		set = own
		if at := n.began.Add(set); at.After(s.askedUntilLocked()) {
			s.pendingEnd = &at
		}
	case set > 0:
		if n.asks == nil {
			at := n.began.Add(set)
			n.asks = &at
		}
		s.pendingEnd = n.asks
	}
	s.renewed = true
	s.inFlight++
	n.due = append(n.due, s)
	n.sets = append(n.sets, set)
	if n.watched {
		n.links = append(n.links, s.link)
	}
}

// Len implements batch.Work.
func (n *renewal) Len() int { return len(n.due) }

// Item implements batch.Work.
func (n *renewal) Item(i int) kind.Item {
	s := n.due[i]
	return s.Lock.Kind.Renew(s.Field, n.sets[i])
}

// Answered implements batch.Work. What a command's answers say holds at once: another
// node may be silent for long.
func (n *renewal) Answered(c *sender.Call, as []batch.Answer) {
	o := settled{good: as[:0]}
	for _, a := range as {
		if conn.IsTryAgain(a.Err) {
			if splitter, ok := n.due[a.Item].Lock.Kind.(kind.Splitter); ok {
				n.split(a.Item, splitter.RenewSplit(n.due[a.Item].Field, n.sets[a.Item]))
				continue
			}
		}
		n.settle(a, &o)
	}
	n.tell(&o)
	if r := n.w.reg; n.watched && (c.Err == nil || o.turns || len(o.seen) == 0) {
		name, keys, sent, err := c.Cmd.Script.Name, len(c.Cmd.Keys), c.Sent, c.Err
		r.cfg.News.TellOften(func() { r.cfg.Observer.Batch(name, keys, sent, err) })
	}
}

// split renews by commands of one key, one after the other. The watchdog does not
// wait for it: what comes of it is settled apart.
func (n *renewal) split(i int, cmds []conn.Command) {
	one := &renewal{w: n.w, due: n.due[i : i+1], sets: n.sets[i : i+1], watched: n.watched, began: n.began}
	if n.watched {
		one.links = n.links[i : i+1]
	}
	sent := time.Now()
	var next func(k int)
	next = func(k int) {
		n.w.reg.send.Start(&sender.Call{Cmd: cmds[k], Class: sender.Renew, Ctx: context.Background(), Then: func(c *sender.Call) {
			vals := c.Reply.Vals
			if len(vals) == 0 {
				vals = []conn.Value{{Int: c.Reply.Code}}
			}
			switch {
			case c.Err == nil && vals[0].Int == 1 && k+1 < len(cmds):
				next(k + 1)
				return
			case c.Err == nil && k > 0 && vals[0].Int != 1:
				vals = []conn.Value{{Int: -1}}
			}
			var o settled
			one.settle(batch.Answer{Vals: vals, Sent: sent, Err: c.Err}, &o)
			one.tell(&o)
			one.End()
		}})
	}
	next(0)
}

// settle notes what came of one session's renewal.
func (n *renewal) settle(a batch.Answer, o *settled) {
	s, err := n.due[a.Item], a.Err
	switch {
	case err != nil:
	case a.Vals[0].Int < 0:
		err = errRefused
	case a.Vals[0].Int == 0:
		err = errGone
	}
	if n.watched {
		o.seen = append(o.seen, seen{of: s, link: n.links[a.Item], sent: a.Sent, err: err})
	}
	switch {
	case err == nil:
		o.good = append(o.good, a)
	case errors.Is(err, errGone):
		o.gone = append(o.gone, s)
	default:
		o.failed = append(o.failed, failure{s, n.sets[a.Item], err})
	}
}

// tell moves the deadlines of those on that were renewed, takes away what is gone, and
// puts off what failed.
func (n *renewal) tell(o *settled) {
	r := n.w.reg
	var lost []*Hold
	var first error
	now := time.Now()
	r.mu.Lock()
	o.turnLocked()
	for _, a := range o.good {
		n.w.renewedLocked(n.due[a.Item], a.Sent, now, n.sets[a.Item])
	}
	for _, s := range o.gone {
		s.renewing, s.inFlight = false, s.inFlight-1
		if !s.releaseSent && !s.over { // else it is our own release that was found
			lost = append(lost, r.loseLocked(s, lock.LossGone, nil)...)
		}
	}
	for _, f := range o.failed {
		f.s.inFlight--
		if f.err != errRefused && conn.Classify(f.err) == conn.Ambiguous { //nolint:errorlint // our own
			f.s.askedEnd = lease.Later(f.s.askedEnd, now.Add(f.set)) // it may have run until now
		}
		f.s.pendingEnd = nil
		if f.s.lastErr == nil && first == nil {
			first = f.err
		}
		f.s.lastErr = f.err
		n.w.againLocked(f.s)
	}
	r.mu.Unlock()
	r.tell(lost)
	if all := o.seen; len(all) > 0 {
		tell := r.cfg.News.TellOften
		if o.turns {
			tell = r.cfg.News.Tell
		}
		tell(func() {
			for _, s := range all {
				r.cfg.Observer.Renewed(s.of.Lock.Observed(), s.of.Name, s.link, s.sent, s.turn, s.err)
			}
		})
	}
	if len(o.failed) == 0 {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.failed += len(o.failed)
	if n.first == nil {
		n.first, n.about = first, o.failed[0].s
	}
}

// turnLocked notes with which renewals a failure began or ended: only those are told one by one.
// What comes of a session that is over by now, or is being released, is no news.
func (o *settled) turnLocked() {
	o.seen = slices.DeleteFunc(o.seen, func(v seen) bool { return errors.Is(v.err, errGone) && (v.of.releaseSent || v.of.over) })
	for i := range o.seen {
		v := &o.seen[i]
		v.turn = errors.Is(v.err, errGone) || (v.err != nil) != (v.of.lastErr != nil)
		o.turns = o.turns || v.turn
	}
}

// End logs once for all that failed.
func (n *renewal) End() {
	r := n.w.reg
	n.mu.Lock()
	failed, s, first := n.failed, n.about, n.first
	n.mu.Unlock()
	if first == nil {
		return
	}
	r.mu.Lock()
	closed, link := r.closed, s.link
	r.mu.Unlock()
	if closed {
		return
	}
	r.cfg.News.Tell(func() {
		r.cfg.Log.Warn("redlatch: renewal failed, retrying", r.TracedArgs(context.Background(), link, "lock", s.Lock.Name,
			"owner", s.Name, "type", s.Lock.Kind.Traits().Type, "locks", failed, "error", first)...)
	})
}
