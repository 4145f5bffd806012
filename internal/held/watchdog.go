package held

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/redlatch/redlatch/internal/batch"
	"github.com/redlatch/redlatch/internal/lease"
	"github.com/redlatch/redlatch/lock"
)

// watchdog renews and checks all sessions of a client and ends holds at their
// local deadlines. One goroutine waits on one timer for whatever comes first. A
// renewal waits for nothing but the server.
type watchdog struct {
	reg  *Registry
	quit chan struct{}
	done chan struct{}
	pace lease.Pace

	// guarded by reg.mu
	heap   lease.Heap[*Session]
	looks  Looks        // of the goroutine
	clocks lease.Clocks // deadlines are compared with both
	// movedAt is when it was noticed that the keys are on another server. What was
	// confirmed by a command sent before may not hold there.
	movedAt time.Time
}

func newWatchdog(r *Registry) *watchdog {
	return &watchdog{
		reg: r, looks: NewLooks(), quit: make(chan struct{}), done: make(chan struct{}),
		pace: lease.Pace{Length: r.cfg.LeaseTime}, clocks: lease.NewClocks(r.epoch),
	}
}

func (w *watchdog) start() {
	go func() { // ends with stop
		defer close(w.done)
		w.looks.Run(w.quit, w.look)
	}()
}

// stop ends the goroutine. Batches under way end with their connection.
func (w *watchdog) stop() {
	close(w.quit)
	<-w.done
}

// scheduleLocked puts a session where it belongs in the heap, and returns when it must
// be looked at: zero if never. A confirmed instant of a command that set or checked the
// lease starts the next interval, unless a check is due: it may have been suspected since.
func (w *watchdog) scheduleLocked(s *Session, confirmed time.Time) (next time.Time) {
	if s.over {
		return time.Time{}
	}
	if !confirmed.IsZero() && (s.renewAt.IsZero() || s.renewAt.After(time.Now())) {
		s.renewAt = w.nextLocked(s, confirmed)
		if s.grant != nil {
			s.renewAt = s.grant.confirmAt
		}
		if confirmed.Before(w.movedAt) {
			s.renewAt = time.Now()
		}
	}
	held := s.keptHolds > 0
	next = s.renewAt
	if s.ownHolds > 0 {
		for _, h := range s.holds {
			if h.state == stateHeld {
				held, next = true, lease.Earlier(next, h.deadlineLocked())
			}
		}
	} else if held { // all of them last as long
		next = lease.Earlier(next, s.until)
	}
	if !held {
		w.heap.Remove(s)
		return time.Time{}
	}
	w.heap.Set(s, next)
	w.looks.Wake(next)
	return next
}

// nextLocked is when to renew a session whose interval began at an instant.
func (w *watchdog) nextLocked(s *Session, began time.Time) time.Time {
	spread := w.pace.Spread(!s.renewed, w.heap.Len() > burst)
	return began.Add(w.pace.Every() - rand.N(spread+1)) // #nosec G404 -- only spreads load
}

// burst is how many sessions are renewed at once after a move. More are spread over
// a part of the interval, so that the new server is not overrun.
const burst = 8 * batch.MaxKeys

// moved makes every session due: the keys are on another server now, where a lease
// may end earlier than what the last answer promised. That server may have been
// promoted long before we heard of it, so little of the lease may be left.
func (w *watchdog) moved() {
	r := w.reg
	r.mu.Lock()
	defer r.mu.Unlock()
	w.movedAt = time.Now()
	for i, s := range w.sessionsLocked() {
		s.renewing = false // the answer under way may be the old server's
		w.dueLocked(i, s, w.movedAt)
	}
}

// dueLocked makes a session due, the ith of those that are.
func (w *watchdog) dueLocked(i int, s *Session, now time.Time) {
	if i >= burst {
		now = now.Add(rand.N(w.pace.Every() / 8)) // #nosec G404 -- only spreads load
	}
	s.renewAt = lease.Earlier(s.renewAt, now)
	w.scheduleLocked(s, time.Time{})
}

// suspectLocked makes the sessions of a key due: it was taken away by force, from whom else does not
// matter. What a check finds decides.
func (w *watchdog) suspectLocked(key string, but lock.Mode, now time.Time) (found bool) {
	var of []*Session
	for s := range w.heap.All() {
		if s.Lock.Key == key && !s.releaseSent && (but == lock.ModeNone || s.Lock.Kind.Traits().Mode != but) {
			of = append(of, s)
		}
	}
	for _, s := range of {
		s.renewing = false // the answer under way may be older
		w.dueLocked(0, s, now)
	}
	return len(of) > 0
}

func (w *watchdog) sessionsLocked() []*Session {
	return slices.Collect(w.heap.All())
}

// look does all that is due, and returns when to look again.
func (w *watchdog) look(now time.Time) (at time.Time) {
	r := w.reg
	var n *renewal // most looks find nothing to renew
	var lost []*Hold
	watched := r.cfg.Observer != nil && r.cfg.Observer.Renewals()
	r.mu.Lock()
	switch slept, setBack := w.clocks.Compare(now, w.reg.cfg.LeaseTime); {
	case slept:
		lost = w.wakenLocked(now)
	case setBack:
		w.timeAnewLocked(now)
	}
	horizon := now.Add(w.pace.Window())
	for {
		s, next, ok := w.heap.First()
		if !ok || next.After(horizon) {
			break
		}
		lost = append(lost, r.expireLocked(s, now)...)
		if s.over {
			continue
		}
		if s.renewAt.After(horizon) {
			if at := w.scheduleLocked(s, time.Time{}); !at.IsZero() && !at.After(horizon) {
				break // a deadline within the window: wait for it
			}
			continue
		}
		if !s.renewing { // else it has been without an answer for an interval
			s.renewing = true
			if n == nil {
				n = &renewal{w: w, began: now, watched: watched}
			}
			n.addLocked(s)
		}
		// The next interval begins now, and is that of a good answer, too: to schedule once
		// is half of the work.
		s.renewAt = w.nextLocked(s, now)
		w.scheduleLocked(s, time.Time{})
	}
	if _, next, ok := w.heap.First(); ok {
		at = lease.Earlier(next, now.Add(lease.CheckEvery))
	}
	w.looks.At = at
	r.mu.Unlock()
	r.tell(lost)
	if n != nil {
		batch.Send(r.send, r.topo.Cluster, n)
	}
	return at
}

// wakenLocked does what is due after the machine slept: deadlines come earlier on the monotonic clock,
// by which timers run, and who has any time left renews at once.
func (w *watchdog) wakenLocked(now time.Time) (lost []*Hold) {
	for i, s := range w.sessionsLocked() {
		lost = append(lost, w.reg.expireLocked(s, now)...)
		s.until = lease.OnBoth(now, s.until)
		for _, h := range s.holds {
			h.until = lease.OnBoth(now, h.until)
		}
		w.dueLocked(i, s, now)
	}
	return lost
}

// timeAnewLocked has deadlines follow the wall clock that was set back: else a sleep would be shorter by that.
func (w *watchdog) timeAnewLocked(now time.Time) {
	for s := range w.heap.All() {
		s.until = lease.Anew(now, s.until)
		for _, h := range s.holds {
			h.until = lease.Anew(now, h.until)
			if h.fullUntil != nil {
				full := lease.Anew(now, *h.fullUntil)
				h.fullUntil = &full
			}
		}
	}
}

// renewedLocked moves the deadlines on after a successful renewal, sent and answered at those instants.
func (w *watchdog) renewedLocked(s *Session, sent, heard time.Time, length time.Duration) {
	s.inFlight--
	s.lastErr, s.renewing, s.pendingEnd = nil, false, nil
	if length > 0 {
		s.askedEnd = lease.Later(s.askedEnd, heard.Add(length))
	}
	if !sent.Before(w.movedAt) { // else it may have been the old server's answer
		granted := s.grant != nil
		s.answeredAt = lease.Later(s.answeredAt, sent)
		if length > 0 {
			w.raiseLocked(s, sent, length)
		}
		if !granted && !s.renewAt.After(sent.Add(w.pace.Every())) {
			return // it was scheduled when it was sent, and no look has put it off since
		}
	}
	w.scheduleLocked(s, sent)
}

// raiseLocked moves the deadlines on. What was asked for beyond the watchdog's lease was for the
// holds that count on it, and raises nobody's.
func (w *watchdog) raiseLocked(s *Session, sent time.Time, length time.Duration) {
	part := min(length, w.reg.cfg.LeaseTime)
	until := lease.LocalDeadline(sent, part)
	s.until = lease.Later(s.until, until)
	if s.ownHolds > 0 {
		for _, h := range s.holds {
			if h.fullUntil != nil && until.After(h.until) {
				h.until, h.untilLease = lease.Earlier(until, *h.fullUntil), part
			}
		}
	}
	if s.grant == nil {
		return
	}
	until = lease.LocalDeadline(sent, length)
	full := lease.LocalDeadline(s.grant.at, s.grant.asked)
	s.grant = nil
	for _, h := range s.holds {
		if h.lease > 0 && !h.reentry { // a re-entry's own lease is not what was granted
			h.until, h.untilLease = lease.Later(h.until, lease.Earlier(until, full)), h.lease
		}
	}
}

// againLocked puts off a session that could not be renewed: a failed renewal is
// retried until the deadline.
func (w *watchdog) againLocked(s *Session) {
	pause := w.pace.RetryAfter()
	if left := time.Until(s.until); s.grant != nil && left > 0 {
		pause = min(pause, left/4)
	}
	s.renewing = false
	s.renewAt = time.Now().Add(pause)
	w.scheduleLocked(s, time.Time{})
}
