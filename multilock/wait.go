package multilock

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/redlatch/redlatch/internal/held"
	"github.com/redlatch/redlatch/lock"
)

// wait blocks until another round makes sense: unlock messages came, the lease of
// the holder has ended, or, where nobody in particular is waited for (no majority
// of answers, split votes), a random pause is over.
func (q *quorum) wait(why error) error {
	var busy *lock.NotAcquiredError
	held := errors.As(why, &busy) && busy.Err == nil && (busy.Holder != "" || busy.Remaining > 0)
	var expect time.Time
	if held {
		left := busy.Remaining + 2*time.Millisecond
		if busy.Remaining == 0 {
			left = q.m.effective(0) // a key without a lease: nobody knows
		}
		expect = time.Now().Add(left)
		q.listen(expect)
	}
	if q.split || !held {
		return q.sleep()
	}
	for {
		if q.told.Swap(false) {
			return nil // its owner got the lock in another call
		}
		told := 0
		for _, w := range q.watches {
			if w == nil {
				continue
			}
			if try, at := w.Look(); try {
				told++
			} else if !at.IsZero() && at.Before(expect) {
				expect = at
			}
		}
		if told > 0 {
			q.gather(told)
			return nil
		}
		if over, err := q.sleepUntil(expect); over || err != nil {
			return err
		}
	}
}

// listen makes the copies' unlock messages wake us.
func (q *quorum) listen(expect time.Time) {
	for i, l := range q.m.leaves {
		if w := q.watches[i]; w != nil {
			w.Expect(expect)
		} else {
			q.watches[i] = l.eng.Watch(q.signal, expect)
		}
	}
}

// gather waits a moment for the other nodes' messages: the holder frees them at
// once, but they do not arrive at once.
func (q *quorum) gather(told int) {
	t := time.NewTimer(2 * time.Millisecond)
	defer t.Stop()
	for told < q.need {
		select {
		case <-q.signal:
			for _, w := range q.watches {
				if w == nil {
					continue
				}
				if try, _ := w.Look(); try {
					told++
				}
			}
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
