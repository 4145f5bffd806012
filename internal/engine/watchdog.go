package engine

import (
	"container/heap"
	"context"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/redlatch/redlatch/internal/conn"
	"github.com/redlatch/redlatch/lock"
)

// watchdog is the one scheduler of a client: it renews and checks all sessions,
// ends holds at their local deadlines and keeps waiters' places alive. One
// goroutine waits on one timer for whatever comes first; a few more carry the
// batches.
type watchdog struct {
	core *Core
	kick chan struct{} // cap 1: something is due earlier than the timer
	quit chan struct{}
	done chan struct{}

	carriers chan struct{} // places of the goroutines that carry renewals

	refreshFails atomic.Bool // the last refresh failed; told once

	// guarded by core.mu
	heap   timeHeap[*session]
	places timeHeap[*place]
	armed  time.Time // when the goroutine looks next
	// movedAt is when it was noticed that the keys are on another server. What was
	// confirmed by a command sent before may not hold there.
	movedAt time.Time
	// refreshing counts the goroutines that carry refreshes.
	refreshing int
}

const (
	maxCarriers = 8
	// maxRefreshing bounds the refreshes under way. What falls due beyond it waits
	// for the end of one and goes together then, so that a thousand waiters who may
	// have missed a message ask in a few commands.
	maxRefreshing = 8
	// batchKeys bounds a command: the server does nothing else meanwhile.
	batchKeys = 128
	// wallCheck is how often the clocks are compared while anything is held.
	wallCheck = time.Second
	// wallJump is how far the wall clock runs ahead of the monotonic one when the
	// machine has slept.
	wallJump = 200 * time.Millisecond
)

func newWatchdog(c *Core) *watchdog {
	return &watchdog{
		core: c, kick: make(chan struct{}, 1), quit: make(chan struct{}), done: make(chan struct{}),
		carriers: make(chan struct{}, maxCarriers),
	}
}

func (w *watchdog) start() { go w.run() } // ends with stop

// stop ends the goroutine. Batches under way end with their connection.
func (w *watchdog) stop() {
	close(w.quit)
	<-w.done
}

// every is the time between two renewals, or checks, of a session.
func (w *watchdog) every() time.Duration { return w.core.cfg.LeaseTime / 3 }

// window is how much earlier than due a renewal may travel with others.
func (w *watchdog) window() time.Duration {
	return max(w.core.cfg.LeaseTime/200, time.Millisecond)
}

// retryAfter is the pause after a failed renewal.
func (w *watchdog) retryAfter() time.Duration {
	return min(max(w.core.cfg.LeaseTime/30, 10*time.Millisecond), time.Second)
}

// scheduleLocked puts a session where it belongs in the heap. A confirmed
// instant of a command that set or checked the lease starts the next interval.
func (w *watchdog) scheduleLocked(s *session, confirmed time.Time) {
	if s.dead {
		return
	}
	if !confirmed.IsZero() {
		// Spread a little, always to the early side: what was acquired in one
		// burst must not be renewed in one burst for ever.
		// The first interval spreads most.
		every, spread := w.every(), w.every()/16
		if !s.renewed {
			spread = every / 2
		}
		s.renewAt = confirmed.Add(every - rand.N(spread+1)) // #nosec G404 -- only spreads load
		if s.confirm > 0 {
			s.renewAt = s.confirmAt
		}
		if confirmed.Before(w.movedAt) {
			s.renewAt = time.Now()
		}
	}
	next, held := s.renewAt, false
	for _, h := range s.holds {
		if h.state != stateHeld {
			continue
		}
		held = true
		if d := h.deadlineLocked(); d.Before(next) {
			next = d
		}
	}
	if !held {
		w.removeLocked(s)
		return
	}
	s.nextAt = next
	if s.index < 0 {
		heap.Push(&w.heap, s)
	} else {
		heap.Fix(&w.heap, s.index)
	}
	w.wakeLocked(next)
}

func (w *watchdog) removeLocked(s *session) {
	if s.index >= 0 {
		heap.Remove(&w.heap, s.index)
	}
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
const burst = 8 * batchKeys

// moved makes every session due: the keys are on another server now, where a lease
// may end earlier than what the last answer promised. That server may have been
// promoted long before we heard of it, so little of the lease may be left.
func (w *watchdog) moved() {
	c := w.core
	c.mu.Lock()
	defer c.mu.Unlock()
	w.movedAt = time.Now()
	for i, s := range w.sessionsLocked() {
		at := w.movedAt
		if i >= burst {
			at = at.Add(rand.N(w.every() / 8)) // #nosec G404 -- only spreads load
		}
		s.renewAt = sooner(s.renewAt, at)
		w.scheduleLocked(s, time.Time{})
	}
}

func (w *watchdog) sessionsLocked() []*session {
	return append([]*session(nil), w.heap...)
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
		w.core.mu.Lock()
		at := w.armed
		w.core.mu.Unlock()
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
	c := w.core
	var lost []*Hold
	var due []*session
	var fresh []*place
	c.mu.Lock()
	if slept {
		// The monotonic clock stood still: every deadline must be looked at.
		for _, s := range w.sessionsLocked() {
			lost = append(lost, c.expireLocked(s, now)...)
			w.scheduleLocked(s, time.Time{})
		}
	}
	horizon := now.Add(w.window())
	for len(w.heap) > 0 && !w.heap[0].nextAt.After(horizon) {
		s := w.heap[0]
		lost = append(lost, c.expireLocked(s, now)...)
		if s.dead {
			continue
		}
		if s.renewAt.After(horizon) {
			w.scheduleLocked(s, time.Time{})
			if s.index >= 0 && !s.nextAt.After(horizon) {
				break // a deadline within the window: wait for it
			}
			continue
		}
		// One command per owner and lock at a time: if one is under way, look again
		// soon. It holds the next in line off, so try often.
		if !s.slot.gate.tryEnter() {
			s.renewAt = now.Add(max(2*w.window(), w.every()/50)) // beyond the horizon, or this would not end
			w.scheduleLocked(s, time.Time{})
			continue
		}
		s.renewAt = now.Add(w.every()) // until the answer is there
		w.scheduleLocked(s, time.Time{})
		due = append(due, s)
	}
	if w.refreshing < maxRefreshing {
		if fresh = w.duePlacesLocked(now); len(fresh) > 0 {
			w.refreshing++
		}
	}
	w.armed = time.Time{}
	if len(w.heap) > 0 {
		w.armed = earlier(w.heap[0].nextAt, now.Add(wallCheck))
	}
	if len(w.places) > 0 && w.refreshing < maxRefreshing { // else the end of one looks
		w.armed = earlier(w.armed, w.places[0].at)
	}
	c.mu.Unlock()
	c.finish(lost)
	if len(lost) > 0 {
		c.wg.Add(1)
		go func() { // ends with the log handler, which must not stop the watchdog
			defer c.wg.Done()
			c.logLost(lost)
		}()
	}
	w.carry(due, fresh)
}

// carry sends batches; where all carriers are busy (a server that does not
// answer) the sessions come again.
func (w *watchdog) carry(due []*session, fresh []*place) {
	for len(due) > 0 {
		part := due[:min(len(due), 64*batchKeys)]
		due = due[len(part):]
		w.carryOne(func() { w.renew(part) }, func() { w.again(part, nil) })
	}
	if len(fresh) > 0 {
		w.core.wg.Add(1)
		go func() { // ends with the answer, or with the connection
			defer w.core.wg.Done()
			w.refresh(fresh)
			w.core.mu.Lock()
			defer w.core.mu.Unlock()
			w.refreshing--
			w.wakeLocked(time.Now())
		}()
	}
}

func (w *watchdog) carryOne(work, busy func()) {
	select {
	case w.carriers <- struct{}{}:
	default:
		busy()
		return
	}
	w.core.wg.Add(1)
	go func() { // ends with the answer, or with the connection
		defer w.core.wg.Done()
		work()
		<-w.carriers
	}()
}

// renew renews or checks sessions whose gates are ours.
func (w *watchdog) renew(due []*session) {
	c := w.core
	items := make([]Item, len(due))
	sets := make([]time.Duration, len(due))
	c.mu.Lock()
	now := time.Now()
	for i, s := range due {
		_, remain := s.remainLocked(nil, now)
		if s.watchedLocked() {
			sets[i] = c.cfg.LeaseTime
		}
		if s.confirm > 0 {
			// what is left of the asked lease; a fixed one is not extended by it
			sets[i] = max(sets[i], s.granted.Add(s.confirm).Sub(now))
		}
		items[i] = s.Lock.kind.Renew(s, sets[i], remain)
	}
	c.mu.Unlock()
	sent := time.Now()
	failed := map[*session]error{}
	var gone []*session
	c.runBatches(items, func(i int, vals []conn.Value, err error) {
		if o := c.cfg.Observer; o != nil {
			o.Renewed(due[i].Lock.observed(), due[i].Field, due[i].link, sent, renewalError(vals, err))
		}
		switch {
		case err != nil:
			failed[due[i]] = err
		case vals[0].Int < 0:
			failed[due[i]] = errRefused
		case vals[0].Int == 0:
			gone = append(gone, due[i])
		default:
			w.renewed(due[i], sent, sets[i])
		}
	})
	for _, s := range gone {
		c.mu.Lock()
		lost := c.loseLocked(s, lock.LossGone, nil)
		c.mu.Unlock()
		c.tell(lost)
		s.slot.gate.leave()
	}
	if len(failed) > 0 {
		list := make([]*session, 0, len(failed))
		for s := range failed {
			list = append(list, s)
		}
		w.again(list, failed)
	}
}

// watchedLocked reports whether a hold of the session is the watchdog's to keep.
func (s *session) watchedLocked() bool {
	for _, h := range s.holds {
		if h.state == stateHeld && h.lease == 0 {
			return true
		}
	}
	return false
}

// renewed moves the deadlines on after a successful renewal.
func (w *watchdog) renewed(s *session, sent time.Time, lease time.Duration) {
	c := w.core
	c.mu.Lock()
	s.lastErr, s.renewed = nil, true
	if lease > 0 && !sent.Before(w.movedAt) { // else it may have been the old server's answer
		until := sent.Add(lease - drift(lease))
		if until.After(s.until) {
			s.until = until
		}
		if s.confirm > 0 {
			full := s.granted.Add(s.confirm - drift(s.confirm))
			s.confirm = 0
			for _, h := range s.holds {
				if h.lease > 0 && !h.again { // a re-entry's own lease is not what was granted
					h.until = later(h.until, sooner(until, full))
				}
			}
		}
	}
	w.scheduleLocked(s, sent)
	c.mu.Unlock()
	s.slot.gate.leave()
}

func sooner(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// again puts off sessions that could not be renewed: a failed renewal is retried
// until the deadline.
func (w *watchdog) again(list []*session, errs map[*session]error) {
	c := w.core
	for _, s := range list {
		err := errs[s]
		c.mu.Lock()
		first := s.lastErr == nil && err != nil
		if err != nil {
			s.lastErr = err
		}
		pause := w.retryAfter()
		if s.confirm > 0 {
			pause = min(pause, time.Until(s.until)/4)
		}
		s.renewAt = time.Now().Add(pause)
		w.scheduleLocked(s, time.Time{})
		ctx := context.Background()
		if len(s.holds) > 0 {
			ctx = s.holds[0].ctx
		}
		c.mu.Unlock()
		s.slot.gate.leave()
		if first && !c.isClosed() {
			c.cfg.Log.WarnContext(ctx, "redlatch: renewal failed, retrying", c.tracedArgs(ctx, s.link, "lock", s.Lock.name,
				"owner", s.Field, "type", s.Lock.kind.Type(), "error", err)...)
		}
	}
}
