package desk

import (
	"time"

	"github.com/redlatch/redlatch/internal/lease"
)

// phase is where a session is in its life; see the state table in doc.go.
type phase uint8

const (
	asking phase = iota
	held
	ending
	gone
)

// Session is one acquisition id on the server, with its re-entries. It owns the field there, and all commands
// about it.
//
// Invariant: at most one command of it is in flight, renewals apart. Holds are there only while it is held. Once
// gone, it stays so, and nothing that comes for it changes anything.
type Session struct {
	entry  *Entry
	field  uint64        // set once
	owner  Owner         // whose it is now: changed when it is passed on
	made   Owner         // who asked for it: a part of the field's name, set once
	lease  time.Duration // of its first request; 0: the watchdog's; set once
	fenced bool          // set once
	phase  phase
	token  uint64   // set by the grant
	bids   *Request // asking: for whom; cleared when that leaves or is granted (R6)

	server onServer
	holds  []*Hold      // R5: those that are held
	joins  []*Request   // R5: in order; cleared when the session ends
	extend []*Extension // R5: in order; cleared when the session ends
	unlock []*Hold      // R5: unlocking, in order; cleared by the answers

	got     Now           // R2: the sending of the command that got it
	had     bool          // somebody has had it: set by the first hold, never cleared
	passes  int           // R2: how often it was passed on
	until   lease.Instant // R8: the deadline of the watchdog's holds; raised by answers
	renewAt Time          // R8: next renewal or check; set by grants and renewals
	renewed bool          // one was sent, at least
}

// onServer is what is known of a session on the server.
//
// Invariant: asked is not before the end that any answered or failed command may have given the field there.
type onServer struct {
	flight   *Command      // set when sent, cleared by its answer
	renewing *Command      // the same, of renewals
	tries    int           // acquires that were sent
	unsure   bool          // an acquire had no answer: it may still run; never cleared, the release refuses it
	final    bool          // a release was sent: "gone" is no loss any more; never cleared
	doubtful bool          // a release had no answer: "gone" may be its doing; never cleared
	undo     bool          // it never was held: its release is in nobody's way; set when it ends
	count    int           // confirmed; -1: not known
	retryAt  Time          // after an error; passes by itself
	asked    Time          // the latest end that it may have there
	known    Time          // the sending of the last answered command
	longest  time.Duration // the longest lease that was asked for
	fails    int           // in a row; cleared by an answer
}

// Hold is one granted request, a part of a session. The caller has it; the table keeps it while it is held, or is
// being unlocked.
//
// Invariant: its context lives exactly while it is held; [End] is said once.
type Hold struct {
	session *Session
	id      uint64
	lease   time.Duration // fixed; 0: the watchdog's
	until   lease.Instant // of a fixed one its deadline; raised by Extend
	state   holdState
	why     Why // why it is over; told once by Unlock
}

type holdState uint8

const (
	isHeld holdState = iota
	unlocking
	isUnlocked
	isOver
)

// ID is the hold's number, for traces.
func (h *Hold) ID() uint64 { return h.id }

// Token is the fencing token; 0: none.
func (h *Hold) Token() uint64 { return h.session.token }

// Field is the session's id on the server.
func (h *Hold) Field() uint64 { return h.session.field }

// Deadline is when the hold ends unless it is renewed.
func (h *Hold) Deadline() lease.Instant {
	if h.lease > 0 {
		return h.until
	}
	return h.session.until
}

// against says that the line can't ask: the session is ours, or was until its release is answered (R2, R3).
func (s *Session) against() bool { return s.phase == held || s.phase == ending && !s.server.undo }

// fits reports whether a request wants what the session is.
func (s *Session) fits(r *Request) bool { return s.lease == r.Lease && s.fenced == r.Fenced }

// heard notes that a command has its answer, or an error in its stead: it may have run until now (R4).
func (s *Session) heard(now Now, length time.Duration) {
	s.server.asked = max(s.server.asked, now.Mono+lease.Margin(length))
}

// forget is when the session can't be on the server any more (R4).
func (s *Session) forget() Time {
	if s.server.unsure {
		return s.server.asked + lease.Margin(voidFor)
	}
	return s.server.asked
}

// answered notes an answer: what was sent before it is known.
func (s *Session) answered(c *Command) {
	s.server.known, s.server.fails, s.server.retryAt = max(s.server.known, c.sent.Mono), 0, 0
}
