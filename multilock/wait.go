package multilock

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/redlatch/redlatch/internal/held"
	"github.com/redlatch/redlatch/internal/lease"
	"github.com/redlatch/redlatch/lock"
)

// wait blocks until another round makes sense: unlock messages came, the lease of the holder has
// ended, or a random pause is over: where nobody in particular is waited for (no majority of
// answers), and after a split vote.
func (q *quorum) wait(why error) error {
	var busy *lock.NotAcquiredError
	if !errors.As(why, &busy) || busy.Err != nil {
		return q.rest()
	}
	left := busy.Remaining - busy.Age + 2*time.Millisecond
	switch {
	case busy.Remaining > 0:
	case busy.Holder != "":
		left = q.m.effective(0) // a key without a lease: nobody knows
	default: // nobody has it, but others come first
		left = q.pause.NextBackOff()
	}
	expect := time.Now().Add(left)
	q.listen(expect, busy.Holder)
	got := q.got()
	switch {
	case got == 0:
		q.splits = 0
	case q.splits < splitVotes:
		return q.comeApart()
	default:
		// Nobody competes: the others are held. But those that gave no answer may be free.
		expect = lease.Earlier(expect, time.Now().Add(q.pause.NextBackOff()))
	}
	for { // the end of one of the clients is signalled, too
		if q.told.Swap(false) || q.m.closed(q.ctx) {
			return nil // its owner got the lock in another call, or nobody can
		}
		q.dropBids(func(l leaf) bool { return l.closed(q.ctx) })
		told, at := q.look()
		if told > 0 {
			q.gather(got + told)
			return nil
		}
		if over, err := q.sleepUntil(lease.Earlier(expect, at)); over || err != nil {
			return err
		}
	}
}

// splitVotes is how often in a row a round may get some copies and lose, before the holders of the
// others are waited for.
const splitVotes = 3

// got is how many copies the last round got, and gave back.
func (q *quorum) got() int {
	n := 0
	for _, granted := range q.granted {
		if granted {
			n++
		}
	}
	return n
}

// comeApart pauses after a split vote. No message ends it: each of those who compete gives copies back.
func (q *quorum) comeApart() error {
	at := time.Now().Add(apart(q.trip, q.splits))
	q.splits++
	for {
		if over, err := q.sleepUntil(at); over || err != nil {
			return err
		}
	}
}

// apart is how long to pause after a split vote: one to four round trips, at random, so that one of those who
// compete is first; twice as long each time; a second at most, in which a lock that is free may stay so.
func apart(trip time.Duration, splits int) time.Duration {
	most := min(4*trip<<splits, time.Second)
	return most/4 + rand.N(3*most/4+1)
}

// look counts the copies of which there is news, and says when to try without any; zero: nobody knows.
// That a copy was freed which the last round gave back says nothing.
func (q *quorum) look() (told int, at time.Time) {
	for i, w := range q.watches {
		if w == nil {
			continue
		}
		try, soon := w.Look()
		if try && !q.granted[i] && !q.late[i].Load() { // else it is its own giving back
			told++
		}
		at = lease.Earlier(at, soon)
	}
	return told, at
}

// listen makes the copies' unlock messages wake us.
func (q *quorum) listen(expect time.Time, holder string) {
	for i, l := range q.m.leaves {
		if w := q.watches[i]; w != nil {
			w.Expect(expect, holder)
		} else {
			q.watches[i] = l.eng.Watch(q.signal, expect, holder)
			q.bids[i].Pokes(q.watches[i])
		}
	}
}

// gather waits a moment for the other nodes' messages: the holder frees them at
// once, but they do not arrive at once. free is how many copies there are to be had already.
func (q *quorum) gather(free int) {
	t := time.NewTimer(2 * time.Millisecond)
	defer t.Stop()
	for free < q.need {
		select {
		case <-q.signal:
			told, _ := q.look()
			free += told
		case <-t.C:
			return
		}
	}
}

// of is the hold on leaf i, nil if there is none.
func (h *hold) of(i int) *held.Hold {
	if h == nil {
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, p := range h.parts {
		if p.leaves[0].index == h.m.leaves[i].index {
			return p.eng[0]
		}
	}
	return nil
}

// unlockQuorum frees all copies. It returns as soon as a majority is freed and the
// others have had some time more; for those that do not answer it goes on in the
// background. nil means that a majority was held until now. called is when the caller's Unlock
// began.
func (h *hold) unlockQuorum(ctx context.Context, parts []*part, called time.Time, begun func()) error {
	began := time.Now()
	notify := make(chan *held.Releasing, len(parts))
	open := map[*held.Releasing]*part{}
	for _, p := range parts {
		open[held.Release(ctx, p.eng, notify)] = p
		begun()
	}
	limit := time.NewTimer(time.Until(called.Add(h.m.leaves[0].eng.Core().UnlockTimeout())))
	defer limit.Stop()
	var grace <-chan time.Time
	var errs []error
	h.mu.Lock()
	freed := h.freed
	h.mu.Unlock()
	for len(open) > 0 {
		if grace == nil && freed >= h.need {
			t := time.NewTimer(max(2*time.Since(began), 5*time.Millisecond))
			defer t.Stop()
			grace = t.C
		}
		select {
		case r := <-notify:
			delete(open, r)
			if errs = append(errs, r.Errs()...); r.Errs()[0] == nil {
				freed++
			}
			continue
		case <-grace:
		case <-limit.C:
		}
		break
	}
	if freed >= h.need {
		return nil
	}
	h.mu.Lock()
	h.freed = freed
	for r, p := range open {
		errs = append(errs, r.GiveUp()...)
		h.pending = append(h.pending, p)
	}
	h.mu.Unlock()
	if slices.ContainsFunc(errs, func(err error) bool { return err != nil }) {
		return lock.Join(errs...)
	}
	return &lock.LeaseLostError{Name: h.m.name, Reason: lock.LossMember, At: time.Now(), Err: context.Cause(h.ctx)}
}
