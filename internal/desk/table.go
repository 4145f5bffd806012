package desk

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/redlatch/redlatch/internal/lease"
)

const (
	voidFor    = 5 * time.Second        // how long the server refuses late commands of a session that was given up
	linger     = 500 * time.Millisecond // how long an entry without requests still listens
	lookEvery  = time.Second            // R3: how often a line asks whatever happens, give or take a quarter
	deafLook   = time.Second            // R1: the same without a subscription
	lineMost   = 1000                   // R3: with more lines than this they look less often, but
	longLook   = 20 * time.Second       // at least so often
	firstRetry = 5 * time.Millisecond   // after an error, doubling
	lastRetry  = 200 * time.Millisecond // at most
	standBack  = 5 * time.Millisecond   // R3: how soon the next ask leaves the lock to who has lost
	javaFirst  = 4 * time.Millisecond   // R3: how long others, whom nobody calls, may take the lock first
	metOthers  = 250 * time.Millisecond // R3: how long after meeting them
	keepOthers = 10 * time.Second       // R3: how long their channel is listened to
)

// zero is where the heap's instants count from.
var zero time.Time

// Config is what a table is made with.
type Config struct {
	Lease  time.Duration // LeaseTime: what the watchdog asks for
	Tenure time.Duration // R2; 0: nothing is passed on
	Seed   uint64        // of what is at random: it only spreads load
}

// Table is what a client knows of all its locks. It owns entries, sessions, requests and commands. It is not safe
// for concurrent use: the shell's mutex guards it.
//
// Invariant: after each event every entry is in byTime at its wake, if it has one, and an entry with nothing in it
// is gone.
type Table struct {
	cfg     Config
	pace    lease.Pace
	entries map[string]*Entry
	byTime  lease.Heap[*Entry]
	now     Now // of the event under way
	lines   int // entries in whose lines requests wait
	live    int // sessions that are not gone, and leaves in flight
	lastID  uint64
	seed    uint64

	ahead        Time // by how much the wall clock was ahead of the monotonic one when they were compared last
	trustedAfter Time // R2: what was sent before is no reason to pass on; set by Broke and Moved
	answersAfter Time // R8: what was sent before is no answer; set by Moved
	draining     bool // set by Drain and Close, never cleared
	closed       bool // set by Close, never cleared
	told         bool // Drained was said
	armed        Time // what the last Arm said

	out []Effect // of the events since the last Effects
}

// New makes an empty table.
func New(cfg Config) *Table {
	return &Table{cfg: cfg, pace: lease.Pace{Length: cfg.Lease}, entries: map[string]*Entry{}, seed: cfg.Seed, trustedAfter: -1, answersAfter: -1, armed: never}
}

// Entry is what is known of one key. It owns the line and the sessions.
//
// Invariant: bid is among sessions, and asks. At most one session is held, unless a newer grant has just proved
// the older one lost.
type Entry struct {
	key      string
	index    int32 // in byTime
	line     line
	bid      *Session   // R1: the line's; set when it asks, cleared when it is held, ends or is gone
	sessions []*Session // all that are not gone, the oldest first

	due     Time // R1: when the line asks; never: an ask has used it up, or nothing is to come but a message
	retryAt Time // R1: not before, after an error or a pause that an answer brought; no message changes it
	fails   int  // in a row, of asks; cleared by an answer

	calls    calls // R3
	holder   Holder
	listens  state    // set when asked for, by Subscribed, by Deaf; cleared when it lingered
	idleAt   Time     // since when nobody wants to listen; never: somebody does
	doubts   int      // commands under way that take the lock away by force
	trusted  Time     // R2: as the table's trustedAfter, for this key alone; set by Doubt
	departed *Command // the leave in flight; cleared by its answer
	counted  bool     // it counts among the table's lines
}

// state is how far a subscription is.
type state uint8

const (
	silent state = iota
	asked
	stands
)

// Spot implements [lease.Timed].
func (e *Entry) Spot() *int32 { return &e.index }

// held is the session of ours that has the lock, as far as known.
func (e *Entry) held() *Session {
	for _, s := range e.sessions {
		if s.phase == held {
			return s
		}
	}
	return nil
}

// inside is the session that an owner holds; nil: none.
func (e *Entry) inside(o Owner) *Session {
	if e == nil {
		return nil
	}
	if s := e.held(); s != nil && s.owner == o && len(s.holds) > 0 {
		return s
	}
	return nil
}

// entry finds or makes the entry of a key. Who makes one puts something into it in the same event.
func (t *Table) entry(key string) *Entry {
	e := t.entries[key]
	if e == nil {
		e = &Entry{key: key, index: -1, due: never, idleAt: never, trusted: -1}
		t.entries[key] = e
	}
	return e
}

// all is every entry, in the order of the keys: what happens to all of them happens in the same order each time.
func (t *Table) all() []*Entry {
	all := slices.Collect(maps.Values(t.entries))
	slices.SortFunc(all, func(a, b *Entry) int { return strings.Compare(a.key, b.key) })
	return all
}

// id is a new number: of a session, a request, a hold.
func (t *Table) id() uint64 { t.lastID++; return t.lastID }

// random is a number from 0 to most (splitmix64): it only spreads load.
func (t *Table) random(most Time) Time {
	t.seed += 0x9e3779b97f4a7c15
	z := t.seed
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return Time((z ^ z>>31) % uint64(most+1)) // #nosec G115 -- most is a duration, not negative
}

// backoff is the pause after so many errors in a row.
func (t *Table) backoff(fails int) Time {
	pause := min(firstRetry<<min(fails, 10), lastRetry)
	return pause*3/4 + t.random(pause/2)
}

// say adds an effect.
func (t *Table) say(x Effect) { t.out = append(t.out, x) }

// send sends a session's command.
func (t *Table) send(s *Session, c *Command) {
	c.Key, c.Session, c.entry, c.Field, c.Owner = s.entry.key, s, s.entry, s.field, s.made
	if c.Verb == Renew {
		s.server.renewing = c
	} else {
		s.server.flight = c
	}
	s.server.longest = max(s.server.longest, c.Lease)
	t.say(Effect{Kind: Send, Command: c})
}

// begin begins an event. If the wall clock ran ahead the machine slept: all that is held is renewed at once, and the
// timer, which runs by the monotonic clock, is set for the deadlines as the wall clock has them (R8).
func (t *Table) begin(now Now) {
	t.now = now
	ahead := now.Wall - now.Mono
	if lease.Slept(ahead-t.ahead, t.cfg.Lease) {
		for _, e := range t.all() {
			for _, s := range e.sessions {
				s.renewAt = now.Mono
			}
			t.schedule(e)
		}
		t.ahead = ahead
	}
	t.ahead = min(t.ahead, ahead)
}

// Effects takes what there is to do since the last call. The shell calls it after each event, and carries
// all out before the next one.
func (t *Table) Effects() []Effect {
	next := never
	if _, at, ok := t.byTime.First(); ok {
		next = at.Sub(zero)
	}
	// A tick a little too early costs a look. So the timer is not set anew at each event, only when it has fired, or
	// must fire sooner.
	if t.live > 0 { // R8: the clocks are compared
		next = min(next, t.now.Mono+lease.CheckEvery)
	}
	if t.armed <= t.now.Mono || next < t.armed || next == never && t.armed != never {
		t.armed = next
		t.say(Effect{Kind: Arm, At: next})
	}
	out := t.out
	t.out = nil
	return out
}

// schedule puts an entry where it belongs in time, or drops it if there is nothing in it.
func (t *Table) schedule(e *Entry) {
	// The lines are counted here, once an event, and not wherever a request comes or goes.
	if waits := e.line.n > 0; waits != e.counted {
		e.counted = waits
		if waits {
			t.lines++
		} else {
			t.lines--
		}
	}
	if at := e.wake(t.now); at != never {
		t.byTime.Set(e, zero.Add(at))
		return
	}
	t.byTime.Remove(e)
	// An answer that is still to come has its entry in the command: nothing is lost with the map's.
	if e.line.n == 0 && len(e.sessions) == 0 && e.listens == silent && e.departed == nil && e.doubts == 0 && t.now.Mono >= e.calls.standing && t.entries[e.key] == e {
		delete(t.entries, e.key)
	}
}

// wake is when an entry must be reviewed without an event. It and the review use the same functions for
// every instant: two of them would make a timer spin, or miss one.
func (e *Entry) wake(now Now) Time {
	at := min(e.dueAt(), e.lingerEnd())
	if e.calls.standing > now.Mono {
		at = min(at, e.calls.standing)
	}
	for _, s := range e.sessions {
		at = min(at, s.wake(now))
	}
	return at
}
