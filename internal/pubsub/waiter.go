package pubsub

import (
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/redlatch/redlatch/internal/lease"
)

// Wake says whom a message wakes.
type Wake struct {
	One bool   // the exclusive waiter that has waited longest, and those aside
	All bool   // every shared waiter
	Key string // the waiter with this key; the message's payload goes with it

	Place   string // the client is called: its place on the server's list; see calls
	Foreign bool   // it counts only while another library's client has the lock, as far as the line knows
}

// Spec describes the messages that concern the waiters of one lock.
type Spec struct {
	ID       string // names the topic; one per lock, kind and client
	Channels []string
	Slot     uint16

	// Route says whom a message wakes. It runs under a lock on the connection's
	// read path: it must not block.
	Route func(channel, payload string) Wake
	// Foreign is a channel of another library, which is heard when one of its clients holds the
	// lock, see HearOthers, and by shared waiters. "": there is none.
	Foreign string
	// Unheard is called, without a mutex, when the client is called and nobody waits. It must
	// not block. nil: releases of this lock call nobody, and its waiters look only when they are told.
	Unheard func()
}

// Waiter is one waiting acquisition. C is signalled when there may be news; the
// waiter then calls Take. A signal stays until it is taken, so none is lost
// between two looks.
type Waiter struct {
	C chan struct{}

	hub   *Hub
	topic *topic

	// Options of Join; none: it stands in line.
	key       string   // woken by messages with it
	own       []string // channels of this waiter alone
	carry     any      // what TakeHead offers, if it receives
	member    Member   // who waits; nil: nobody says
	receives  bool     // a hold may be passed on to it
	shared    bool     // woken with all other readers
	outOfLine bool     // hears what the line's head hears; nobody waits behind it

	// guarded by hub.mu
	hasLeft     bool                 // by itself, or TakeHead took it: nothing signals it, or changes it, any more
	mayBeLogged bool                 // a log line may be asking it who it is
	try         bool                 // see News; Take clears it, and missed and payloads
	missed      bool                 // see News
	place       lease.Entry[*Waiter] // in the topic's line, or among its other waiters without a key
	payloads    []string             // see News
	turn        int                  // of the topic, at the last look
	passed      []Holder             // News.Passed for one that was taken
}

// Holder is who holds the lock, and the trace that it left there.
type Holder struct {
	Owner, Trace string
	Foreign      bool // of another library
}

// News is what a waiter finds when it looks.
type News struct {
	Try       bool      // a message or a (re)connection: try again
	Missed    bool      // a keyed waiter may have missed a message
	Payloads  []string  // messages for this waiter's key
	Line      bool      // the waiter stands in line
	Head      bool      // this waiter watches the holder's lease (for those behind it, if it stands in line)
	Confirmed bool      // the subscription stands: messages will come
	Expect    time.Time // when the holder's lease ends, as far as the line knows; zero: not known
	Look      time.Time // when the head asks without being told; zero: as Expect says
	Holder    Holder    // who that is
	Passed    []Holder  // who held it since the last look, in turn, the last eight of those with a trace
	Err       error     // the subscription was refused for good
}

// Take returns the news since the last call; after the waiter has left none but News.Passed.
func (w *Waiter) Take() News {
	w.hub.mu.Lock()
	defer w.hub.mu.Unlock()
	if w.hasLeft {
		return News{Passed: w.passed}
	}
	n := News{
		Try: w.try, Missed: w.missed, Payloads: w.payloads,
		Line:      w.inLine(),
		Head:      w.headLocked(),
		Confirmed: w.topic.confirmed(),
		Expect:    w.topic.expect,
		Look:      w.topic.calls.look,
		Holder:    w.topic.holder,
		Err:       w.topic.err,
	}
	if w.shared {
		n.Look = time.Time{} // it is the line's
	}
	if w.inLine() && w.turn != w.topic.turn {
		n.Passed = w.topic.since(w.turn)
		w.turn = w.topic.turn
	}
	w.try, w.missed, w.payloads = false, false, nil
	return n
}

// Forgotten reports whether nobody else can reach the waiter, or what it carries, any more: it has
// left, and no log line was about it. Its memory may be used for another one then. Leave has returned:
// nothing changes these since.
func (w *Waiter) Forgotten() bool { return w.hasLeft && !w.mayBeLogged }

// headLocked reports whether nobody stands before the waiter.
func (w *Waiter) headLocked() bool { return !w.inLine() || w.topic.line.First() == w }

// inLine reports whether the waiter stands in the topic's line.
func (w *Waiter) inLine() bool { return w.place.In() && !w.shared && !w.outOfLine }

// Keyed reports whether the waiter was made with [Keyed].
func (w *Waiter) Keyed() bool { return w.key != "" }

// Listen subscribes to more: to channels for as long as this waiter waits, to
// patterns for as long as anybody waits in the topic. What it has already is
// not subscribed again.
func (w *Waiter) Listen(channels, patterns []string) {
	if len(channels)+len(patterns) == 0 {
		return
	}
	h := w.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	if w.hasLeft {
		return
	}
	t, before := w.topic, w.topic.pending
	for _, ch := range channels {
		if !slices.Contains(w.own, ch) {
			w.own = append(w.own, ch)
			h.wantLocked(t, ch, false)
		}
	}
	for _, p := range patterns {
		if t.subs[p] == nil {
			h.wantLocked(t, p, true)
		}
	}
	if t.pending > before {
		t.node.kick()
	}
}

// Expect notes who holds the lock and when that lease ends as far as known, for
// whoever is the head of the line then. What a waiter outside the line was told
// concerns itself alone. What one behind the head was told may be older than what the head
// knows, so it makes the head look earlier, never later.
func (w *Waiter) Expect(at time.Time, holder Holder) {
	w.hub.mu.Lock()
	defer w.hub.mu.Unlock()
	if !w.inLine() && !w.outOfLine {
		return
	}
	t := w.topic
	if w.inLine() && (t.line.First() == w || t.expect.IsZero() || at.Before(t.expect)) {
		if holder.Owner == t.holder.Owner && t.holder.Trace != "" {
			holder.Trace = t.holder.Trace // who has it inside this process is known better here
		}
		t.heldBy(at, holder)
	}
	if w.outOfLine && t.line.First() == nil {
		t.holder.Foreign = holder.Foreign
	}
	t.refusedLocked(holder)
}

// Leave takes the waiter out of the topic. pass makes the next in line try if
// this was the head: the lock may be free and nobody else would look. A signal
// that was not taken is passed on in any case. A waiter that acquired the lock gives the
// end of its lease as expect and itself as holder, else zero values. deserted says that nobody waits
// any more, and none of them got the lock: the client leaves the server's list, if there is one.
func (w *Waiter) Leave(pass bool, expect time.Time, holder Holder) (deserted bool) {
	h := w.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	if w.hasLeft {
		return false
	}
	t, granted := w.topic, !expect.IsZero()
	if granted && (w.inLine() || w.outOfLine) {
		t.heldBy(expect, holder)
		t.grantedLocked()
	}
	wasHead := t.line.First() == w
	try := w.inLine() && (w.try && !granted || pass && wasHead)
	w.goLocked()
	if t.line.First() != nil && (wasHead || try) {
		t.line.First().signalLocked(try)
	}
	return !granted && t.spec.Unheard != nil && !t.wantedLocked()
}

// goLocked takes the waiter out of its topic, for good.
func (w *Waiter) goLocked() {
	w.hasLeft = true
	t := w.topic
	t.remove(w)
	for _, ch := range w.own {
		w.hub.dropChannelLocked(t, ch)
	}
	if t.waiters == 0 {
		t.node.idleLocked(t)
	}
}

// signalLocked wakes the waiter; try says whether it should try again at once or
// only look where it stands.
func (w *Waiter) signalLocked(try bool) {
	w.try = w.try || try
	notify(w.C)
}

// topic is the waiters of one lock in this client, and what the first of their line knows of the lock. Guarded by hub.mu.
type topic struct {
	spec    Spec
	node    *node
	waiters int // of all sorts

	line      lease.List[*Waiter] // exclusive waiters in their order of arrival
	shared    lease.List[*Waiter]
	outOfLine lease.List[*Waiter]
	keyed     map[string]*Waiter

	subs    map[string]*sub // wanted channels and patterns
	pending int             // of them, not confirmed
	err     error           // a subscription was refused for good

	// Who has the lock, as far as the line knows: heldBy notes it.
	expect time.Time // when that lease ends; zero: not known
	holder Holder
	turn   int      // counts the holders with a trace
	passed []Holder // the last of them, keptHolders at most

	calls     calls
	lookTimer *time.Timer         // tells the head to look; nil: it never did
	lookSet   bool                // it will
	idle      lease.Entry[*topic] // in node.idle while nobody waits
	idleSince time.Time
}

// keptHolders are remembered for those who stand in line and see none of them.
const keptHolders = 8

// heldBy notes who holds the lock now.
func (t *topic) heldBy(expect time.Time, who Holder) {
	if who.Trace != "" && who != t.holder {
		t.turn++
		if len(t.passed) == keptHolders {
			t.passed = append(t.passed[:0], t.passed[1:]...)
		}
		t.passed = append(t.passed, who)
	}
	t.expect, t.holder = expect, who
}

// since are the holders after a turn.
func (t *topic) since(turn int) []Holder {
	n := min(t.turn-turn, len(t.passed))
	if n == 0 {
		return nil
	}
	return slices.Clone(t.passed[len(t.passed)-n:])
}

func (t *topic) confirmed() bool { return t.pending == 0 }

func (t *topic) standsLocked() bool { return t.confirmed() && t.err == nil }

func (t *topic) add(w *Waiter) {
	if t.waiters++; t.waiters == 1 && t.spec.Unheard != nil {
		t.node.hub.waiting++
	}
	t.idle.Remove()
	switch {
	case w.shared:
		t.shared.Push(&w.place, w)
	case w.outOfLine:
		t.outOfLine.Push(&w.place, w)
	case w.key != "":
		t.keyed[w.key] = w
	default:
		w.turn = t.turn
		t.line.Push(&w.place, w)
	}
}

func (t *topic) remove(w *Waiter) {
	if t.waiters--; t.waiters == 0 && t.spec.Unheard != nil {
		t.node.hub.waiting--
	}
	w.place.Remove()
	if w.key != "" {
		delete(t.keyed, w.key)
	}
}

func (t *topic) wakeLocked(wk Wake, payload string) {
	if wk.One {
		t.tryLocked()
	}
	if wk.All {
		for w := range t.shared.All() {
			w.signalLocked(true)
		}
	}
	if wk.Key != "" {
		if w := t.keyed[wk.Key]; w != nil {
			w.payloads = append(w.payloads, payload)
			w.signalLocked(false)
		}
	}
}

// tryLocked makes those try that a release of an exclusive lock wakes.
func (t *topic) tryLocked() {
	if t.line.First() != nil {
		t.line.First().signalLocked(true)
	}
	for w := range t.outOfLine.All() {
		w.signalLocked(true)
	}
}

// wantedLocked reports whether anybody would try then.
func (t *topic) wantedLocked() bool { return t.line.First() != nil || t.outOfLine.First() != nil }

// each calls yield for the topic's waiters, in the order of the line where they stand in one.
func (t *topic) each(yield func(*Waiter) bool) {
	for _, some := range []iter.Seq[*Waiter]{t.line.All(), t.outOfLine.All(), t.shared.All(), maps.Values(t.keyed)} {
		for w := range some {
			if !yield(w) {
				return
			}
		}
	}
}

// noticeLocked makes the arguments of a log line: what is known of a topic is read under the hub's mutex, the line is
// written without it. It is nil when nobody waits. It is about one who does, the longest where they stand in line.
func (t *topic) noticeLocked(args ...any) func() []any {
	for w := range t.each {
		w.mayBeLogged = true
		m := w.member
		args = append([]any{"waiting", t.waiters}, args...)
		return func() []any {
			if m == nil {
				return args
			}
			return append(m.Logged(), args...)
		}
	}
	return nil
}

// missedLocked wakes those who may have missed a message.
func (t *topic) missedLocked() {
	t.wakeLocked(Wake{One: true, All: true}, "")
	for _, w := range t.keyed {
		w.missed = true
		w.signalLocked(false)
	}
}

// nudgeLocked makes those look who wait: that the subscription was refused for good concerns everybody, but that it stands
// no more only who sleeps until the end of a lease: they look from time to time until it does.
func (t *topic) nudgeLocked() {
	for w := range t.each {
		if t.err != nil || w.headLocked() {
			w.signalLocked(false)
		}
	}
}

// Poke makes the waiter try again.
func (w *Waiter) Poke() { w.signal(true) }

// Nudge makes the waiter look, for a reason of its own: nothing to pass on.
func (w *Waiter) Nudge() { w.signal(false) }

func (w *Waiter) signal(try bool) {
	w.hub.mu.Lock()
	defer w.hub.mu.Unlock()
	if !w.hasLeft {
		w.signalLocked(try)
	}
}
