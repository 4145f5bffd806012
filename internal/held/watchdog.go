package held

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/redlatch/redlatch/internal/batch"
)

// watchdog renews and checks all sessions of a client and ends holds at their
// local deadlines. One goroutine waits on one timer for whatever comes first. A
// renewal waits for nothing but the server.
type watchdog struct {
	reg  *Registry
	kick chan struct{} // cap 1: something is due earlier than the timer
	quit chan struct{}
	done chan struct{}

	// guarded by reg.mu
	heap  TimeHeap[*Session]
	armed time.Time // when the goroutine looks next
	// ahead is by how much the wall clock had run ahead of the monotonic one, since the registry was
	// made, when deadlines were last compared with both; less if it was set back since.
	ahead time.Duration
	// movedAt is when it was noticed that the keys are on another server. What was
	// confirmed by a command sent before may not hold there.
	movedAt time.Time
}

const (
	// wallCheck is how often the clocks are compared while anything is held.
	wallCheck = time.Second
	// wallJump is how far the wall clock may run ahead of the monotonic one before the machine
	// has slept: less where leases are so short that their margin is.
	wallJump = 200 * time.Millisecond
)

func newWatchdog(r *Registry) *watchdog {
	return &watchdog{reg: r, kick: make(chan struct{}, 1), quit: make(chan struct{}), done: make(chan struct{})}
}

func (w *watchdog) start() { go w.run() } // ends with stop

// stop ends the goroutine. Batches under way end with their connection.
func (w *watchdog) stop() {
	close(w.quit)
	<-w.done
}

// every is the time between two renewals, or checks, of a session.
func (w *watchdog) every() time.Duration { return w.reg.cfg.LeaseTime / 3 }

// window is how much earlier than due a renewal may travel with others.
func (w *watchdog) window() time.Duration {
	return max(w.reg.cfg.LeaseTime/200, time.Millisecond)
}

// retryAfter is the pause after a failed renewal.
func (w *watchdog) retryAfter() time.Duration {
	return min(max(w.reg.cfg.LeaseTime/30, 10*time.Millisecond), time.Second)
}

// scheduleLocked puts a session where it belongs in the heap, and returns when it must
// be looked at: zero if never. A confirmed instant of a command that set or checked the
// lease starts the next interval.
func (w *watchdog) scheduleLocked(s *Session, confirmed time.Time) (next time.Time) {
	if s.dead {
		return time.Time{}
	}
	if !confirmed.IsZero() {
		s.renewAt = w.nextLocked(s, confirmed)
		if s.grant != nil {
			s.renewAt = s.grant.confirmAt
		}
		if confirmed.Before(w.movedAt) {
			s.renewAt = time.Now()
		}
	}
	held := s.kept > 0
	next = s.renewAt
	if held {
		next = earlier(next, s.until)
	}
	if s.fixed > 0 {
		for _, h := range s.holds {
			if h.state == stateHeld && h.lease > 0 {
				held, next = true, earlier(next, h.until)
			}
		}
	}
	if !held {
		w.heap.Remove(s)
		return time.Time{}
	}
	w.heap.Set(s, next)
	w.wakeLocked(next)
	return next
}

// nextLocked is when to renew a session whose interval began at an instant. It spreads,
// always to the early side: what was acquired in one burst must not be renewed in one
// burst for ever. The first interval spreads most.
func (w *watchdog) nextLocked(s *Session, began time.Time) time.Time {
	every := w.every()
	spread := every / 16
	if !s.renewed {
		if spread = every / 2; w.heap.Len() > burst {
			// Over half an interval twice as many would be renewed as on average.
			spread = every - every/8
		}
	}
	return began.Add(every - rand.N(spread+1)) // #nosec G404 -- only spreads load
}

// wakeLocked makes the goroutine look no later than at.
func (w *watchdog) wakeLocked(at time.Time) {
	if w.armed.IsZero() || at.Before(w.armed) {
		w.armed = at
		select {
		case w.kick <- struct{}{}:
		default:
		}
	}
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
		at := w.movedAt
		if i >= burst {
			at = at.Add(rand.N(w.every() / 8)) // #nosec G404 -- only spreads load
		}
		s.renewing = false // the answer under way may be the old server's
		s.renewAt = earlier(s.renewAt, at)
		w.scheduleLocked(s, time.Time{})
	}
}

// suspectLocked makes the sessions of a key due: it was taken away by force, from whom else does not
// matter. What a check finds decides.
func (w *watchdog) suspectLocked(key string, now time.Time) (found bool) {
	var of []*Session
	for s := range w.heap.All() {
		if s.Lock.Key == key {
			of = append(of, s)
		}
	}
	for _, s := range of {
		s.renewing = false // the answer under way may be older
		s.renewAt = earlier(s.renewAt, now)
		w.scheduleLocked(s, time.Time{})
	}
	return len(of) > 0
}

func (w *watchdog) sessionsLocked() []*Session {
	return slices.Collect(w.heap.All())
}

// run is the goroutine.
func (w *watchdog) run() {
	defer close(w.done)
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		w.look(time.Now())
		w.reg.mu.Lock()
		at := w.armed
		w.reg.mu.Unlock()
		pause := time.Hour
		if !at.IsZero() {
			pause = time.Until(at)
		}
		timer.Reset(pause)
		select {
		case <-timer.C:
		case <-w.kick:
		case <-w.quit:
			return
		}
	}
}

// look does all that is due and arms the timer for the rest.
func (w *watchdog) look(now time.Time) {
	r := w.reg
	var n *renewal // most looks find nothing to renew
	var lost []*Hold
	watched := r.cfg.Observer != nil && r.cfg.Observer.Renewals()
	r.mu.Lock()
	if w.sleptLocked(now) {
		lost = w.wakenLocked(now)
	}
	horizon := now.Add(w.window())
	for {
		s, next, ok := w.heap.First()
		if !ok || next.After(horizon) {
			break
		}
		lost = append(lost, r.expireLocked(s, now)...)
		if s.dead {
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
	w.armed = time.Time{}
	if _, next, ok := w.heap.First(); ok {
		w.armed = earlier(next, now.Add(wallCheck))
	}
	r.mu.Unlock()
	r.tell(lost)
	if n != nil {
		batch.Send(r.send, r.topo.Cluster, n)
	}
}

// sleptLocked reports whether the monotonic clock stood still since deadlines were compared with both.
// Many short sleeps count as one.
func (w *watchdog) sleptLocked(now time.Time) bool {
	epoch := w.reg.epoch
	ahead := now.Round(0).Sub(epoch.Round(0)) - now.Sub(epoch)
	slept := ahead-w.ahead > min(wallJump, drift(w.reg.cfg.LeaseTime)/2)
	if slept || ahead < w.ahead {
		w.ahead = ahead
	}
	return slept
}

// wakenLocked does what is due after the machine slept: deadlines come earlier on the monotonic clock,
// by which timers run, and who has any time left renews at once.
func (w *watchdog) wakenLocked(now time.Time) (lost []*Hold) {
	for i, s := range w.sessionsLocked() {
		lost = append(lost, w.reg.expireLocked(s, now)...)
		s.until = onBoth(now, s.until)
		for _, h := range s.holds {
			h.until = onBoth(now, h.until)
		}
		at := now
		if i >= burst {
			at = at.Add(rand.N(w.every() / 8)) // #nosec G404 -- only spreads load
		}
		s.renewAt = earlier(s.renewAt, at)
		w.scheduleLocked(s, time.Time{})
	}
	return lost
}

// watchedLocked reports whether a hold of the session is the watchdog's to keep.
func (s *Session) watchedLocked() bool { return s.kept > 0 }

// renewedLocked moves the deadlines on after a successful renewal, sent and answered at those instants.
func (w *watchdog) renewedLocked(s *Session, sent, heard time.Time, lease time.Duration) {
	s.flying--
	s.lastErr, s.renewing, s.asks = nil, false, nil
	if lease > 0 {
		s.asked = later(s.asked, heard.Add(lease))
	}
	if !sent.Before(w.movedAt) { // else it may have been the old server's answer
		granted := s.grant != nil
		s.known = later(s.known, sent)
		if lease > 0 {
			w.raiseLocked(s, sent, lease)
		}
		if !granted && !s.renewAt.After(sent.Add(w.every())) {
			return // it was scheduled when it was sent, and no look has put it off since
		}
	}
	w.scheduleLocked(s, sent)
}

// raiseLocked moves the deadlines on. What was asked for beyond the watchdog's lease was for the
// holds that count on it, and raises nobody's.
func (w *watchdog) raiseLocked(s *Session, sent time.Time, lease time.Duration) {
	part := min(lease, w.reg.cfg.LeaseTime)
	until := LocalDeadline(sent, part)
	s.until = later(s.until, until)
	if s.fixed > 0 {
		for _, h := range s.holds {
			if h.full != nil && until.After(h.until) {
				h.until, h.lasts = earlier(until, *h.full), part
			}
		}
	}
	if s.grant == nil {
		return
	}
	until = LocalDeadline(sent, lease)
	full := LocalDeadline(s.grant.at, s.grant.asked)
	s.grant = nil
	for _, h := range s.holds {
		if h.lease > 0 && !h.again { // a re-entry's own lease is not what was granted
			h.until, h.lasts = later(h.until, earlier(until, full)), h.lease
		}
	}
}

// againLocked puts off a session that could not be renewed: a failed renewal is
// retried until the deadline.
func (w *watchdog) againLocked(s *Session) {
	pause := w.retryAfter()
	if s.grant != nil {
		pause = min(pause, time.Until(s.until)/4)
	}
	s.renewing = false
	s.renewAt = time.Now().Add(pause)
	w.scheduleLocked(s, time.Time{})
}
