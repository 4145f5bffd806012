package desk

import "slices"

// What callers are told. Each of these is said once.

// hold makes a request's hold: of a grant, of a re-entry, of a session that is passed on. The owner's other
// requests of the line enter the session, too (R5).
func (t *Table) hold(s *Session, r *Request, sent Now) {
	e := s.entry
	h := &Hold{session: s, id: t.id(), lease: r.Lease}
	if r.Lease > 0 {
		h.until = sent.Deadline(r.Lease)
	} else if r.joins == s { // its command asked for the watchdog's lease; a session that is passed on asked for nothing
		s.until = s.until.Raised(t.now, sent.Deadline(t.cfg.Lease))
	}
	s.had = true
	s.holds = append(s.holds, h)
	e.line.remove(r)
	if r.bid != s { // it gets another session than its own, which has nobody then (R6)
		t.orphan(r)
	}
	r.bid, r.joins, r.over = nil, nil, true
	t.say(Effect{Kind: Grant, Request: r, Hold: h})
	// While they waited in the line they were not inside; now their owner is.
	for _, fellow := range slices.Clone(e.line.byOwner[r.Owner]) {
		t.enter(s, fellow)
	}
}

// enter makes a request of the line one that enters its owner's session.
func (t *Table) enter(s *Session, r *Request) {
	s.entry.line.remove(r)
	t.orphan(r)
	if r.Fenced && !s.fenced {
		t.reject(r, Invalid)
		return
	}
	s.joins, r.joins = append(s.joins, r), s
}

// reject ends a request without the lock.
func (t *Table) reject(r *Request, why Why) {
	r.over = true
	var last Holder
	if e := r.entry; e != nil {
		e.line.remove(r)
		last = e.holder
	}
	if s := r.joins; s != nil {
		r.joins = nil
		s.joins = without(s.joins, r)
		// Its command may be under way: a count that nobody stands for is set right afterwards (R5).
		if c := s.server.flight; c != nil && c.join == r {
			c.join = nil
		}
	}
	t.say(Effect{Kind: Reject, Request: r, Why: why, Holder: last})
}

// disband sends away who wanted to enter a session that ends: into the line where they came, or to an attempt of
// their own (R5).
func (t *Table) disband(s *Session) {
	e, all := s.entry, s.joins
	s.joins = nil
	for _, r := range all {
		r.joins = nil
		switch {
		case t.draining: // its owner is inside no more, and nobody new is let in
			t.reject(r, IsClosed)
		case r.Once: // it must not wait for others
			t.bid(r)
		default:
			e.line.add(r)
			t.soon(e)
		}
	}
	for len(s.extend) > 0 {
		t.extended(s.extend[0], s.extend[0].Hold.over())
	}
}

// end ends a hold's context, and what was to be extended of it.
func (t *Table) end(h *Hold, why Why) {
	t.say(Effect{Kind: End, Hold: h, Why: why})
	for _, x := range slices.Clone(h.session.extend) {
		if x.Hold == h {
			t.extended(x, h.over())
		}
	}
}

// over is what a hold says that is held no more.
func (h *Hold) over() Why {
	if h.state == isOver {
		return h.why
	}
	return NotHeld
}

// loseHold takes a hold away.
func (t *Table) loseHold(h *Hold, why Why) {
	h.session.holds = without(h.session.holds, h)
	h.state, h.why = isOver, why
	t.end(h, why)
}

// lose takes all holds of a session away. If it may come to life again on the server, it is released (R4).
func (t *Table) lose(s *Session, why Why) {
	e := s.entry
	for len(s.holds) > 0 {
		t.loseHold(s.holds[0], why)
	}
	t.unlocked(s, len(s.unlock), why)
	// From here on the session is in nobody's way. What is still in flight is answered before its release is sent.
	s.phase = ending
	t.disband(s)
	t.soon(e)
	s.server.undo, s.server.retryAt = true, 0
	if !s.server.unsure {
		t.drop(s)
	}
}

// unlocked answers the first n unlocks of a session.
func (t *Table) unlocked(s *Session, n int, why Why) {
	for _, h := range s.unlock[:n] {
		h.state = isUnlocked
		t.say(Effect{Kind: Unlocked, Hold: h, Why: why})
	}
	s.unlock = s.unlock[n:]
}

// extended answers an extension.
func (t *Table) extended(x *Extension, why Why) {
	if x.over {
		return
	}
	x.over = true
	s := x.Hold.session
	s.extend = without(s.extend, x)
	// Its command may be under way: what that raises is given back with the session.
	if c := s.server.flight; c != nil && c.extend == x {
		c.extend = nil
	}
	if why != HasLeft {
		t.say(Effect{Kind: Extended, Extension: x, Why: why})
	}
}
