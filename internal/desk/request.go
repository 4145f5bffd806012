package desk

import (
	"slices"
	"time"
)

// Owner is who holds a lock: an id that the shell makes. The same owner enters again.
type Owner uint64

// Wish is what a caller wants.
type Wish struct {
	Owner  Owner
	Lease  time.Duration // fixed; 0: the watchdog's
	Fenced bool          // with a token
	Once   bool          // a single attempt: it does not wait for anybody
}

// Request is one caller's wish for one lock. It owns nothing on the server: its bid does.
//
//	waiting (in the line, or among a session's joins, or with its single attempt under way) → granted, or ended
//
// Invariant: exactly one of Grant and Reject is said of it, once.
type Request struct {
	Wish
	entry  *Entry   // set at arrival; nil: it was refused at once
	id     uint64   // set once
	ticket uint64   // its order in the line; set at arrival, and anew when it goes to the end
	over   bool     // it was granted, or has ended; never cleared
	bid    *Session // its own; set when it asks first, cleared when the bid is not its any more (R6)
	joins  *Session // the held session that it enters again; cleared when it stands in line, or is over

	prev, next *Request // in the line, a ring; nil outside: set and cleared by the line
}

// ID is the request's number, for traces.
func (r *Request) ID() uint64 { return r.id }

// line is the requests of an entry that wait, in the order of their tickets, and an index of them by owner. It owns
// nothing of them but their places.
//
// Invariant: n counts the requests of the ring; byOwner has exactly those, each under its owner.
type line struct {
	ring    Request // where it begins and ends; its pointers are nil as long as nobody has waited
	n       int
	byOwner map[Owner][]*Request
}

// first is who asks next; nil: nobody waits.
func (l *line) first() *Request {
	if l.n == 0 {
		return nil
	}
	return l.ring.next
}

// add puts a request where its ticket belongs: nearly always at the end. Who has come before stood near the front.
func (l *line) add(r *Request) {
	if l.byOwner == nil {
		l.byOwner, l.ring.prev, l.ring.next = map[Owner][]*Request{}, &l.ring, &l.ring
	}
	at := l.ring.prev // whom it stands behind: the last one, or with a ticket of 0 the ring
	if at.ticket > r.ticket {
		for at = &l.ring; at.next.ticket < r.ticket; {
			at = at.next
		}
	}
	r.prev, r.next = at, at.next
	r.prev.next, r.next.prev = r, r
	l.byOwner[r.Owner] = append(l.byOwner[r.Owner], r)
	l.n++
}

// remove takes a request out, if it is in the line.
func (l *line) remove(r *Request) {
	if r.next == nil {
		return
	}
	r.prev.next, r.next.prev = r.next, r.prev
	r.prev, r.next = nil, nil
	if l.byOwner[r.Owner] = without(l.byOwner[r.Owner], r); len(l.byOwner[r.Owner]) == 0 {
		delete(l.byOwner, r.Owner)
	}
	l.n--
}

// without takes one out of a list, if it is there.
func without[T comparable](all []T, one T) []T {
	if i := slices.Index(all, one); i >= 0 {
		return slices.Delete(all, i, i+1)
	}
	return all
}

// Extension is one call that raises the lease of a hold. It counts from the sending of its command, and ends with
// its hold.
type Extension struct {
	Hold  *Hold
	Lease time.Duration
	over  bool // it has its result, or its caller left; never cleared
}
