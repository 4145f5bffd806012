package engine

import (
	"time"

	"github.com/redlatch/redlatch/internal/held"
	"github.com/redlatch/redlatch/internal/lease"
	"github.com/redlatch/redlatch/internal/pubsub"
	"github.com/redlatch/redlatch/lock"
)

// standsBehind reports whether others of this process wait already: then this
// one queues up behind them without asking the server, and they are served in
// their order. Who holds the lock already re-enters. (A reader who asks to write
// need not be looked for: join tells it of its session, so that it tries and is
// refused.)
func (a *acquisition) standsBehind() bool {
	if a.once {
		return false
	}
	for i := range a.members {
		m := &a.members[i]
		if line := m.lock.of.Line; line != "" {
			if a.core.hub.Waiting(line) && !a.holdsAlready(m) {
				a.focus(i)
				return true
			}
			continue
		}
		if m.lock.of.Kind.Traits().Queued {
			continue // its waiters have keys of their own, and no line
		}
		spec, opts := m.lock.of.Kind.Wait(&m.attempt)
		if len(opts) == 0 && a.core.hub.Waiting(spec.ID) && !a.holdsAlready(m) {
			a.focus(i)
			return true
		}
	}
	return false
}

// holdsAlready reports whether the owner has a session of a member already, as far as this client knows.
func (a *acquisition) holdsAlready(m *member) bool {
	return !a.fresh && m.claim.Session(m.lock.of.Kind.Traits().Mode) != nil
}

// listenEarly begins to listen before the first attempt where the subscription
// stands already: what the attempt leaves in a queue, or on the list of those that wait, can't be
// granted or called before it is heard then, so there is no need to look again.
func (a *acquisition) listenEarly() {
	m := a.about()
	if m.lock.queue == nil && m.lock.of.Calls == "" || a.once {
		return
	}
	spec, opts := m.lock.of.Kind.Wait(&m.attempt)
	if (len(opts) > 0 || m.lock.of.Calls != "") && a.core.hub.Standing(spec.ID) && !a.holdsAlready(m) {
		a.join(spec, opts)
		a.waiter.Take()
	}
}

// leaveLine leaves the line without the lock.
func (a *acquisition) leaveLine() {
	a.core.deserted(&a.about().lock.of, a.waiter.Leave(true, time.Time{}, pubsub.Holder{}))
}

// stopListening stops listening and refreshing; run begins anew.
func (a *acquisition) stopListening() {
	if a.place != nil {
		a.core.places.remove(a.place)
		a.place = nil
	}
	a.unwatch()
	a.leaveLine()
	a.mayBeLogged = a.mayBeLogged || !a.waiter.Forgotten()
	a.waiter = nil
}

// join begins to listen.
func (a *acquisition) join(spec pubsub.Spec, opts []pubsub.Option) {
	m := a.about()
	passes := m.lock.of.Line != ""
	if passes {
		if o := a.core.cfg.Observer; o != nil {
			a.passLink, a.passCounts, a.passTrace = a.linkOf(m), o.Counting(), m.attempt.Trace
		}
	}
	if len(opts) == 0 {
		a.waiter = &a.line
		a.core.hub.JoinLine(a.waiter, &spec, a, passes)
		if !a.look.IsZero() {
			a.waiter.Expect(a.look, a.seen())
		}
	} else {
		a.waiter = a.core.hub.Join(spec, append(opts, pubsub.About(a))...)
	}
	if !a.fresh {
		m.claim.Watch(a)
	}
}

// unwatch ends what join began.
func (a *acquisition) unwatch() {
	if !a.fresh {
		a.about().claim.Unwatch(a)
	}
}

// Told implements held.Watcher: the same owner acquired in another call.
func (a *acquisition) Told() {
	a.ownerActed.Store(true)
	a.waiter.Nudge()
}

// leastPause is how long a waiter that had an error does not try again, whatever it hears: a server
// may refuse while messages arrive, or connections for them come and go.
const leastPause = 100 * time.Millisecond

// pause lets d pass after an error; false: the wait ended, or would before. Nobody else of the line
// asks meanwhile, so what makes a sleeping waiter try ends the pause as well: a message, or a
// subscription that stands again.
func (a *acquisition) pause(d time.Duration) bool {
	if a.waiter == nil {
		defer a.core.pausing.enter(a)()
	}
	if a.waiter == nil || d <= leastPause {
		return held.Sleep(a.ctx, a.stop(), a.until, d)
	}
	over := time.Now().Add(d)
	if !held.Sleep(a.ctx, a.stop(), a.until, leastPause) {
		return false
	}
	for {
		slept, signalled := held.SleepOr(a.ctx, a.stop(), a.waiter.C, a.until, time.Until(over))
		if !signalled {
			return slept
		}
		news := a.waiter.Take()
		a.tellHolders(news.Passed)
		if news.Try || news.Missed || len(news.Payloads) > 0 {
			return true
		}
	}
}

// unconfirmedPoll is how often a waiter looks while no subscription stands.
const unconfirmedPoll = time.Second

// sleep blocks until the acquisition should try again, has been granted the lock
// (won), or must end.
func (a *acquisition) sleep() (won, try bool, err error) {
	var timer *time.Timer
	defer func() {
		if timer != nil {
			timer.Stop()
		}
	}()
	a.asleep.Store(true)
	defer func() {
		a.asleep.Store(false)
		if err != nil {
			won, err = a.lastLook(err)
		}
	}()
	for {
		if won, over := a.receive(); won || over {
			return won, over, nil
		}
		if a.place == nil && a.leftover.queued && a.about().lock.queue != nil {
			a.hadPlace = true
			a.place = a.core.places.add(a, a.about().lock.queue, a.busy.RefreshIn)
		}
		news := a.waiter.Take()
		a.tellHolders(news.Passed)
		if news.Err != nil {
			return false, false, &lock.ServerError{Name: a.about().lock.of.Name, Op: "subscribe", Err: news.Err}
		}
		switch {
		case a.ownerActed.Swap(false):
			return false, true, nil
		case len(news.Payloads) > 0:
			if won, try, err := a.granted(news.Payloads); won || try || err != nil {
				return won, try, err
			}
		case news.Try, news.Missed && a.place == nil:
			return false, true, nil
		case news.Missed:
			a.core.places.hurry(a.place)
		}
		at, ask := a.nextLook(news)
		if ask {
			return false, true, nil
		}
		var tick <-chan time.Time
		if !at.IsZero() {
			if timer == nil {
				timer = time.NewTimer(time.Until(at))
			} else {
				timer.Reset(time.Until(at))
			}
			tick = timer.C
		}
		draining := a.core.draining
		if news.Line {
			// drain signals everybody in line: one channel that all select on costs much.
			if draining = nil; a.core.isDraining() {
				return false, false, a.ended()
			}
		}
		select {
		case <-a.waiter.C:
		case <-tick:
			if !a.until.IsZero() && !time.Now().Before(a.until) {
				return false, false, a.ended()
			}
			if a.looksAtOwn(news) {
				continue
			}
			return false, true, nil
		case <-a.ctx.Done():
			return false, false, a.ended()
		case <-draining:
			return false, false, a.ended()
		}
	}
}

// looksAtOwn reports whether it is a hold of this client that is in the way: then that is checked,
// and who waits goes on when it is found lost, after its context has ended. To ask for the lock
// could get it before.
func (a *acquisition) looksAtOwn(news pubsub.News) bool {
	l := &a.about().lock.of
	if !news.Line || l.Calls == "" || !a.core.owns(news.Holder.Owner) || !time.Now().Before(news.Expect) {
		return false
	}
	if at := a.ownLook(); !at.IsZero() && !time.Now().Before(at) {
		return false // it is told of, if the server says so, too
	}
	return a.core.reg.Suspect(l.Key, lock.ModeNone, held.ManyHeld) && // else it has been released since
		a.core.hub.HasLooked(l.Calls)
}

// lastLook leaves the line before the wait ends: from then on nobody passes the
// lock on to this acquisition, and what was passed on just before is not lost.
func (a *acquisition) lastLook(err error) (won bool, _ error) {
	a.leaveLine()
	if h, lost := a.core.reg.TakePassed(&a.passed); h != nil {
		if a.ctx.Err() == nil && !lost {
			a.about().hold = h
			a.tellHolders(a.waiter.Take().Passed)
			return true, nil
		}
		held.Release(a.values, []*held.Hold{h}, nil)
	}
	return false, err
}

// nextLook is when to try, or to give up, without a message; zero: never. ask
// says that nothing is known of the holder.
func (a *acquisition) nextLook(news pubsub.News) (at time.Time, ask bool) {
	now := a.began.Add(time.Since(a.began)) // each waiter comes here: one look at one clock
	at = a.look
	if news.Line {
		at = lease.Earlier(news.Expect, news.Look)
		a.busy.Holder, a.busy.Remaining, a.seenAt = news.Holder.Owner, news.Expect.Sub(now), now
		if a.obs != nil && news.Holder.Owner != "" {
			a.obs.Busy(news.Holder.Owner, news.Holder.Trace, 0)
		}
	}
	switch {
	case a.place != nil && a.busy.Watched:
		at = a.ownLook() // the refreshes look
	case !news.Head:
		at = time.Time{} // somebody else looks
	case at.IsZero():
		return at, true
	case !news.Confirmed:
		at = lease.Earlier(lease.Earlier(at, a.ownLook()), now.Add(unconfirmedPoll))
	default:
		at = lease.Earlier(at, a.ownLook())
	}
	return lease.Earlier(at, a.until), false
}

// seen is the holder that the last attempt found.
func (a *acquisition) seen() pubsub.Holder {
	return pubsub.Holder{Owner: a.busy.Holder, Trace: a.busy.Trace, Foreign: a.busy.Foreign}
}

// holder is the new holder, as those in line behind it know it.
func (a *acquisition) holder() pubsub.Holder {
	m := a.about()
	f := m.hold.Field()
	who := pubsub.Holder{Owner: f.Name}
	if f.Traced && f.Name == m.attempt.Field {
		who.Trace = f.Name + " " + m.attempt.Trace
	}
	return who
}
