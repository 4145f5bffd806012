package engine

import (
	"time"

	"github.com/redlatch/redlatch/internal/pubsub"
	"github.com/redlatch/redlatch/lock"
)

// forget stops listening and refreshing; run begins anew.
func (a *acquisition) forget() {
	if a.place != nil {
		a.core.dog.removePlace(a.place)
		a.place = nil
	}
	a.slot.unwatch(a.peers)
	a.waiter.Leave(true, time.Time{}, pubsub.Holder{})
	a.waiter = nil
}

// join begins to listen.
func (a *acquisition) join() {
	spec, opts := a.lock.spec(&a.attempt)
	a.waiter = a.core.hub.Join(spec, append(opts, pubsub.About(a.about))...)
	if !a.look.IsZero() && len(opts) == 0 {
		a.waiter.Expect(a.look, a.seen())
	}
	a.peers = a.slot.watch()
}

// unconfirmedPoll is how often a waiter looks while no subscription stands.
const unconfirmedPoll = time.Second

// sleep blocks until the acquisition should try again (true) or has been granted
// the lock, or must end.
func (a *acquisition) sleep() (*Hold, bool, error) {
	var timer *time.Timer
	defer func() {
		if timer != nil {
			timer.Stop()
		}
	}()
	for {
		if a.place == nil && a.queued {
			if q, ok := a.kind.(Queuer); ok {
				a.place = a.core.dog.addPlace(a, q, a.busy.RefreshIn)
			}
		}
		news := a.waiter.Take()
		if news.Err != nil {
			return nil, false, &lock.ServerError{Name: a.lock.name, Op: "subscribe", Err: news.Err}
		}
		switch {
		case len(news.Payloads) > 0:
			h, again, err := a.granted(news.Payloads)
			if h != nil || again || err != nil {
				return h, again, err
			}
		case news.Try, news.Missed && a.place == nil:
			return nil, true, nil
		case news.Missed:
			a.core.dog.hurry(a.place)
		}
		at := a.look
		if news.Line {
			at = news.Expect
			a.busy.Holder, a.busy.Remaining = news.Holder.Owner, time.Until(news.Expect)
			if a.obs != nil && news.Holder.Owner != "" {
				a.obs.Busy(news.Holder.Owner, news.Holder.Trace, 0)
			}
		}
		switch {
		case a.place != nil && a.busy.Watched:
			at = time.Time{} // the refreshes look
		case !news.Head:
			at = time.Time{} // somebody else looks
		case at.IsZero():
			return nil, true, nil // nothing is known of the holder: ask
		case !news.Confirmed:
			at = earlier(at, time.Now().Add(unconfirmedPoll))
		}
		at = earlier(at, a.until)
		var tick <-chan time.Time
		if !at.IsZero() {
			if timer == nil {
				timer = time.NewTimer(time.Until(at))
			} else {
				timer.Reset(time.Until(at))
			}
			tick = timer.C
		}
		select {
		case <-a.waiter.C:
		case <-a.peers:
			return nil, true, nil
		case <-tick:
			if !a.until.IsZero() && !time.Now().Before(a.until) {
				return nil, false, a.ended()
			}
			return nil, true, nil
		case <-a.ctx.Done():
			return nil, false, a.ended()
		case <-a.core.draining:
			return nil, false, a.ended()
		}
	}
}

// seen is the holder that the last attempt found.
func (a *acquisition) seen() pubsub.Holder {
	return pubsub.Holder{Owner: a.busy.Holder, Trace: a.busy.Trace}
}

// holder is the new holder, as those in line behind it know it.
func (a *acquisition) holder(h *Hold) pubsub.Holder {
	who := pubsub.Holder{Owner: h.s.Field}
	if h.s.Traced && h.s.Field == a.attempt.Field {
		who.Trace = h.s.Field + " " + a.attempt.Trace
	}
	return who
}

// earlier is the earlier of two instants; a zero one does not count.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || (!b.IsZero() && b.Before(a)) {
		return b
	}
	return a
}
