package held

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/redlatch/redlatch/internal/batch"
	"github.com/redlatch/redlatch/internal/conn"
	"github.com/redlatch/redlatch/internal/kind"
	"github.com/redlatch/redlatch/internal/sender"
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
	// movedAt is when it was noticed that the keys are on another server. What was
	// confirmed by a command sent before may not hold there.
	movedAt time.Time
}

const (
	// wallCheck is how often the clocks are compared while anything is held.
	wallCheck = time.Second
	// wallJump is how far the wall clock runs ahead of the monotonic one when the
	// machine has slept.
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
		s.known = time.Time{} // nothing is known of it there
		s.renewing = false    // the answer under way may be the old server's
		s.renewAt = earlier(s.renewAt, at)
		w.scheduleLocked(s, time.Time{})
	}
}

func (w *watchdog) sessionsLocked() []*Session {
	return slices.Collect(w.heap.All())
}

// run is the goroutine.
func (w *watchdog) run() {
	defer close(w.done)
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	last := time.Now()
	for {
		now := time.Now()
		slept := now.Round(0).Sub(last.Round(0))-now.Sub(last) > wallJump
		last = now
		w.look(now, slept)
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
func (w *watchdog) look(now time.Time, slept bool) {
	r := w.reg
	n := &renewal{w: w, began: now, watched: r.cfg.Observer != nil && r.cfg.Observer.Renewals()}
	var lost []*Hold
	r.mu.Lock()
	if slept {
		// The monotonic clock stood still: every deadline must be looked at.
		for _, s := range w.sessionsLocked() {
			lost = append(lost, r.expireLocked(s, now)...)
			w.scheduleLocked(s, time.Time{})
		}
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
	aged := r.agedLocked(now)
	if _, next, ok := r.ages.First(); ok {
		w.armed = earlier(w.armed, earlier(next, now.Add(wallCheck)))
	}
	if len(lost)+len(aged) > 0 {
		r.wg.Add(1)
	}
	r.mu.Unlock()
	r.finish(lost)
	if len(lost)+len(aged) > 0 {
		go func() { // ends with the log handler, which must not stop the watchdog
			defer r.wg.Done()
			r.logLost(lost)
			r.logOld(aged, now)
		}()
	}
	if len(n.due) > 0 {
		batch.Send(r.send, r.topo.Cluster, n)
	}
}

// renewal is sessions whose renewals fell due together. It implements batch.Work.
type renewal struct {
	w       *watchdog
	due     []*Session
	sets    []time.Duration // what each asks for; 0: only a check
	asks    *time.Time      // the end that the watchdog's lease asks for
	watched bool            // an observer wants to know of each
	links   []any           // the observer's, if so
	began   time.Time

	mu     sync.Mutex
	gone   []*Session // guarded by mu
	failed []*Session // guarded by mu
	first  error      // guarded by mu
}

// addLocked adds a session.
func (n *renewal) addLocked(s *Session) {
	var set time.Duration
	if s.watchedLocked() {
		set = n.w.reg.cfg.LeaseTime
	}
	switch g := s.grant; {
	case g != nil:
		// what is left of the asked lease; a fixed one is not extended by it
		if set = max(set, g.at.Add(g.asked).Sub(n.began)); set > 0 {
			at := n.began.Add(set)
			s.asks = &at
		}
	case set > 0:
		if n.asks == nil {
			at := n.began.Add(set)
			n.asks = &at
		}
		s.asks = n.asks
	}
	s.renewed = true
	n.due = append(n.due, s)
	n.sets = append(n.sets, set)
	if n.watched {
		n.links = append(n.links, s.link)
	}
}

// Len implements batch.Work.
func (n *renewal) Len() int { return len(n.due) }

// Item implements batch.Work.
func (n *renewal) Item(i int) kind.Item {
	s := n.due[i]
	return s.Lock.Kind.Renew(s.Field, n.sets[i])
}

// Ran implements batch.Work.
func (n *renewal) Ran(cmd conn.Command, sent time.Time, err error) {
	if o := n.w.reg.cfg.Observer; o != nil {
		o.Batch(cmd.Script.Name, len(cmd.Keys), sent, err)
	}
}

// Answered implements batch.Work.
func (n *renewal) Answered(as []batch.Answer) {
	good := as[:0]
	for _, a := range as {
		if conn.IsTryAgain(a.Err) {
			if splitter, ok := n.due[a.Item].Lock.Kind.(kind.Splitter); ok {
				n.split(a.Item, splitter.RenewSplit(n.due[a.Item].Field, n.sets[a.Item]))
				continue
			}
		}
		if n.settle(a) {
			good = append(good, a)
		}
	}
	n.renewed(good)
}

// split renews by commands of one key, one after the other. The watchdog does not
// wait for it: what comes of it is settled apart.
func (n *renewal) split(i int, cmds []conn.Command) {
	one := &renewal{w: n.w, due: n.due[i : i+1], sets: n.sets[i : i+1], watched: n.watched, began: n.began}
	if n.watched {
		one.links = n.links[i : i+1]
	}
	sent := time.Now()
	var next func(k int)
	next = func(k int) {
		n.w.reg.send.Start(&sender.Call{Cmd: cmds[k], Class: sender.Renew, Ctx: context.Background(), Then: func(c *sender.Call) {
			vals := c.Reply.Vals
			if len(vals) == 0 {
				vals = []conn.Value{{Int: c.Reply.Code}}
			}
			switch {
			case c.Err == nil && vals[0].Int == 1 && k+1 < len(cmds):
				next(k + 1)
				return
			case c.Err == nil && k > 0 && vals[0].Int != 1:
				vals = []conn.Value{{Int: -1}}
			}
			if a := (batch.Answer{Vals: vals, Sent: sent, Err: c.Err}); one.settle(a) {
				one.renewed([]batch.Answer{a})
			}
			one.End()
		}})
	}
	next(0)
}

// settle reports whether a session was renewed, and notes what came of it otherwise.
func (n *renewal) settle(a batch.Answer) bool {
	err := a.Err
	switch {
	case err != nil:
	case a.Vals[0].Int < 0:
		err = errRefused
	case a.Vals[0].Int == 0:
		err = errGone
	}
	if n.watched {
		s := n.due[a.Item]
		n.w.reg.cfg.Observer.Renewed(s.Lock.Observed(), s.Name, n.links[a.Item], a.Sent, err)
	}
	if err == nil {
		return true
	}
	s, r := n.due[a.Item], n.w.reg
	n.mu.Lock()
	defer n.mu.Unlock()
	if err == errGone { //nolint:errorlint // our own
		n.gone = append(n.gone, s)
		return false
	}
	n.failed = append(n.failed, s)
	r.mu.Lock()
	if err != errRefused && conn.Classify(err) == conn.Ambiguous { //nolint:errorlint // our own
		s.asked = s.askedUntilLocked()
	}
	s.asks = nil
	if s.lastErr == nil && n.first == nil {
		n.first = err
	}
	s.lastErr = err
	r.mu.Unlock()
	return false
}

// End puts off what failed and takes away what is gone.
func (n *renewal) End() {
	r := n.w.reg
	n.mu.Lock()
	gone, failed, first := n.gone, n.failed, n.first
	n.mu.Unlock()
	if len(gone)+len(failed) == 0 {
		return
	}
	var lost []*Hold
	r.mu.Lock()
	for _, s := range gone {
		s.renewing = false
		if !s.final && !s.dead { // else it is our own release that was found
			lost = append(lost, r.loseLocked(s, lossGone, nil)...)
		}
	}
	for _, s := range failed {
		n.w.againLocked(s)
	}
	closed := r.closed
	if !closed {
		r.wg.Add(1)
	}
	var link any
	if len(failed) > 0 {
		link = failed[0].link
	}
	r.mu.Unlock()
	r.finish(lost)
	if closed {
		return
	}
	go func() { // ends with the log handler
		defer r.wg.Done()
		r.logLost(lost)
		if first != nil {
			s := failed[0]
			r.cfg.Log.Warn("redlatch: renewal failed, retrying", r.TracedArgs(context.Background(), link, "lock", s.Lock.Name,
				"owner", s.Name, "type", s.Lock.Kind.Traits().Type, "locks", len(failed), "error", first)...)
		}
	}()
}

// watchedLocked reports whether a hold of the session is the watchdog's to keep.
func (s *Session) watchedLocked() bool { return s.kept > 0 }

// renewed moves the deadlines of those on that were renewed.
func (n *renewal) renewed(good []batch.Answer) {
	if len(good) == 0 {
		return
	}
	w := n.w
	w.reg.mu.Lock()
	defer w.reg.mu.Unlock()
	for _, a := range good {
		w.renewedLocked(n.due[a.Item], a.Sent, n.sets[a.Item])
	}
}

// renewedLocked moves the deadlines on after a successful renewal.
func (w *watchdog) renewedLocked(s *Session, sent time.Time, lease time.Duration) {
	s.lastErr, s.renewing, s.asks = nil, false, nil
	if lease > 0 {
		s.asked = later(s.asked, sent.Add(lease))
	}
	if !sent.Before(w.movedAt) { // else it may have been the old server's answer
		granted := s.grant != nil
		s.known = later(s.known, sent)
		if lease > 0 {
			w.raiseLocked(s, sent, lease)
		}
		if !granted {
			return // it was scheduled when it was sent
		}
	}
	w.scheduleLocked(s, sent)
}

func (w *watchdog) raiseLocked(s *Session, sent time.Time, lease time.Duration) {
	until := LocalDeadline(sent, lease)
	s.until = later(s.until, until)
	if s.grant == nil {
		return
	}
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
