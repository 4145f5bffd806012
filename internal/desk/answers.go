package desk

import "cmp"

// Answered is the answer to a command, or the error that stands for it (R9).
func (t *Table) Answered(now Now, c *Command, a Answer) {
	t.begin(now)
	if c.wrote && c.sent.Mono <= t.answersAfter && a.Verdict != NotRun {
		a = Answer{Verdict: Failed} // of a server that another one has replaced (R8)
	}
	s, e := c.Session, c.entry
	// Deadlines are looked at before the answer: a hold that is over by now is not brought back by it.
	switch {
	case c.Verb == Leave:
		e.departed = nil
		t.live--
		t.soon(e) // who has come meanwhile may be on no list
	case s.phase == gone: // its entry may be another one by now
		return
	case c.Verb == Renew:
		s.server.renewing = nil
		t.expire(e)
		t.renewAnswered(s, c, a)
	case s.phase == ending && c.Verb != Release: // it was lost meanwhile: its release waited for this (R5)
		s.server.flight = nil
		if a.Verdict != NotRun {
			s.heard(now, c.Lease)
		}
	default:
		s.server.flight = nil
		t.expire(e)
		switch c.Verb {
		case Acquire:
			t.acquireAnswered(s, c, a)
		case Reenter:
			t.reenterAnswered(s, c, a)
		case SetCount:
			t.countAnswered(s, c, a)
		case Release:
			t.releaseAnswered(s, c, a)
		case Renew, Leave:
		}
	}
	t.review(e)
}

// acquireAnswered is what an ask came to. An ask that used up due gives it back, or brings another one (R1).
func (t *Table) acquireAnswered(s *Session, c *Command, a Answer) {
	e, r := s.entry, s.bids
	if a.Verdict != NotRun {
		s.heard(t.now, c.Lease)
	}
	switch a.Verdict {
	case Done:
		t.won(s, c, a)
		return
	case Busy:
		t.lost(s, c, a)
		return
	case Gone, Void: // it ended there already: the request asks with another id
		t.drop(s)
		if r != nil {
			r.bid, s.bids = nil, nil
		}
	case NoAcks: // it is held, for nobody
		s.phase = ending
	case Refused: // nothing is left on the server
	case Failed, NotRun:
		// The bid stays its request's: a late run takes the lock under the id that the line asks with again (R7).
		s.server.unsure = s.server.unsure || a.Verdict == Failed
		e.calls.open = e.calls.open || c.Place > Listed // the call that it answered is open again
		if c.Place != NoPlace {
			t.stumble(e, a)
		}
	}
	// The ask used up due, and said nothing about the entry: due is given back, not before the pause is over.
	t.soon(e)
	if why := endedBy[a.Verdict]; r != nil && (why != OK || r.Once) {
		t.reject(r, cmp.Or(why, Unavailable))
		t.orphan(r)
	}
}

// endedBy is why a request ends whose ask came to a verdict; OK: it asks again.
var endedBy = map[Verdict]Why{NoAcks: TooFewAcks, Refused: WasRefused}

// stumble makes the line pause after an error (R1); each one in a row makes it longer.
func (t *Table) stumble(e *Entry, a Answer) {
	e.retryAt = max(e.retryAt, t.now.Mono+max(a.Pause, t.backoff(e.fails)))
	e.fails++
}

// won is a grant, which proves that our other sessions are lost (R5); unless it comes too late (R8).
func (t *Table) won(s *Session, c *Command, a Answer) {
	e, r := s.entry, s.bids
	s.answered(c)
	until := c.sent.Deadline(c.Lease)
	if until.Passed(t.now) {
		t.tooLate(s)
		return
	}
	// The server has one holder, and this grant is younger than any other of ours: it came in time, so it still stands.
	// The contexts of the others end before the new hold is told (R10).
	for _, o := range e.sessions {
		if o != s && o.phase == held {
			t.lose(o, LostGone)
		}
	}
	s.phase, s.got, s.token, s.server.count = held, c.sent, a.Token, 1
	s.renewAt = t.nextRenewal(s)
	if s.lease == 0 {
		s.until = until
	}
	if c.Place != NoPlace { // a single attempt says nothing of the list
		e.bid, e.fails, e.retryAt = nil, 0, 0
		t.granted(e)
	}
	e.due = t.now.Mono + t.look()
	e.holder = Holder{Field: s.field}
	if s.bids = nil; r != nil {
		t.hold(s, r, c.sent) // else the review passes it on, or gives it back (R6)
	}
}

// tooLate is a grant whose lease is over here. Its request goes to the end, so that it holds up nobody (R1).
func (t *Table) tooLate(s *Session) {
	e, r := s.entry, s.bids
	// Nobody has had it, so its release is in nobody's way: the line may ask beside it.
	s.phase, s.server.undo, s.bids = ending, true, nil
	if e.bid == s {
		e.bid = nil
		t.stumble(e, Answer{})
	}
	t.soon(e)
	if r == nil {
		return
	}
	if r.bid = nil; r.Once {
		t.reject(r, Unavailable)
		return
	}
	e.line.remove(r)
	r.ticket = t.id()
	e.line.add(r)
}

// lost is a refusal by whoever has the lock.
func (t *Table) lost(s *Session, c *Command, a Answer) {
	e, r := s.entry, s.bids
	s.answered(c)
	for _, o := range e.sessions { // an ask without an answer has got it
		if o != s && o.phase == asking && o.field == a.Holder.Field {
			e.due, e.retryAt = t.now.Mono, 0
		}
	}
	if c.Place != NoPlace {
		e.fails, e.retryAt = 0, 0
		t.refused(e, a)
		return
	}
	if r != nil {
		e.holder = a.Holder
		t.reject(r, IsBusy)
		t.orphan(r)
	}
}

// reenterAnswered is a re-entry or an extension (R5).
func (t *Table) reenterAnswered(s *Session, c *Command, a Answer) {
	if a.Verdict != NotRun {
		s.heard(t.now, c.Lease)
	}
	// An answer that took as long as the lease counts for the count alone; the deadline would have passed (R5).
	late := c.sent.Deadline(c.Lease).Passed(t.now)
	switch r, x := c.join, c.extend; {
	case a.Verdict == Done && !late:
		s.answered(c)
		s.server.count = c.Count
		if r != nil {
			s.joins = s.joins[1:]
			t.hold(s, r, c.sent)
		}
		if x != nil {
			t.extend(x, c)
		}
	case a.Verdict == Gone:
		t.lose(s, LostGone)
	case a.Verdict == Refused:
		if r != nil {
			t.reject(r, WasRefused)
		}
		if x != nil {
			t.extended(x, WasRefused)
		}
	default: // again, after a pause; a single attempt has only this one
		switch a.Verdict {
		case Done:
			s.answered(c)
			s.server.count = c.Count
		case Failed:
			s.server.count = -1
		default:
		}
		t.pause(s, a)
		if r != nil && r.Once {
			t.reject(r, Unavailable)
		}
	}
}

// extend raises what an extension was about.
func (t *Table) extend(x *Extension, c *Command) {
	until := c.sent.Deadline(c.Lease)
	if h := x.Hold; h.lease > 0 {
		h.until = h.until.Raised(t.now, until)
	} else {
		h.session.until = h.session.until.Raised(t.now, until)
	}
	t.extended(x, OK)
}

// countAnswered is a partial release: nobody waits for more than its answer, since the next command corrects it (R5).
func (t *Table) countAnswered(s *Session, c *Command, a Answer) {
	switch a.Verdict {
	case Gone:
		t.lose(s, LostGone)
		return
	case Done:
		s.answered(c)
		s.server.count = c.Count
	default:
		s.server.count = -1
		t.pause(s, a)
	}
	t.unlocked(s, c.covers, OK)
}

// releaseAnswered is the end of a session (R4).
func (t *Table) releaseAnswered(s *Session, c *Command, a Answer) {
	e, why := s.entry, OK
	switch a.Verdict {
	case Done:
		if !s.server.undo { // else it took nobody's turn: the line asks below
			t.released(e, c, a)
		}
	case Gone:
		if !s.server.doubtful { // else the release without an answer did it, and the Unlock worked
			why = LostGone
		}
	case Refused:
		why = WasRefused
	default: // again, until it is answered or the session can't be there (R4)
		s.server.doubtful = s.server.doubtful || a.Verdict == Failed
		e.calls.listed = e.calls.listed || c.Listing != KeepListing
		t.pause(s, a)
		return
	}
	if a.Verdict != Done { // the server may have put the client behind the one it called, and does not say
		e.calls.listed = e.calls.listed || c.Listing == PutBehind
	}
	if a.Verdict != Done || s.server.undo {
		t.soon(e)
	}
	t.unlocked(s, len(s.unlock), why)
	t.drop(s)
}

// pause is before a session's command is sent again.
func (t *Table) pause(s *Session, a Answer) {
	s.server.retryAt = t.now.Mono + max(a.Pause, t.backoff(s.server.fails))
	s.server.fails++
}

// renewAnswered moves the deadlines on (R8). What was asked for beyond the watchdog's lease raises nobody's.
func (t *Table) renewAnswered(s *Session, c *Command, a Answer) {
	if a.Verdict != NotRun {
		s.heard(t.now, c.Lease)
	}
	switch {
	case a.Verdict == Gone && s.phase == held && !s.server.final:
		t.lose(s, LostGone)
	case a.Verdict == Gone:
	case a.Verdict == Done:
		s.server.known = max(s.server.known, c.sent.Mono)
		// Fixed holds count on their own ends; a session without the watchdog's holds has no deadline to move.
		if c.Lease > 0 && !s.until.Passed(Now{}) {
			s.until = s.until.Raised(t.now, c.sent.Deadline(min(c.Lease, t.cfg.Lease)))
		}
	default: // soon again, until the deadline
		s.renewAt = t.now.Mono + t.pace.RetryAfter()
	}
}
