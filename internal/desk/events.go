package desk

// Arrive is a caller's wish for a lock. The request gets exactly one of Grant and Reject.
func (t *Table) Arrive(now Now, key string, w Wish) *Request {
	t.begin(now)
	r := &Request{Wish: w, id: t.id()}
	r.ticket = r.id
	inside := t.entries[key].inside(w.Owner)
	if t.closed || t.draining && inside == nil {
		t.reject(r, IsClosed)
		return r
	}
	e := t.entry(key)
	r.entry = e
	switch {
	// A session got its token when it was asked for, or none.
	case inside != nil && w.Fenced && !inside.fenced:
		t.reject(r, Invalid)
	case inside != nil:
		inside.joins, r.joins = append(inside.joins, r), inside
	case w.Once:
		t.bid(r)
	default:
		if e.line.add(r); e.line.first() == r {
			e.due = now.Mono + t.look()
			t.soon(e)
		}
	}
	t.review(e)
	return r
}

// Leave is a caller who waits no more. What its bid gets goes to the next, or back (R6).
func (t *Table) Leave(now Now, r *Request) {
	t.begin(now)
	if r.over {
		return
	}
	t.reject(r, HasLeft)
	if c := t.orphan(r); c != nil {
		t.say(Effect{Kind: Cancel, Command: c})
	}
	t.review(r.entry)
}

// Unlock is the end of a hold by its holder. Its context ends first; [Unlocked] follows when the server knows.
func (t *Table) Unlock(now Now, h *Hold) {
	t.begin(now)
	s := h.session
	t.expire(s.entry)
	switch h.state {
	case isOver:
		// Told once: whoever unlocks it again is told what any second Unlock is.
		t.say(Effect{Kind: Unlocked, Hold: h, Why: h.why})
		h.why = NotHeld
	case unlocking, isUnlocked:
		t.say(Effect{Kind: Unlocked, Hold: h, Why: NotHeld})
	case isHeld:
		h.state = unlocking
		s.holds = without(s.holds, h)
		s.unlock = append(s.unlock, h)
		t.end(h, IsUnlocked)
	}
	t.review(s.entry)
}

// Extend raises the lease of a hold; [Extended] follows.
func (t *Table) Extend(now Now, x *Extension) {
	t.begin(now)
	s := x.Hold.session
	t.expire(s.entry)
	if x.Hold.state != isHeld {
		t.extended(x, x.Hold.over())
	} else {
		s.extend = append(s.extend, x)
	}
	t.review(s.entry)
}

// Forget is a caller who waits for an Extend no more.
func (t *Table) Forget(now Now, x *Extension) {
	t.begin(now)
	t.extended(x, HasLeft)
	t.review(x.Hold.session.entry)
}

// Sent is a command that a carrier takes, before its first byte: deadlines count from here.
func (t *Table) Sent(now Now, c *Command) {
	t.begin(now)
	c.sent, c.wrote = now, true
}

// Tick is the timer. Each entry that is due is looked at once: what is due again at once is the next tick's, so that
// no mistake in an instant holds up the client.
func (t *Table) Tick(now Now) {
	t.begin(now)
	for range t.byTime.Len() {
		e, at, ok := t.byTime.First()
		if !ok || at.After(zero.Add(now.Mono)) {
			return
		}
		t.review(e)
	}
}

// Message is a call of this client, with the place that it had (R3).
func (t *Table) Message(now Now, key string, place Place) {
	t.begin(now)
	e := t.entry(key)
	t.called(e, place)
	t.review(e)
}

// Others is a message on the channel for all: another library's release, perhaps (R3).
func (t *Table) Others(now Now, key string) {
	t.begin(now)
	if e := t.entries[key]; e != nil && e.holder.Foreign && e.line.n > 0 {
		t.soon(e)
		t.review(e)
	}
}

// Subscribed is a confirmed subscription: what was said before it was not heard.
func (t *Table) Subscribed(now Now, key string, others bool) {
	t.begin(now)
	e := t.entries[key]
	if e == nil || e.listens == silent || others && e.calls.others == silent {
		return // it was given up meanwhile
	}
	if others {
		e.calls.others = stands
	} else {
		e.listens = stands
	}
	t.soon(e)
	t.review(e)
}

// Deaf is a subscription that broke. The shell makes it again by itself, and says [Table.Subscribed] then.
func (t *Table) Deaf(now Now, key string) {
	t.begin(now)
	e := t.entries[key]
	if e == nil || e.listens == silent {
		return
	}
	e.listens, e.calls.others = asked, min(e.calls.others, asked)
	if e.line.n > 0 {
		e.due = min(e.due, now.Mono+deafLook)
	}
	t.review(e)
}

// Broke is a connection that ended: what was known is no reason to pass anything on (R2).
func (t *Table) Broke(now Now) {
	t.begin(now)
	t.trustedAfter = now.Mono
}

// Doubt begins, and ends, a command of this client that takes a lock away by force (R2). What is held is checked.
func (t *Table) Doubt(now Now, key string, begins bool) {
	t.begin(now)
	e := t.entry(key)
	// While the command is under way nothing is passed on; after it, only what was asked about since.
	e.trusted = now.Mono
	if begins {
		e.doubts++
	} else {
		e.doubts--
		if s := e.held(); s != nil {
			s.renewAt = now.Mono
		}
		t.soon(e)
	}
	t.review(e)
}

// Moved says that the keys are on another server (R8): all is asked anew.
func (t *Table) Moved(now Now) {
	t.begin(now)
	t.trustedAfter, t.answersAfter = now.Mono, now.Mono
	for _, e := range t.all() {
		for _, s := range e.sessions {
			s.renewAt = now.Mono
		}
		t.soon(e)
		t.review(e)
	}
}

// Drain refuses who is not inside. Re-entry still works; [Drained] follows when nothing is held any more.
func (t *Table) Drain(now Now) {
	t.begin(now)
	t.draining = true
	t.dismiss()
}

// Close ends everything now. Holds end, and their keys are left to their leases; what was given up goes back still.
func (t *Table) Close(now Now) {
	t.begin(now)
	t.draining, t.closed = true, true
	for _, e := range t.all() {
		for _, s := range e.sessions {
			// What is being released, or was never anybody's, goes back as ever.
			if s.phase == held && len(s.holds) > 0 {
				t.lose(s, IsClosed)
				t.drop(s)
			}
		}
	}
	t.dismiss()
}

// dismiss ends the requests of all lines.
func (t *Table) dismiss() {
	for _, e := range t.all() {
		for e.line.first() != nil {
			r := e.line.first()
			t.reject(r, IsClosed)
			t.orphan(r)
		}
		for _, s := range e.sessions {
			if r := s.bids; r != nil {
				t.reject(r, IsClosed)
				t.orphan(r)
			}
		}
		t.review(e)
	}
	t.drained()
}

// drained says so, once.
func (t *Table) drained() {
	if t.draining && t.live == 0 && !t.told {
		t.told = true
		t.say(Effect{Kind: Drained})
	}
}
