package main

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/redlatch/redlatch"
)

// turn is one holder of a lock, as far as it was seen.
type turn struct {
	Owner string        `json:"owner"`
	Mode  redlatch.Mode `json:"mode"`
	Who   string        `json:"who"`
	From  time.Time     `json:"from"` // when it was seen first, or asked for the lock, by the server's clock
	To    time.Time     `json:"to"`   // when it was seen last, or seen to be gone
	Ended bool          `json:"ended"`
	Looks int           `json:"looks"` // at which it was seen; of one that was seen once it is not known how long it lasted
	// How it ended, as far as can be told: "" = released or handed over, "expired" = its lease
	// ran out, "forced" = this program took it away, "unseen" = at some time after To, when
	// nobody looked.
	How string `json:"how,omitempty"`

	lease held // when it was seen last
}

// blind is how long after a look the end of a turn is not known any more.
const blind = 3 * time.Second

// watched is what was seen of one lock over time.
type watched struct {
	redlatch.Inspection
	Turns   []turn    // the last ones, oldest first
	Changes int       // of holders
	First   time.Time // when it was seen first
	seen    time.Time // when it was in a list last, by our clock
	rate    float64   // turns per second over the last looks
}

// maxTurns is how many turns of a lock are remembered.
const maxTurns = 64

// see takes in a new look at the lock.
func (w *watched) see(in redlatch.Inspection) {
	if w.First.IsZero() {
		w.First = in.At
	}
	for i := range w.Turns {
		t := &w.Turns[i]
		if t.Ended {
			continue
		}
		i := slices.IndexFunc(in.Holders, func(h redlatch.Holder) bool { return h.Owner == t.Owner && h.Mode == t.Mode })
		if i >= 0 {
			t.To, t.lease = in.At, t.lease.seen(in.At, in.Holders[i].Remaining)
			t.Looks++
			continue
		}
		t.Ended = true
		switch {
		case t.How == "" && t.lease.late() && !in.At.Before(t.lease.end):
			t.How, t.To = "expired", t.lease.end
		case t.How == "" && in.At.Sub(t.To) > blind:
			t.How = "unseen"
		default:
			t.To = in.At
		}
	}
	for _, h := range in.Holders {
		if slices.ContainsFunc(w.Turns, func(t turn) bool { return !t.Ended && h.Owner == t.Owner && h.Mode == t.Mode }) {
			continue
		}
		w.Turns = append(w.Turns, turn{Owner: h.Owner, Mode: h.Mode, Who: who(h.Process, h.Owner) + " " + ownerName(h.Owner), From: in.At, To: in.At, Looks: 1, lease: held{}.seen(in.At, h.Remaining)})
		w.Changes++
	}
	if extra := len(w.Turns) - maxTurns; extra > 0 {
		w.Turns = slices.Delete(w.Turns, 0, extra)
	}
	w.Inspection = in
}

// held is the lease of a holder, over all looks.
type held struct {
	end     time.Time     // zero: it has no end
	left    time.Duration // at the last look
	full    time.Duration // the most that was left of it at any look
	overdue bool          // it was said
}

// seen is the lease after a look.
func (l held) seen(at time.Time, left time.Duration) held {
	l.end, l.left, l.full = leaseEnd(at, left), left, max(l.full, left)
	return l
}

// late reports whether a living holder would have renewed by now. It does so at a third
// of its lease, so that two thirds are left, or more.
func (l held) late() bool { return !l.end.IsZero() && l.left < l.full/10*6 }

func leaseEnd(at time.Time, left time.Duration) time.Time {
	if left == 0 {
		return time.Time{}
	}
	return at.Add(left)
}

// force marks the holder that this program is taking the lock away from.
func (w *watched) force(owner string) {
	for i := range w.Turns {
		if t := &w.Turns[i]; !t.Ended && t.Owner == owner {
			t.How = "forced"
		}
	}
}

// heldFor is how long the holder that came first has it, as far as is known.
func (w *watched) heldFor() time.Duration {
	var longest time.Duration
	for _, h := range w.Holders {
		from := h.Since
		for _, t := range w.Turns {
			if !t.Ended && t.Owner == h.Owner && t.Mode == h.Mode && from.IsZero() {
				from = t.From
			}
		}
		if !from.IsZero() {
			longest = max(longest, w.At.Sub(from))
		}
	}
	return longest
}

// waitsFor is how long the waiter that came first waits.
func (w *watched) waitsFor() time.Duration {
	var longest time.Duration
	for _, q := range w.Queue {
		if !q.Since.IsZero() {
			longest = max(longest, w.At.Sub(q.Since))
		}
	}
	return longest
}

// waiters are those that the server knows: places in queues, or else processes.
func (w *watched) waiters() int { return max(w.QueueLength, w.Processes, 0) }

// board is all locks that were seen.
type board struct {
	locks map[string]*watched
	last  time.Time // of the last list
	turns func() map[string]int
}

func newBoard(turns func() map[string]int) *board {
	return &board{locks: map[string]*watched{}, turns: turns}
}

// see takes in a list of all locks that are held now. Those that are not in it are
// forgotten after a while.
func (b *board) see(list []redlatch.Inspection, now time.Time) {
	elapsed := now.Sub(b.last).Seconds()
	if b.last.IsZero() || elapsed <= 0 {
		elapsed = 0
	}
	var heard map[string]int
	if b.turns != nil {
		heard = b.turns()
	}
	seen := map[string]bool{}
	for _, in := range list {
		seen[in.Key] = true
		w := b.locks[in.Key]
		if w == nil {
			w = &watched{}
			b.locks[in.Key] = w
		}
		before := w.Changes
		w.see(in)
		w.seen = now
		b.measure(w, in.Key, w.Changes-before, heard, elapsed)
	}
	for key, w := range b.locks {
		if seen[key] {
			continue
		}
		if now.Sub(w.seen) > time.Minute {
			delete(b.locks, key)
			continue
		}
		gone := w.Inspection
		gone.At = w.At.Add(now.Sub(b.last))
		gone.Mode, gone.Holders, gone.HolderCount, gone.Queue, gone.QueueLength, gone.Processes, gone.Remaining = redlatch.ModeNone, nil, 0, nil, 0, 0, 0
		at := w.seen
		w.see(gone)
		w.seen = at
		b.measure(w, key, 0, heard, elapsed)
	}
	b.last = now
}

// measure keeps the mean of the turns per second over about ten seconds.
func (b *board) measure(w *watched, key string, changed int, heard map[string]int, elapsed float64) {
	if elapsed == 0 {
		return
	}
	n := changed
	if heard != nil {
		n = heard[key]
	}
	share := min(elapsed/10, 1)
	w.rate += (float64(n)/elapsed - w.rate) * share
}

// The orders of a list.
const (
	byWaiters = iota
	byTurns
	byHeld
	byWaits
	byName
	orders
)

var orderNames = [orders]string{"waiters", "turns/s", "longest held", "longest waiter", "name"}

// sorted are the locks whose names contain filter.
func (b *board) sorted(order int, reverse bool, filter string) []*watched {
	var out []*watched
	for _, w := range b.locks {
		if strings.Contains(strings.ToLower(w.Name), strings.ToLower(filter)) {
			out = append(out, w)
		}
	}
	slices.SortFunc(out, func(x, y *watched) int {
		n := 0
		switch order {
		case byWaiters:
			n = cmp.Compare(y.waiters(), x.waiters())
		case byTurns:
			n = cmp.Compare(y.rate, x.rate)
		case byHeld:
			n = cmp.Compare(y.heldFor(), x.heldFor())
		case byWaits:
			n = cmp.Compare(y.waitsFor(), x.waitsFor())
		}
		if n == 0 {
			n = strings.Compare(x.Name, y.Name)
		}
		if reverse {
			return -n
		}
		return n
	})
	return out
}
