package multilock

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/redlatch/redlatch/lock"
)

// rounds is one acquisition of all units.
type rounds struct {
	*acquisition
	units []unit
	round int
}

func (a *acquisition) takeAll() (*hold, error) {
	r := &rounds{acquisition: a, units: a.m.units}
	parts, err := r.run()
	if err != nil {
		return nil, err
	}
	return newHold(a.plain, a.m, parts, len(a.m.leaves)), nil
}

// run makes rounds until one gets everything. A unit alone is waited for at once,
// as a single lock is.
func (r *rounds) run() ([]*part, error) {
	switch {
	case r.once:
		return r.from(-1)
	case len(r.units) == 1:
		return r.from(0)
	}
	return r.from(r.behind())
}

// from makes rounds; in the next one, unit first is waited for before the others
// are tried, unless it is negative.
func (r *rounds) from(first int) ([]*part, error) {
	for ; ; r.round++ {
		if r.m.closed(r.ctx) {
			return nil, lock.ErrClosed
		}
		parts, busy, err := r.try(first)
		if err == nil {
			return parts, nil
		}
		if err := r.verdict(err); err != nil {
			return nil, err
		}
		waited := first >= 0
		first = busy
		if waited || busy < 0 {
			if err := r.sleep(); err != nil {
				return nil, err
			}
		}
	}
}

// behind is the unit to begin with: one whose server is in trouble, or the first that others of this process wait
// for: they were here before.
func (r *rounds) behind() int {
	if i := slices.IndexFunc(r.units, func(u unit) bool { return u.locks != nil && u.locks[0].Trouble() != nil }); i >= 0 {
		return i
	}
	for i := range r.units {
		for _, l := range r.units[i].leaves {
			if l.eng != nil && l.eng.Waiting() && !l.eng.Inside(r.ctx) {
				return i
			}
		}
	}
	return -1
}

// patience is how long a round that holds something queues for fair members, all in all.
func (r *rounds) patience(u *unit) time.Duration {
	lease := u.leaves[0].eng.Core().LeaseTime()
	if r.lease > 0 {
		lease = min(lease, r.lease)
	}
	return min(20*time.Millisecond<<min(r.round, 10), lease/10)
}

// try makes one round: unit first is waited for, then all others are tried at
// once, and then those that are queued for, one by one in canonical order. (Not for one that comes before a fair one
// in hand, or for two at a time: crowds could stand in each other's queues, each with what the other one lacks.)
// When it fails nothing is kept; busy is the unit to wait for, -1 if none.
func (r *rounds) try(first int) (parts []*part, busy int, err error) {
	parts = make([]*part, len(r.units))
	over := false
	defer func() {
		if !over { // a panic in the user's code: nobody gets them
			drop(parts)
		}
	}()
	busy, err = r.tryInto(parts, first)
	if over = true; err != nil {
		return nil, busy, err
	}
	return parts, -1, nil
}

func (r *rounds) tryInto(parts []*part, first int) (busy int, err error) {
	attempt(r.obs)
	if first >= 0 {
		wait := time.Duration(-1)
		if !r.until.IsZero() {
			wait = max(time.Until(r.until), time.Millisecond)
		}
		if parts[first], err = r.units[first].acquire(r.ctx, wait, r.lease, r.began, r.until); err != nil {
			return -1, r.beside(err)
		}
	}
	errs := make([]error, len(r.units))
	var others, queues []int
	for i := range r.units {
		switch u := &r.units[i]; {
		case i == first:
		case first >= 0 && u.fair() && (i > first || !r.units[first].fair()):
			queues = append(queues, i)
		default:
			others = append(others, i)
		}
	}
	together(others, func(i int) { // an attempt is bounded
		errs[i] = errBroken
		parts[i], errs[i] = r.units[i].acquire(r.ctx, 0, r.lease, r.began, r.until)
	})
	busy, err = r.look(parts, errs)
	for began := time.Now(); err == nil && len(queues) > 0; queues = queues[1:] {
		i := queues[0]
		u := &r.units[i]
		parts[i], errs[i] = u.acquire(r.ctx, max(r.patience(u)-time.Since(began), 0), r.lease, r.began, r.until)
		busy, err = r.look(parts, errs)
	}
	if err != nil {
		r.giveBack(parts, time.Hour)
	}
	return busy, err
}

// beside adds to the failure of a node that was waited for what is known of the others.
func (r *rounds) beside(err error) error {
	away := nodesOf(err)
	for _, u := range r.units {
		if away == nil || u.locks == nil {
			continue
		}
		addr, trouble := u.locks[0].Core().Addr(), u.locks[0].Trouble()
		if trouble != nil && !slices.ContainsFunc(away, func(n lock.NodeError) bool { return n.Node == addr }) {
			away = append(away, lock.NodeError{Node: addr, Err: trouble})
		}
	}
	return r.m.unavailable(err, away)
}

// look says what a round came to: nil if everything is held that was tried so far. What is to be waited for is a unit
// whose node fails, else one that is busy: nothing is held while a node does not answer.
func (r *rounds) look(parts []*part, errs []error) (busy int, err error) {
	busy, failed := -1, -1
	if err := r.twice(parts, errs); err != nil {
		return -1, err
	}
	var away []lock.NodeError
	for i, e := range errs {
		switch nodes := nodesOf(e); {
		case e == nil:
		case !passing(e):
			return -1, e
		case nodes != nil:
			if away = append(away, nodes...); failed < 0 {
				failed = i
			}
		case busy < 0:
			busy, err = i, e
		}
	}
	if err = r.m.unavailable(err, away); failed >= 0 {
		return failed, err
	}
	if err != nil {
		return busy, err
	}
	now := time.Now()
	for _, p := range parts {
		if p != nil && !p.valid(now) {
			return -1, errTooLate
		}
	}
	return -1, nil
}

// twice is an error if a unit is busy because another one of this round has it: two clients name one
// lock of one server, which would wait for itself. (A field alone does not tell: locks of one slot have one together.)
func (r *rounds) twice(parts []*part, errs []error) error {
	type held struct{ key, field string }
	busy := map[held]bool{}
	for i, e := range errs {
		if e, ok := errors.AsType[*lock.NotAcquiredError](e); ok && e.Holder != "" {
			for _, l := range r.units[i].leaves {
				if l.name == e.Name {
					busy[held{l.id().key, e.Holder}] = true
				}
			}
		}
	}
	for _, p := range parts {
		if p == nil || len(busy) == 0 {
			continue
		}
		for _, h := range p.single() {
			if busy[held{h.Lock().Key, h.Field().Name}] {
				return r.m.refuse(fmt.Sprintf("lock %q of two clients is one lock on one server: it would wait for itself", h.Name()))
			}
		}
	}
	return nil
}
