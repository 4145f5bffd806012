package desk

import (
	"cmp"
	"slices"

	"github.com/redlatch/redlatch/internal/lease"
)

// review compares what an entry is with what is wanted, and sends what is missing. It is the end of every event.
func (t *Table) review(e *Entry) {
	// In the order of what may follow from what: a deadline ends holds, a session without holds is passed on or released,
	// and only then it is known whether the line may ask, and whether there is anything left to listen for.
	t.expire(e)
	for i := 0; i < len(e.sessions); i++ { // what a session does may add another one, and removes none
		switch s := e.sessions[i]; s.phase {
		case asking:
			t.undo(s)
		case held:
			t.serve(s)
		case ending:
			t.release(s)
		case gone:
		}
	}
	e.sessions = slices.DeleteFunc(e.sessions, func(s *Session) bool { return s.phase == gone })
	t.ask(e)
	for _, s := range e.sessions {
		t.renew(s)
	}
	t.leaves(e)
	t.listen(e)
	t.schedule(e)
	t.drained()
}

// dueAt is R1 in one place: when the line does something by itself. With an own held session in the way that is a
// check of it (R3).
func (e *Entry) dueAt() Time {
	if e.line.n == 0 || e.bid != nil && e.bid.server.flight != nil {
		return never
	}
	for _, s := range e.sessions {
		switch {
		case s.phase == held && s.server.renewing == nil: // a check is not held up by an error of an ask
			return e.due
		case s.against():
			return never
		}
	}
	return max(e.due, e.retryAt)
}

// soon has the line ask now. An own hold is not asked past: its end wakes the line (R2, R3).
func (t *Table) soon(e *Entry) {
	if e.held() == nil {
		e.due = min(e.due, t.now.Mono)
	}
}

// ask is R1: the first of the line asks, under the id that its earlier commands had (R7).
func (t *Table) ask(e *Entry) {
	if e.dueAt() > t.now.Mono {
		return
	}
	e.due = never // used up: whatever the answer is, it sets due anew, or gives it back
	if s := e.held(); s != nil {
		s.renewAt = t.now.Mono
		e.due = t.now.Mono + t.look()
		return
	}
	s := e.line.first().bid
	if s == nil {
		s = t.open(e.line.first())
		e.bid = s
	}
	t.acquire(s, e.calls.asks(t.now.Mono))
}

// bid is a single attempt: it stands in no line, and asks at once.
func (t *Table) bid(r *Request) { t.acquire(t.open(r), NoPlace) }

// open makes a session that asks for a request.
func (t *Table) open(r *Request) *Session {
	s := &Session{entry: r.entry, field: t.id(), owner: r.Owner, made: r.Owner, lease: r.Lease, fenced: r.Fenced, bids: r}
	r.bid = s
	r.entry.sessions = append(r.entry.sessions, s)
	t.live++
	return s
}

// acquire sends an ask.
func (t *Table) acquire(s *Session, place Place) {
	s.server.tries++
	t.send(s, &Command{Verb: Acquire, Lease: cmp.Or(s.lease, t.cfg.Lease), Fenced: s.fenced, Place: place})
}

// pass is R2: it gives a session without holds to the first of the line, and reports whether it did.
func (t *Table) pass(s *Session) bool {
	e, now := s.entry, t.now
	r := e.line.first()
	if r == nil || !s.fits(r) || len(s.joins) > 0 {
		return false
	}
	if s.had { // else nobody has, and it is as good as asked for
		// What the receiver gets must be what an ask would get, and known to be there a moment ago. Nobody is skipped
		// for it: a session that can't be passed on to the first of the line is released for it.
		past := max(t.trustedAfter, e.trusted)
		switch {
		case t.cfg.Tenure == 0, s.fenced, s.lease != 0, e.doubts > 0, s.server.unsure, s.server.renewing != nil, s.server.count != 1,
			s.server.longest > t.cfg.Lease, s.server.known <= past, s.until.Passed(now):
			return false
		case now.Mono >= s.server.known+t.cfg.Tenure, now.Mono >= s.got.Mono+t.cfg.Tenure:
			e.calls.late = s.passes > 0 // others come first now (R3)
			return false
		}
		s.passes++
	}
	s.owner = r.Owner
	t.unlocked(s, len(s.unlock), OK)
	t.hold(s, r, s.got)
	return true
}

// serve is R5: one command at a time, and R2 or R4 for a session without holds.
func (t *Table) serve(s *Session) {
	if s.server.flight != nil {
		return
	}
	n, due := len(s.holds), t.now.Mono >= s.server.retryAt
	switch {
	case n == 0:
		if !t.pass(s) {
			t.finish(s)
		}
	case len(s.unlock) > 0: // their callers wait for the answer, whatever it is
		t.send(s, &Command{Verb: SetCount, Count: n, covers: len(s.unlock)})
	case !due:
	case len(s.joins) > 0:
		r := s.joins[0]
		t.send(s, &Command{Verb: Reenter, Count: n + 1, Lease: cmp.Or(r.Lease, t.cfg.Lease), join: r})
	case len(s.extend) > 0:
		x := s.extend[0]
		t.send(s, &Command{Verb: Reenter, Count: n, Lease: x.Lease, extend: x})
	case s.server.count != n:
		t.send(s, &Command{Verb: SetCount, Count: n})
	}
}

// finish begins R4: the session ends. Who wanted to enter it again stands in line, or asks once for itself.
func (t *Table) finish(s *Session) {
	s.phase, s.server.retryAt = ending, 0
	t.disband(s)
	t.release(s)
}

// release is R4: until answered, or until the session can't be on the server any more.
func (t *Table) release(s *Session) {
	switch {
	case s.server.flight != nil || t.now.Mono < s.wake(t.now):
	case s.server.renewing == nil && t.now.Mono >= s.forget(): // no command of it can still run, and its lease is over
		t.unlocked(s, len(s.unlock), Unavailable)
		t.drop(s)
		t.soon(s.entry)
	default:
		c := &Command{Verb: Release, Void: s.server.unsure}
		if !s.server.undo { // an undo frees nothing that this client had, and leaves its place on the list alone
			c.Listing = s.entry.releases()
		}
		s.server.final = true
		t.send(s, c)
	}
}

// undo is R6: a bid that has nobody, and no command in flight.
func (t *Table) undo(s *Session) {
	if s.bids != nil || s.server.flight != nil {
		return
	}
	if !s.server.unsure {
		t.drop(s)
		return
	}
	// From here on the line's next may ask with a bid of its own: this one may still get the lock, for nobody.
	s.phase, s.server.undo = ending, true
	if s.entry.bid == s {
		s.entry.bid = nil
	}
	t.release(s)
}

// orphan makes a request's bid nobody's (R6), and returns its command in flight.
func (t *Table) orphan(r *Request) (flight *Command) {
	s := r.bid
	if s == nil {
		return nil
	}
	r.bid, s.bids = nil, nil
	return s.server.flight
}

// drop ends a session that is on the server no more, or that nobody can end.
func (t *Table) drop(s *Session) {
	if s.phase == gone {
		return
	}
	s.phase = gone
	t.live--
	if s.entry.bid == s {
		s.entry.bid = nil
	}
}

// expire is R8: holds end at their deadlines, on whichever clock.
func (t *Table) expire(e *Entry) {
	for _, s := range e.sessions {
		for i := 0; i < len(s.holds); {
			if h := s.holds[i]; h.Deadline().Passed(t.now) {
				t.loseHold(h, LostExpired)
			} else {
				i++
			}
		}
	}
}

// renew is R8: what is due is renewed, and fixed leases are checked. It asks for the latest end that a hold counts on,
// since the server may have forgotten that.
func (t *Table) renew(s *Session) {
	if s.phase != held || len(s.holds) == 0 || s.server.renewing != nil || t.now.Mono < s.renewAt {
		return
	}
	var length Time
	for _, h := range s.holds {
		length = max(length, lease.For(h.Deadline().Mono-t.now.Mono))
		if h.lease == 0 {
			length = max(length, t.cfg.Lease)
		}
	}
	s.renewed = true
	s.renewAt = t.nextRenewal(s) // from the sending: a late answer does not put the next one off
	t.send(s, &Command{Verb: Renew, Lease: length})
}

// nextRenewal is when an interval that begins now ends.
func (t *Table) nextRenewal(s *Session) Time {
	return t.now.Mono + t.pace.Every() - t.random(t.pace.Spread(!s.renewed, t.live > lineMost))
}

// wake is when a session must be looked at without an event.
func (s *Session) wake(now Now) Time {
	at := never
	switch s.phase {
	case held:
		for _, h := range s.holds {
			at = min(at, h.Deadline().OnTimers(now))
		}
		if len(s.holds) > 0 && s.server.renewing == nil {
			at = min(at, s.renewAt)
		}
		if s.server.flight == nil && len(s.holds) > 0 && (len(s.joins) > 0 || len(s.extend) > 0 || s.server.count != len(s.holds)) {
			at = min(at, s.server.retryAt)
		}
	case ending:
		if s.server.flight == nil {
			at = s.server.retryAt
		}
	case asking, gone:
	}
	return at
}
