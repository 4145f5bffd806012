package held

import (
	"context"
	"sync"
	"time"

	"github.com/redlatch/redlatch/internal/batch"
	"github.com/redlatch/redlatch/internal/conn"
	"github.com/redlatch/redlatch/internal/kind"
	"github.com/redlatch/redlatch/internal/sender"
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
	gone   []*Session // guarded by mu
	failed []*Session // guarded by mu
	first  error      // guarded by mu
}

// addLocked adds a session.
func (n *renewal) addLocked(s *Session) {
	var set time.Duration
	if s.watchedLocked() {
		set = n.w.reg.cfg.LeaseTime
	}
	switch g := s.grant; {
	case g != nil:
		// what is left of the asked lease; a fixed one is not extended by it
		if set = max(set, g.at.Add(g.asked).Sub(n.began)); set > 0 {
			at := n.began.Add(set)
			s.asks = &at
		}
	case set > 0:
		if n.asks == nil {
			at := n.began.Add(set)
			n.asks = &at
		}
		s.asks = n.asks
	}
	s.renewed = true
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

// Ran implements batch.Work.
func (n *renewal) Ran(cmd conn.Command, sent time.Time, err error) {
	if o := n.w.reg.cfg.Observer; o != nil {
		o.Batch(cmd.Script.Name, len(cmd.Keys), sent, err)
	}
}

// Answered implements batch.Work.
func (n *renewal) Answered(as []batch.Answer) {
	good := as[:0]
	for _, a := range as {
		if conn.IsTryAgain(a.Err) {
			if splitter, ok := n.due[a.Item].Lock.Kind.(kind.Splitter); ok {
				n.split(a.Item, splitter.RenewSplit(n.due[a.Item].Field, n.sets[a.Item]))
				continue
			}
		}
		if n.settle(a) {
			good = append(good, a)
		}
	}
	n.renewed(good)
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
			if a := (batch.Answer{Vals: vals, Sent: sent, Err: c.Err}); one.settle(a) {
				one.renewed([]batch.Answer{a})
			}
			one.End()
		}})
	}
	next(0)
}

// settle reports whether a session was renewed, and notes what came of it otherwise.
func (n *renewal) settle(a batch.Answer) bool {
	err := a.Err
	switch {
	case err != nil:
	case a.Vals[0].Int < 0:
		err = errRefused
	case a.Vals[0].Int == 0:
		err = errGone
	}
	if n.watched {
		s := n.due[a.Item]
		n.w.reg.cfg.Observer.Renewed(s.Lock.Observed(), s.Name, n.links[a.Item], a.Sent, err)
	}
	if err == nil {
		return true
	}
	s, r := n.due[a.Item], n.w.reg
	n.mu.Lock()
	defer n.mu.Unlock()
	if err == errGone { //nolint:errorlint // our own
		n.gone = append(n.gone, s)
		return false
	}
	n.failed = append(n.failed, s)
	r.mu.Lock()
	if err != errRefused && conn.Classify(err) == conn.Ambiguous { //nolint:errorlint // our own
		s.asked = s.askedUntilLocked()
	}
	s.asks = nil
	if s.lastErr == nil && n.first == nil {
		n.first = err
	}
	s.lastErr = err
	r.mu.Unlock()
	return false
}

// End puts off what failed and takes away what is gone.
func (n *renewal) End() {
	r := n.w.reg
	n.mu.Lock()
	gone, failed, first := n.gone, n.failed, n.first
	n.mu.Unlock()
	if len(gone)+len(failed) == 0 {
		return
	}
	var lost []*Hold
	r.mu.Lock()
	for _, s := range gone {
		s.renewing = false
		if !s.final && !s.dead { // else it is our own release that was found
			lost = append(lost, r.loseLocked(s, lossGone, nil)...)
		}
	}
	for _, s := range failed {
		n.w.againLocked(s)
	}
	closed := r.closed
	if !closed {
		r.wg.Add(1)
	}
	var link any
	if len(failed) > 0 {
		link = failed[0].link
	}
	r.mu.Unlock()
	r.finish(lost)
	if closed {
		return
	}
	go func() { // ends with the log handler
		defer r.wg.Done()
		r.logLost(lost)
		if first != nil {
			s := failed[0]
			r.cfg.Log.Warn("redlatch: renewal failed, retrying", r.TracedArgs(context.Background(), link, "lock", s.Lock.Name,
				"owner", s.Name, "type", s.Lock.Kind.Traits().Type, "locks", len(failed), "error", first)...)
		}
	}()
}

// renewed moves the deadlines of those on that were renewed.
func (n *renewal) renewed(good []batch.Answer) {
	if len(good) == 0 {
		return
	}
	w := n.w
	w.reg.mu.Lock()
	defer w.reg.mu.Unlock()
	for _, a := range good {
		w.renewedLocked(n.due[a.Item], a.Sent, n.sets[a.Item])
	}
}
