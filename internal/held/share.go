package held

import "time"

// Readers that share a hold: whoever reads while another reader of this process is
// inside becomes one more hold of that one's session, without a command, and is
// released without one unless it is the last. Who comes while the command of the first
// is under way waits for its answer.
//
// A session is open for this for a short time after its acquisition was sent: its
// answer says that no writer waited, and nobody can know better since then. The mutex
// decides who is the last: a session whose last release has begun admits nobody.

// Share is one acquisition's part in a hold that readers of this process share. Who
// has called [Registry.Share] calls [Registry.Unshare] in the end.
type Share struct {
	To     Receiver
	Done   chan struct{} // of who follows: gets a value when the first one has its answer
	Tenure time.Duration // how long a session stays open

	// Answered says, of who leads, that the server has answered: those who follow ask
	// it then, each for itself. Again says, of who followed, that it has not: the first one
	// left, and one of the others may lead.
	Answered, Again bool

	lock   *Lock
	came   time.Time
	hold   *Hold // guarded by reg.mu: what it got
	follow bool  // guarded by reg.mu: it waits
}

// Part is what an acquisition is to do.
type Part int

// The parts.
const (
	Alone   Part = iota // ask the server for a hold of its own
	Joined              // it has a hold: Unshare returns it
	Leads               // ask the server; who comes meanwhile follows
	Follows             // wait for Done
)

// shareKey are the readers that may share: those of a lock, with equal Traits.Shares.
type shareKey struct{ key, class string }

// shared is what the readers of a key have: an open session, and one that asks for the
// next, or neither.
type shared struct {
	session *Session
	leader  *Share
	follow  []*Share
}

func (l *Lock) shareKey() shareKey { return shareKey{l.Key, l.Kind.Traits().Shares} }

// Share finds the part of an acquisition by an owner that does not hold the lock, and
// whose gate is the caller's. first says that it has sent nothing yet: else it neither
// leads nor follows, since it has a place of its own on the server.
func (r *Registry) Share(x *Share, l *Lock, first bool) Part {
	x.lock, x.came = l, time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	k := l.shareKey()
	sh := r.shares[k]
	switch {
	case sh != nil && sh.session != nil && r.joinLocked(x, sh.session):
		return Joined
	case !first || r.drains:
		return Alone
	case sh == nil:
		sh = &shared{}
		if r.shares == nil {
			r.shares = map[shareKey]*shared{}
		}
		r.shares[k] = sh
	case sh.leader != nil:
		x.Done, x.follow = r.send.Signal(), true
		sh.follow = append(sh.follow, x)
		return Follows
	}
	sh.leader = x
	return Leads
}

// Unshare ends an acquisition's part, and returns the hold that it got if it joined or
// followed. Those who wait for it go on by themselves.
func (r *Registry) Unshare(x *Share) *Hold {
	r.mu.Lock()
	defer r.mu.Unlock()
	k := x.lock.shareKey()
	sh := r.shares[k]
	switch {
	case sh == nil:
	case sh.leader == x:
		r.letGoLocked(k, sh)
	case x.follow:
		for i, f := range sh.follow {
			if f == x {
				sh.follow = append(sh.follow[:i], sh.follow[i+1:]...)
				break
			}
		}
	}
	h := x.hold
	x.hold = nil
	return h
}

// letGoLocked ends the leader's part: those who follow have a hold by now, or go on by
// themselves.
func (r *Registry) letGoLocked(k shareKey, sh *shared) {
	for _, f := range sh.follow {
		f.follow, f.Again = false, !sh.leader.Answered
		f.Done <- struct{}{}
	}
	sh.leader, sh.follow = nil, nil
	if sh.session == nil {
		delete(r.shares, k)
	}
}

// openLocked makes the session that the leader got the one to share, and lets those in
// who followed.
func (r *Registry) openLocked(x *Share, s *Session) {
	k := s.Lock.shareKey()
	sh := r.shares[k]
	if sh == nil || sh.leader != x {
		return
	}
	sh.session, s.open = s, true
	for _, f := range sh.follow {
		r.joinLocked(f, s)
	}
	r.letGoLocked(k, sh)
}

// closeLocked: the session is over.
func (r *Registry) closeLocked(s *Session) {
	if !s.open {
		return
	}
	s.open = false
	k := s.Lock.shareKey()
	if sh := r.shares[k]; sh != nil && sh.session == s {
		if sh.session = nil; sh.leader == nil {
			delete(r.shares, k)
		}
	}
}

// joinLocked makes x a hold of an open session.
func (r *Registry) joinLocked(x *Share, s *Session) bool {
	now, c := time.Now(), x.To.Claim
	switch {
	case r.drains || s.dead || s.final || Passed(now, s.until),
		x.came.Sub(r.epoch)-s.tenure >= x.Tenure,
		!r.freshLocked(s),
		c.sessions[modeRead] != nil || c.sessions[modeWrite] != nil:
		return false
	}
	c.retainLocked()
	h := &Hold{}
	if s.joined == nil {
		s.joined = map[*Claim]int32{}
		for _, first := range s.holds {
			s.joined[first.claim]++
		}
	}
	s.addLocked(x.To.Ctx, h, c, 0, now, x.To.Count)
	s.joined[c]++
	h.link = x.To.Link
	c.sessions[modeRead] = s
	c.tellWatchersLocked() // others of its owner may re-enter
	r.dog.scheduleLocked(s, time.Time{})
	x.hold = h
	return true
}

// unjoinLocked: a claim whose last hold has left the session has none.
func (s *Session) unjoinLocked(c *Claim) {
	if s.joined[c]--; s.joined[c] > 0 {
		return
	}
	delete(s.joined, c)
	if c.sessions[modeRead] == s {
		c.sessions[modeRead] = nil
	}
}

// freshLocked reports whether nothing has happened since the last answer about the
// session after which the lock may be somebody else's.
func (r *Registry) freshLocked(s *Session) bool {
	return s.known.After(later(r.send.Broke(s.Lock.Key), r.doubts[s.Lock.Key]))
}

// outlastedLocked ends a hold of a shared session that is being released while others
// stay: nothing is to be sent. finish must follow, without the mutex.
func (h *Hold) outlastedLocked() {
	h.s.removeLocked(h)
	h.endLocked(stateReleased, nil)
	h.s.reg.dog.scheduleLocked(h.s, time.Time{})
}
