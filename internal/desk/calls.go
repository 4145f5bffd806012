package desk

// calls is what is known of the list on which the server has this client, if it waits, and from which a release
// calls one client after the other (R3).
//
//	          refused                called                  granted
//	(nothing) ───────► on the list ───────► asks with place ─────────► (nothing)
//	                        ▲                     │ refused: in front
//	                        └─────────────────────┘
//
// Invariant: while somebody of the line waits and no own session is held, this client is on the list, or asks, or
// has an instant to ask. What goes wrong with the list or a call costs until that instant.
type calls struct {
	listed   bool  // the server may have the client on the list; cleared by a call and by a grant
	open     bool  // a call that no ask has answered: it goes to the next if all leave; cleared by the ask, the leave, a grant
	place    Place // of the last call; cleared by a grant, and by the refusal of who asked with it
	told     Place // the place that the last ask told; cleared by its answer, and by a call
	standing Time  // until then the next ask leaves the lock to others; cleared by it, and by a call
	late     bool  // the release that comes next ends a tenure: cleared by its answer
	others   state // the subscription to the channel for all, on which another library's releases are heard
	wanted   Time  // when that was wanted last
	met      Time  // until when others are known to want the lock, too
}

// asks is what an ask of the line tells of this client's place.
func (c *calls) asks(now Time) Place {
	stand := now < c.standing
	c.told, c.standing, c.open = 0, 0, false
	switch {
	case c.place > Listed:
		c.told = c.place
		return c.place
	case stand:
		c.listed = true
		return StandsBack
	case c.listed:
		return Listed
	}
	c.listed = true
	return NewPlace
}

// called takes a call. Nobody of the line waits: the next is called by the leave that follows.
func (t *Table) called(e *Entry, place Place) {
	c := &e.calls
	c.listed, c.open, c.standing, c.place, c.told = false, true, 0, 0, 0
	if e.line.n == 0 {
		return
	}
	if place > Listed { // anybody may publish anything
		c.place = place
	}
	at := t.now.Mono
	// Another library's clients learn of a release later than ours do: they get a gap (R3).
	if at < c.met {
		at += javaFirst
	}
	e.due = min(e.due, at)
}

// refused notes who has the lock, and when the line asks next: at the holder's end, and in any case soon.
func (t *Table) refused(e *Entry, a Answer) {
	now, c := t.now.Mono, &e.calls
	if c.told == c.place { // else a call came behind the ask that was refused: its place is for the next one
		c.place, c.listed = 0, true
	}
	c.told = 0
	e.holder = a.Holder
	if a.Holder.Foreign {
		c.wanted, c.met = now, now+metOthers
		if c.others == silent {
			c.others = asked
			t.say(Effect{Kind: Listen, Key: e.key, Others: true})
		}
	} else if c.others != silent && now-c.wanted > keepOthers {
		c.others = silent
		t.say(Effect{Kind: Unlisten, Key: e.key, Others: true})
	}
	at := now + t.look()
	if a.TTL >= 0 {
		at = min(at, now+a.TTL)
	}
	if a.Look > 0 {
		at = min(at, now+a.Look)
	}
	if e.listens != stands {
		at = min(at, now+deafLook)
	}
	e.due = min(e.due, at)
}

// look is when the line asks without being called, so that many lines together do not ask too often.
func (t *Table) look() Time {
	every := lookEvery
	if t.lines > lineMost {
		every = min(every*Time(t.lines)/lineMost, longLook)
	}
	return every*3/4 + t.random(every/2)
}

// granted: a call that comes now has no meaning, since our own release calls the next.
func (t *Table) granted(e *Entry) {
	c := &e.calls
	c.place, c.told, c.listed, c.open, c.late = 0, 0, false, false, false
	e.due = t.now.Mono + t.look()
}

// releases is what a release of a lock that was held does with this client's place: who waits and would hear a
// call goes behind the one who is called; where the lock was passed on inside, the place may stand still.
func (e *Entry) releases() Listing {
	switch {
	case e.line.n > 0 && e.listens == stands:
		return PutBehind
	case e.calls.listed:
		e.calls.listed = false
		return TakeOff
	}
	return KeepListing
}

// released notes what a release came to: the line waits to be called, or asks at once.
func (t *Table) released(e *Entry, c *Command, a Answer) {
	k, now := &e.calls, t.now.Mono
	late := k.late
	k.late = false
	if a.Loser || a.Called && a.Heard && now < k.met {
		k.standing = now + standBack
	}
	switch {
	case a.Called && c.Listing == PutBehind:
		k.listed = true
		e.due = min(e.due, now+t.look())
	case late && !a.Called && a.Heard:
		e.due = min(e.due, now+javaFirst)
	default:
		k.listed = k.listed || c.Listing == PutBehind
		e.due = now
	}
}

// leaves takes this client off the list when nobody of it waits any more; what it may have been called for goes to
// the next. Nobody waits for that, and nothing depends on it for longer than until somebody looks.
func (t *Table) leaves(e *Entry) {
	c := &e.calls
	if e.line.n > 0 || len(e.sessions) > 0 || e.departed != nil || !c.listed && !c.open {
		return
	}
	c.listed, c.open, c.place, c.told = false, false, 0, 0
	e.departed = &Command{Verb: Leave, Key: e.key, entry: e}
	t.live++
	t.say(Effect{Kind: Send, Command: e.departed})
}

// listen keeps the subscription: while a request waits, unless it is the only one and its first command is
// in flight; and a little longer (R1).
func (t *Table) listen(e *Entry) {
	// A lock that is free costs one command and no subscription.
	first := e.line.n == 1 && e.bid != nil && e.bid.server.flight != nil && e.bid.server.tries == 1
	if e.line.n > 0 && !first {
		e.idleAt = never
		if e.listens == silent {
			e.listens = asked
			t.say(Effect{Kind: Listen, Key: e.key})
		}
		return
	}
	if e.listens == silent {
		return
	}
	if e.idleAt == never {
		e.idleAt = t.now.Mono
	}
	if e.line.n == 0 && t.now.Mono >= e.lingerEnd() {
		t.say(Effect{Kind: Unlisten, Key: e.key})
		if e.calls.others != silent {
			t.say(Effect{Kind: Unlisten, Key: e.key, Others: true})
		}
		e.listens, e.calls.others, e.idleAt = silent, silent, never
	}
}

// lingerEnd is when an entry that nobody waits in stops to listen.
func (e *Entry) lingerEnd() Time {
	if e.listens == silent || e.line.n > 0 || e.idleAt == never {
		return never
	}
	return e.idleAt + linger
}
