package held

import (
	"context"
	"time"

	"github.com/redlatch/redlatch/internal/kind"
	"github.com/redlatch/redlatch/internal/lease"
	"github.com/redlatch/redlatch/lock"
)

// Session is one 0→1 acquisition with its re-entries: a field in the lock's hash. What a
// renewal needs of it stands together: among many sessions, each line of memory that it
// reads is one more that no cache has.
type Session struct {
	upkeep
	Lock *Lock
	kind.Field
	reg       *Registry
	mayArrive int32 // acquire commands that may still arrive: a late one must be refused, or given back
	possession
}

// upkeep is what the watchdog keeps of a session. All of it is guarded by reg.mu.
type upkeep struct {
	index     int32     // in the watchdog's heap; -1: not there
	keptHolds int32     // that the watchdog renews it for
	ownHolds  int32     // with deadlines of their own: fixed leases, and what Extend asked for beyond LeaseTime
	inFlight  int32     // renewals and checks without an answer
	renewing  bool      // the latest of them has none; false, too, once its answer would say nothing any more
	renewed   bool      // one was sent, at least
	over      bool      // dropLocked: nobody holds the lock as far as we know, and nothing is renewed
	renewAt   time.Time // when the next one is due
	until     time.Time // the local deadline of the holds that are kept: LeaseTime after an answered command at most

	grant      *grant     // handed over by another one's command; nil: by our own, or confirmed
	answeredAt time.Time  // the sending of the last answered command about it: the tenure counts from there
	askedEnd   time.Time  // the latest end that may stand on the server: of what was answered, or failed, counted from then
	pendingEnd *time.Time // the end that a renewal without an answer asks for
	lastErr    error      // of the last renewal; nil: it worked
}

// possession is who of this process has a session. All of it is guarded by reg.mu.
//
// Invariant: while the session is not over, claim.sessions leads to it.
type possession struct {
	claim       *Claim // of whoever has it now; passing on changes it
	link        any    // the observer's, of that one's acquisition
	holds       []*Hold
	token       uint64
	tenure      time.Duration    // since when this process has had it, on the registry's clock
	joined      map[*Claim]int32 // of readers that share it: each one's holds; nil: nobody joined
	passes      int32            // how often it was passed on
	shareable   bool             // readers of this process may join it
	releaseSent bool             // its last release was sent: "gone" says nothing any more
}

// grant is a lock that was handed over, until it is confirmed.
type grant struct {
	asked     time.Duration // the lease that was asked for
	at        time.Time     // when it was received
	confirmAt time.Time     // when to confirm it
}

// Spot implements Timed.
func (s *Session) Spot() *int32 { return &s.index }

// Token is the fencing token of the session's holds.
func (s *Session) Token() uint64 {
	s.reg.mu.Lock()
	defer s.reg.mu.Unlock()
	return s.token
}

// Grant describes what the server granted to a new session.
type Grant struct {
	Lock      *Lock
	Claim     *Claim // retained by the caller for the hold
	Ctx       context.Context
	Field     kind.Field
	Token     uint64
	Link      any
	MayArrive int           // acquire commands that may still arrive
	Fixed     time.Duration // the lease as the caller gave it; 0: the watchdog's
	Lease     time.Duration // what was asked of the server
	Sent      time.Time     // when

	// Handed: the lock was handed over by another one's command. It lasts Lasts from
	// Sent on until it is confirmed.
	Handed bool
	Lasts  time.Duration
	// Share: of a reader who leads others of this process. Those who waited since before
	// Along may share the session at once; Open: whoever comes may.
	Share *Share
	Along time.Time
	Open  bool
	// Within: the owner holds the lock in another mode, so draining does not refuse.
	Within bool
}

// memory is a session with its first hold, in one piece: most sessions have no
// other.
type memory struct {
	session Session
	hold    Hold
	list    [1]*Hold
}

// Take makes a session and its first hold. It returns lock.ErrClosed when the client takes no
// more, and ErrMoved when the grant may be that of a server which another one has replaced: what
// it may have left there is still the caller's to undo.
func (r *Registry) Take(g *Grant) (*Hold, error) {
	counted := r.cfg.Observer != nil && r.cfg.Observer.Counting()
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.closed, r.drains && !g.Within:
		return nil, lock.ErrClosed
	case g.Sent.Before(r.dog.movedAt):
		return nil, ErrMoved
	}
	h := r.takeLocked(g, counted)
	if g.Share != nil {
		r.openLocked(g.Share, h.session, g.Open, g.Along)
	}
	return h, nil
}

func (r *Registry) takeLocked(g *Grant, counted bool) *Hold {
	m := &memory{session: Session{
		Lock: g.Lock, Field: g.Field, reg: r, mayArrive: int32(min(g.MayArrive, 1<<30)),
		upkeep:     upkeep{index: -1, answeredAt: g.Sent},
		possession: possession{claim: g.Claim, link: g.Link, token: g.Token, tenure: g.Sent.Sub(r.epoch)},
	}}
	s := &m.session
	s.holds = m.list[:0]
	g.Claim.sessions[modeIndex(g.Lock.Kind.Traits().Mode)] = s
	length := g.Lease
	if g.Handed {
		length = g.Lasts
	}
	s.until, s.askedEnd = lease.LocalDeadline(g.Sent, min(length, r.cfg.LeaseTime)), time.Now().Add(length)
	h := &m.hold
	s.addLocked(g.Ctx, h, g.Claim, g.Fixed, g.Sent, counted)
	if g.Handed {
		// shorter than asked for until it is confirmed
		h.until, h.untilLease = lease.LocalDeadline(g.Sent, length), length
		now := time.Now()
		h.began = now.Sub(r.epoch)
		// Late enough that a short section needs no confirmation at all, early
		// enough for several tries.
		s.grant = &grant{asked: g.Lease, at: now, confirmAt: now.Add(s.until.Sub(now) / 4)}
	} else {
		h.prolongLocked(g.Sent, g.Fixed, g.Lease)
	}
	sent := g.Sent
	if r.doubtedLocked(s.Lock.Key, sent) {
		s.renewAt, sent = time.Now(), time.Time{} // nobody could suspect it before: it is checked at once
	}
	r.dog.scheduleLocked(s, sent)
	g.Claim.tellWatchersLocked()
	return h
}

// Asking notes, before a command is sent, the lease that it asks for: should the
// answer never come, the end that may stand on the server is known. It returns the
// count that the session has then; false: the session is over.
func (s *Session) Asking(lease time.Duration) (count int, ok bool) {
	r := s.reg
	r.mu.Lock()
	now := time.Now()
	lost := r.expireLocked(s, now)
	if ok = !s.over && !s.releaseSent; ok {
		count = s.askingLocked(now, lease) + 1
	}
	r.mu.Unlock()
	r.tell(lost)
	return count, ok
}

// askingLocked notes what a command is about to ask for, and returns the count of the session's
// holds. The command may yet be withdrawn: then the end is one that nobody asked for, which costs
// a release too many when the session ends, and no more. What is asked of a server again is only
// what a hold counts on.
func (s *Session) askingLocked(now time.Time, length time.Duration) (count int) {
	s.askedEnd = lease.Later(s.askedEnd, now.Add(length))
	return s.countLocked(nil)
}

// Heard notes that the answer to a command that asked for a lease is here, or an error in its stead: the
// server ran it until now, however long ago it was sent.
func (s *Session) Heard(length time.Duration) {
	s.reg.mu.Lock()
	defer s.reg.mu.Unlock()
	s.askedEnd = lease.Later(s.askedEnd, time.Now().Add(length))
}

// Reenter adds the hold of a re-entry that the server confirmed; the claim, its owner's,
// has been retained for it. It returns lock.ErrNotHeld when the session is over, and ErrMoved
// when the server that confirmed it may be one that another one has replaced.
func (s *Session) Reenter(ctx context.Context, c *Claim, fixed, length time.Duration, sent time.Time) (*Hold, error) {
	r := s.reg
	counted := r.cfg.Observer != nil && r.cfg.Observer.Counting()
	h := &Hold{}
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case s.over || s.releaseSent || r.closed: // others of a shared session have gates of their own
		return nil, lock.ErrNotHeld
	case sent.Before(r.dog.movedAt):
		return nil, ErrMoved
	}
	if fixed == 0 {
		s.until = lease.Later(s.until, lease.LocalDeadline(sent, length))
	}
	s.answeredAt = lease.Later(s.answeredAt, sent)
	s.addLocked(ctx, h, c, fixed, sent, counted)
	h.prolongLocked(sent, fixed, length)
	if s.joined != nil {
		s.joined[c]++
		c.sessions[modeRead] = s // its last hold may have ended meanwhile, while others kept the session
	}
	h.reentry = true
	if fixed > 0 && s.keptHolds > 0 {
		sent = time.Time{} // it raised no lease that the watchdog keeps: the renewal is as due as before
	}
	r.dog.scheduleLocked(s, sent)
	return h, nil
}

// Gone takes all holds away: a command found that the server knows of none.
func (s *Session) Gone() {
	r := s.reg
	var lost []*Hold
	r.mu.Lock()
	if !s.releaseSent { // else its own release may have come first
		lost = r.loseLocked(s, lock.LossGone, nil)
	}
	r.mu.Unlock()
	r.tell(lost)
}

// addLocked adds a hold.
func (s *Session) addLocked(ctx context.Context, h *Hold, c *Claim, fixed time.Duration, sent time.Time, counted bool) {
	h.session, h.claim, h.parent, h.lease, h.began, h.counted, h.link = s, c, ctx, fixed, sent.Sub(s.reg.epoch), counted, s.link
	h.alive = true
	if fixed > 0 {
		h.until, h.untilLease = lease.LocalDeadline(sent, fixed), fixed
		h.countsOwnLocked()
	} else {
		h.kept = true
		s.keptHolds++
	}
	h.index = int32(len(s.holds)) // #nosec G115 -- fewer
	s.holds = append(s.holds, h)
	c.Owner.live.Add(1)
	s.reg.held++
}

// prolongLocked notes that of a fixed lease only a part was asked for, at an instant: renewals lead to
// the rest.
func (h *Hold) prolongLocked(sent time.Time, fixed, asked time.Duration) {
	if fixed <= asked {
		return
	}
	end := lease.LocalDeadline(sent, fixed)
	h.until, h.untilLease, h.fullUntil = lease.LocalDeadline(sent, asked), asked, &end
}

// fullLocked is the latest local deadline that renewals lead the session's fixed holds to, beyond what was
// asked for; zero: none.
func (s *Session) fullLocked() (end time.Time) {
	if s.ownHolds > 0 {
		for _, h := range s.holds {
			if h.state == stateHeld && h.fullUntil != nil {
				end = lease.Later(end, *h.fullUntil)
			}
		}
	}
	return end
}

// removeLocked takes a hold out, without looking at the others: readers that share may
// be thousands.
func (s *Session) removeLocked(h *Hold) {
	if at := int(h.index); at < len(s.holds) && s.holds[at] == h {
		last := len(s.holds) - 1
		s.holds[at] = s.holds[last]
		s.holds[at].index = h.index
		s.holds[last] = nil
		s.holds = s.holds[:last]
		s.unkeepLocked(h)
		if h.own {
			s.ownHolds--
		}
		if s.joined != nil {
			s.unjoinLocked(h.claim)
		}
	}
}

// countsOwnLocked: the hold has a deadline of its own from now on.
func (h *Hold) countsOwnLocked() {
	if !h.own {
		h.own = true
		h.session.ownHolds++
	}
}

// unkeepLocked: the watchdog need not keep the session for this hold any more.
func (s *Session) unkeepLocked(h *Hold) {
	if h.kept {
		h.kept = false
		s.keptHolds--
	}
}

// countLocked is how many holds a session has besides one. Those that are being
// released count until that is done: each release takes its own off, in the
// gate's order.
func (s *Session) countLocked(besides *Hold) int {
	n := len(s.holds)
	if besides != nil && int(besides.index) < n && s.holds[besides.index] == besides {
		n--
	}
	return n
}

// dropLocked ends a session: the owner no longer holds the lock as far as we know.
func (r *Registry) dropLocked(s *Session) {
	if s.over {
		return
	}
	s.over = true
	r.dog.heap.Remove(s)
	r.closeLocked(s)
	i := modeIndex(s.Lock.Kind.Traits().Mode)
	if s.claim.sessions[i] == s {
		s.claim.sessions[i] = nil
	}
}

// loseLocked takes all of a session's holds away; the caller calls tell with
// the result once it has let go of the mutex.
func (r *Registry) loseLocked(s *Session, reason lock.LossReason, err error) []*Hold {
	lost := append([]*Hold(nil), s.holds...)
	for _, h := range lost {
		h.loseLocked(reason, err)
	}
	r.dropLocked(s)
	if len(lost) > 0 && (s.mayArrive > 0 || s.grant != nil) && !r.closed { // a late command may take it, or a grant be made again
		r.leavesBehindLocked(lost[len(lost)-1])
	}
	return lost
}

// leavesBehindLocked notes that the last hold of a session leaves something behind, which finish
// gives back.
func (r *Registry) leavesBehindLocked(h *Hold) {
	h.leavesBehind = true
	r.wg.Add(1)
}

// expireLocked takes away the holds whose local deadline has passed. The last one
// of them leaves a lease behind if more was asked for than it lasted: the caller's
// tell gives that back, since a living process leaves none.
func (r *Registry) expireLocked(s *Session, now time.Time) []*Hold {
	var lost []*Hold
	if s.ownHolds == 0 && s.keptHolds > 0 && !lease.Passed(now, s.until) {
		return nil // all of them last as long
	}
	for _, h := range s.holds {
		if h.state == stateHeld && lease.Passed(now, h.deadlineLocked()) {
			lost = append(lost, h)
		}
	}
	for _, h := range lost {
		h.loseLocked(lock.LossExpired, s.lastErr)
	}
	if len(s.holds) == 0 && !s.over {
		r.dropLocked(s)
		if len(lost) > 0 && !r.closed {
			own, forsook := time.Time{}, true
			for _, h := range lost {
				own, forsook = lease.Later(own, h.askedLocked()), forsook && h.wholeLost
			}
			if s.mayArrive > 0 || !forsook && s.leaseStaysLocked(own) {
				r.leavesBehindLocked(lost[len(lost)-1])
			}
		}
	}
	return lost
}

// leaseStaysLocked reports whether a lease may stand on the server that ends notably later
// than that.
func (s *Session) leaseStaysLocked(than time.Time) bool {
	return s.inFlight > 0 || s.askedUntilLocked().After(than.Add(leftBehind))
}

// countsOnLocked is the latest local deadline of the session's holds: the server must not free
// the lock before it.
func (s *Session) countsOnLocked() (until time.Time) {
	if s.keptHolds > 0 {
		until = s.until
	}
	if s.ownHolds > 0 {
		for _, h := range s.holds {
			if h.state == stateHeld && !h.wholeLost {
				until = lease.Later(until, h.until)
			}
		}
	}
	return until
}

// askedUntilLocked is the latest end that the server was asked for, answered or not: while a renewal has no
// answer, it may become later.
func (s *Session) askedUntilLocked() time.Time {
	if s.pendingEnd != nil {
		return lease.Later(s.askedEnd, *s.pendingEnd)
	}
	return s.askedEnd
}

// askedLocked is when the lease that the hold itself was promised ends on the server.
func (h *Hold) askedLocked() time.Time {
	end := h.until.Add(lease.Drift(h.untilLease))
	if h.lease == 0 {
		return lease.Later(end, h.session.until.Add(lease.Drift(h.session.reg.cfg.LeaseTime)))
	}
	return end
}

// leftBehind is how much of a lease is worth a command.
const leftBehind = 50 * time.Millisecond

// Discard ends a hold that its acquisition can't return, with its session. What is
// left on the server is the acquisition's to undo.
func (h *Hold) Discard() {
	r := h.session.reg
	r.mu.Lock()
	ended := h.state == stateHeld
	if ended {
		h.session.removeLocked(h)
		h.endLocked(stateReleased, lock.ErrUnlocked)
		r.dropLocked(h.session)
	}
	r.mu.Unlock()
	if ended {
		h.finish("released")
	}
}
