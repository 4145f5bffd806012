package held

import (
	"time"

	"github.com/redlatch/redlatch/internal/lease"
)

// Readers that share a hold: whoever reads while another reader of this process is
// inside becomes one more hold of that one's session, without a command, and is
// released without one unless it is the last. The mutex decides who is the last: a
// session whose last release has begun admits nobody.
//
// A session is open for this for a short time after its acquisition was sent, if its
// answer said that no writer waited: nobody can know better since then.
//
// One reader of a process asks the server at a time; it leads. Who comes meanwhile
// follows, in line, with no place on the server: also while the leader waits for a writer.
// The leader's grant brings in those who would have been granted the lock, too, had they
// asked when they came. If others are left, or the leader leaves, the next in line leads.
// Who they are depends on what the script says of waiting writers (rw_read.lua):
//
//   - No writer waits: all of them, except those who came behind a waiting writer of this process while the first
//     attempt was under way. The session stays open for the tenure.
//   - Writers wait, and the leader entered in its turn: those who waited when the command was sent. Had they asked, the
//     write unlock would have put them into the turn, too.
//   - Writers wait that came later than the leader: those who came before the first of these writers. The script says
//     how much later than the leader that writer came, by the server's clock. The client counts this from the sending of
//     the refused command, so it errs on the early side.
//   - The attempt was a retry and found its own field, so the script has not looked for writers: none.
//
// In the last three cases the session admits nobody else. A reader whose owner has another command under way does not
// enter with the leader; it looks again, and re-enters what that command got.
//
// Under the mutex a release finds out whether other readers stay; if so, it ends its own hold and sends nothing. The gate
// belongs to the claim, not to the session, so a session whose last release has begun takes no more holds, whichever gate
// they come through. While it is uncertain whether the server still has the session (a broken connection, a ForceUnlock),
// each release asks there. Two of them may count each other then; the one whose answer comes last frees the lock before
// its Unlock returns (part.released).

// Share is one acquisition's part in a hold that readers of this process share. Who
// has called [Registry.Share] calls [Registry.Unshare] in the end, or [Registry.Follow]
// until it says that the acquisition follows no more.
type Share struct {
	To     Receiver
	Tenure time.Duration // how long a session stays open
	Came   time.Time     // when the acquisition first asked for its part
	Stays  bool          // it may wait until a writer has left, not just for an answer
	Behind bool          // it stands back for a writer of this process: it joins no session that is open
	Tell   bool          // Done is signalled also when the one that it follows must wait

	Done chan struct{} // of who follows: signalled when Follow should be called
	Seen Seen          // set by Follow: what the one that it followed was told

	// Failed says, of who leads and leaves, that the server refused it for good: those
	// who follow ask by themselves.
	Failed bool

	lock   *Lock
	place  lease.Entry[*Share] // guarded by reg.mu: among those who follow
	hold   *Hold               // guarded by reg.mu: what it got
	state  Part                // guarded by reg.mu: Follows, until there is something for it to do
	peered bool                // guarded by reg.mu: its owner acquired in another call
}

// Seen is what a reader that waits has been told of the lock.
type Seen struct {
	Owner, Trace string
	Until        time.Time // the holder's lease ends; zero: it has not been told
}

// Part is what an acquisition is to do.
type Part int

// The parts.
const (
	Alone   Part = iota // ask the server for a hold of its own
	Joined              // it has a hold: Unshare or Follow returns it
	Leads               // ask the server; who comes meanwhile follows
	Follows             // wait for Done, and call Follow
	Again               // look once more what its part is

)

// shareKey are the readers that may share: those of a lock, with equal Traits.Shares.
type shareKey struct{ key, class string }

// shared is what the readers of a key have: an open session, and one that asks for the
// next, or neither.
type shared struct {
	session *Session
	leader  *Share
	waits   bool // the leader was refused, and waits
	seen    Seen // what it was told, or one that led before it
	follow  lease.List[*Share]
}

func (l *Lock) shareKey() shareKey { return shareKey{l.Key, l.Kind.Traits().Shares} }

// Share finds the part of an acquisition by an owner that does not hold the lock, and
// whose gate is the caller's. first says that it has sent nothing yet: else it neither
// leads nor follows, since it has a place of its own on the server.
func (r *Registry) Share(x *Share, l *Lock, first bool) Part {
	x.lock = l
	r.mu.Lock()
	defer r.mu.Unlock()
	k := l.shareKey()
	sh := r.shares[k]
	switch {
	case sh != nil && sh.session != nil && !x.Behind && r.joinLocked(x, sh.session, time.Now()):
		return Joined
	case !first || r.drains:
		return Alone
	case sh == nil:
		sh = &shared{}
		if r.shares == nil {
			r.shares = map[shareKey]*shared{}
		}
		r.shares[k] = sh
	case sh.leader != nil && sh.waits && !x.Stays:
		return Alone
	case sh.leader != nil:
		x.Done, x.state = make(chan struct{}, 1), Follows
		sh.follow.Push(&x.place, x)
		if sh.waits && x.Tell {
			x.signal()
		}
		return Follows
	}
	sh.leader = x
	return Leads
}

// Follow looks, after Done was signalled, what has become of an acquisition that
// follows. Joined comes with its hold; lost says that this is over by now. With leave set
// the acquisition follows no more in any case, and does not lead either.
func (r *Registry) Follow(x *Share, leave bool) (part Part, h *Hold, lost bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	k := x.lock.shareKey()
	sh := r.shares[k]
	if part = x.state; part == Follows || part == Leads {
		x.Seen = sh.seen
	}
	switch {
	case part == Follows && (leave || x.peered):
		x.place.Remove()
		part = Again
	case part == Joined:
		h, x.hold = x.hold, nil
		return part, h, h.state != stateHeld || lease.Passed(time.Now(), h.deadlineLocked())
	case part == Leads && leave:
		r.nextLocked(k, sh)
		part = Again
	}
	return part, nil, false
}

// Told implements [Watcher]: the owner of an acquisition that follows may re-enter.
func (x *Share) Told() {
	x.peered = true
	x.signal()
}

// Refused tells those who follow that the leader must wait, and for whom, if that is known:
// it also waits before it repeats a command that failed. Who can't wait asks by itself.
func (r *Registry) Refused(x *Share, seen Seen) {
	r.mu.Lock()
	defer r.mu.Unlock()
	sh := r.shares[x.lock.shareKey()]
	if sh == nil || sh.leader != x {
		return
	}
	if !seen.Until.IsZero() {
		sh.seen = seen
	}
	if sh.waits {
		return
	}
	sh.waits = true
	for f := range sh.follow.All() {
		if !f.Stays {
			f.isLocked(Alone)
		} else if f.Tell {
			f.signal()
		}
	}
}

// Unshare ends the part of an acquisition that joined or leads, and returns the hold that
// it joined. The next of those who follow leads.
func (r *Registry) Unshare(x *Share) *Hold {
	r.mu.Lock()
	defer r.mu.Unlock()
	k := x.lock.shareKey()
	if sh := r.shares[k]; sh != nil && sh.leader == x {
		if x.Failed {
			sh.allLocked(Alone)
		}
		r.nextLocked(k, sh)
	}
	h := x.hold
	x.hold = nil
	return h
}

// isLocked tells who follows, and does no more, what its part is.
func (x *Share) isLocked(p Part) {
	x.place.Remove()
	x.state = p
	x.signal()
}

func (x *Share) signal() {
	select {
	case x.Done <- struct{}{}:
	default:
	}
}

// allLocked tells the same to all who follow.
func (sh *shared) allLocked(p Part) {
	for f := range sh.follow.All() {
		f.isLocked(p)
	}
}

// nextLocked ends the leader's part: the next in line leads.
func (r *Registry) nextLocked(k shareKey, sh *shared) {
	sh.waits = false
	if sh.leader = sh.follow.First(); sh.leader != nil {
		sh.leader.isLocked(Leads)
		return
	}
	sh.seen = Seen{}
	if sh.session == nil {
		delete(r.shares, k)
	}
}

// drainSharesLocked: nobody follows any more.
func (r *Registry) drainSharesLocked() {
	for _, sh := range r.shares {
		sh.allLocked(Again)
	}
}

// openLocked brings in those who follow the leader, which got a session: those who have
// waited since before along, and with open set all but those who came behind a writer of
// this process. With open set the session is the one to share from now on.
func (r *Registry) openLocked(x *Share, s *Session, open bool, along time.Time) {
	k := s.Lock.shareKey()
	sh := r.shares[k]
	if sh == nil || sh.leader != x {
		return
	}
	if open {
		sh.session, s.shareable = s, true
	}
	fresh := r.freshLocked(s)
	for f := range sh.follow.All() {
		switch {
		case !fresh:
			f.isLocked(Alone) // a ForceUnlock, say: what each is told itself counts
		case !f.Came.Before(along) && (!open || f.Behind): // it goes on following
		case r.enterLocked(f, s):
			f.isLocked(Joined)
		default:
			f.isLocked(Again) // another command of its owner's is under way, or it came too late
		}
	}
	r.nextLocked(k, sh)
}

// enterLocked is joinLocked for an acquisition whose gate is not its own while it waits.
func (r *Registry) enterLocked(x *Share, s *Session) bool {
	if !x.To.Claim.Gate.TryEnter() {
		return false
	}
	defer x.To.Claim.Gate.Leave()
	return r.joinLocked(x, s, x.Came)
}

// closeLocked: the session is over.
func (r *Registry) closeLocked(s *Session) {
	if !s.shareable {
		return
	}
	s.shareable = false
	k := s.Lock.shareKey()
	if sh := r.shares[k]; sh != nil && sh.session == s {
		if sh.session = nil; sh.leader == nil {
			delete(r.shares, k)
		}
	}
}

// joinLocked makes x a hold of a session, which is open if the tenure was not over at an
// instant. Its gate is the caller's.
func (r *Registry) joinLocked(x *Share, s *Session, at time.Time) bool {
	now, c := time.Now(), x.To.Claim
	switch {
	case r.drains || s.over || s.releaseSent || lease.Passed(now, s.until),
		at.Sub(r.epoch)-s.tenure >= x.Tenure,
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

// outlastedLocked ends a hold of a shared session that is being released while others
// stay: nothing is to be sent. finish must follow, without the mutex.
func (h *Hold) outlastedLocked() {
	h.session.removeLocked(h)
	h.endLocked(stateReleased, nil)
	h.session.reg.dog.scheduleLocked(h.session, time.Time{})
}
