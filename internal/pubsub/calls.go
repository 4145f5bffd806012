package pubsub

import (
	"math/rand/v2"
	"time"
)

// calls is what a topic knows of the list on which the server has this client, if it waits, and
// from which a release calls one client after the other.
//
//	          refused                called                  granted
//	(nothing) ───────► on the list ───────► asks with place ─────────► (nothing)
//	                        ▲                     │ refused: in front
//	                        └─────────────────────┘
//
// Invariant: while somebody of the line waits and no own session holds the lock, this client is
// on the list, or asks, or is about to: its head has a signal, or a time to look. What goes wrong
// with the list or a call (a lost message, a server that forgot) costs until that time.
//
// The zero value knows of nothing. Guarded by hub.mu.
type calls struct {
	listed     bool      // the server may have the client on the list; cleared by a call and by a grant
	place      string    // of the last call; cleared by a grant, and by the refusal of who asked with it
	asked      string    // the place that the last ask told; cleared by its answer, and by a call
	standsBack time.Time // until then the next ask leaves the lock to others; cleared by it, and by a call
	endsTenure bool      // the release that comes next ends a tenure: cleared by it
	look       time.Time // when the head asks without being called
	// otherWanted is when the channel of another library was wanted last, for one of its holders or for shared
	// waiters; zero: not since it was left
	otherWanted time.Time
	otherMet    time.Time // when another library's holder was met last, kept
}

const (
	// standBack is how soon after a release that called one who had lost the next ask comes that
	// leaves the lock to it. Whoever comes later has left it for long enough.
	standBack = 5 * time.Millisecond
	// javaFirst is how long a process that has passed the lock on inside for as long as it may
	// leaves it alone, if another library listens: its hand-over takes 1.6 ms. So does one that is
	// called, for as long as besideOthers after another library's holder was met: else its clients
	// would get the lock by chance only, since ours are told sooner.
	javaFirst    = 4 * time.Millisecond
	besideOthers = 250 * time.Millisecond
	// lookEvery is after how long the head asks without being called, give or take a quarter.
	lookEvery = time.Second
	// looksAtOnce is of how many locks the waiting heads look so often; with more it is less
	// often, so that a client sends about so many a second, but at least every longestLook.
	looksAtOnce = 1000
	longestLook = 20 * time.Second
	// forgetOther is for how long the channel of another library stays subscribed.
	forgetOther = 10 * time.Second
)

// Places that an ask tells, besides that of a call.
const (
	placeNew    = "0" // the client may not be on the list
	placeListed = "1" // it may be
	placeStands = "s" // it goes there though the lock be free
)

// Asks is called before an attempt to take the lock is sent. It returns what the attempt tells the
// server of its place on the list: as Attempt.Place of package kind.
func (h *Hub) Asks(id string) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	t := h.topics[id]
	if t == nil {
		return placeNew
	}
	c := &t.calls
	c.asked = ""
	stands := !c.standsBack.IsZero() && time.Now().Before(c.standsBack)
	c.standsBack = time.Time{}
	switch {
	case c.place != "":
		c.asked = c.place
		return c.place
	case stands:
		c.listed = true
		return placeStands
	case c.listed:
		return placeListed
	}
	c.listed = true
	return placeNew
}

// Releases is called before a release is sent. It returns what that does with this client's place on
// the list: "1", it goes there behind whom the release calls, since somebody waits who would hear a
// call; "0", it is taken off, where a lock that was passed on inside has left it; "", nothing.
func (h *Hub) Releases(id string) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	t := h.topics[id]
	switch {
	case t == nil:
		return ""
	case t.wantedLocked() && t.standsLocked():
		return "1"
	case t.calls.listed:
		t.calls.listed = false
		return "0"
	}
	return ""
}

// TenureEnds notes that the release that is about to be sent ends a tenure: others come first.
func (h *Hub) TenureEnds(id string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if t := h.topics[id]; t != nil {
		t.calls.endsTenure = true
	}
}

// Release is what a release of this client came to.
type Release struct {
	Called bool // a client was called
	Loser  bool // one that had lost: the lock is left to it
	Heard  bool // others got the message for all
	Again  bool // this client went on the list behind it
}

// Released tells the topic's line what a release came to: it waits to be called, or asks at once.
func (h *Hub) Released(id string, r Release) {
	h.mu.Lock()
	defer h.mu.Unlock()
	t := h.topics[id]
	if t == nil {
		return
	}
	c := &t.calls
	late := c.endsTenure
	c.endsTenure = false
	if r.Loser || r.Called && r.Heard && c.hasMet() {
		c.standsBack = time.Now().Add(standBack)
	}
	switch {
	case r.Called && r.Again:
		c.listed = true
		t.lookLocked()
	case late && !r.Called && r.Heard && t.line.First() != nil:
		c.look = time.Now().Add(javaFirst)
		t.line.First().signalLocked(false)
	default:
		c.listed = false
		t.tryLocked()
	}
}

// HasLooked notes that the head has looked in another way than by asking. It reports false if that does not do: it was
// called, and only asking heeds that.
func (h *Hub) HasLooked(id string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	t := h.topics[id]
	if t == nil || t.calls.place != "" {
		return false
	}
	t.lookLocked()
	return true
}

// Left is called when the server has taken the client off the list: whoever has begun to wait
// meanwhile may not be on it.
func (h *Hub) Left(id string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if t := h.topics[id]; t != nil {
		t.tryLocked()
	}
}

// calledLocked takes a message, and reports whether it is for nobody: the client leaves the list,
// so that the next one is called.
func (t *topic) calledLocked(wk *Wake) (unheard bool) {
	switch {
	case wk.Foreign && !t.holder.Foreign:
		wk.One = false // a release of our own has called whose turn it is
	case wk.Place != "":
		wanted := t.wantedLocked()
		t.calls.listed, t.calls.standsBack, t.calls.place, t.calls.asked = false, time.Time{}, "", ""
		if wanted && isPlace(wk.Place) { // else somebody who comes later would ask with it
			t.calls.place = wk.Place
		}
		if t.calls.hasMet() && t.line.First() != nil && t.outOfLine.First() == nil {
			wk.One = false
			t.calls.look = time.Now().Add(javaFirst)
			t.line.First().signalLocked(false)
		}
		return !wanted && t.spec.Unheard != nil
	}
	return false
}

// hasMet reports whether clients of another library want the lock, too, as far as can be known.
func (c *calls) hasMet() bool { return !c.otherMet.IsZero() && time.Since(c.otherMet) < besideOthers }

// isPlace reports whether a message looks like the time that a client came, in µs: anybody may
// publish anything.
func isPlace(s string) bool {
	for _, c := range []byte(s) {
		if c < '0' || c > '9' {
			return false
		}
	}
	return len(s) > 1 && len(s) < 18
}

// refusedLocked notes that another one has the lock: what was told of a place is done with.
func (t *topic) refusedLocked(holder Holder) {
	c := &t.calls
	if c.asked == c.place { // else a call came behind the ask that was refused: its place is for the next one
		c.place, c.listed = "", true
	}
	c.asked = ""
	t.putOffLocked()
	now := time.Now()
	switch {
	case holder.Foreign:
		c.otherWanted, c.otherMet = now, now
	case !c.otherWanted.IsZero() && now.Sub(c.otherWanted) > forgetOther && t.shared.First() == nil:
		c.otherWanted = time.Time{}
		t.node.hub.dropChannelLocked(t, t.spec.Foreign)
	}
}

// grantedLocked notes that this client has the lock. A wake-up that comes now has no meaning: its
// release calls the next.
func (t *topic) grantedLocked() {
	t.calls.place, t.calls.asked, t.calls.listed, t.calls.endsTenure = "", "", false, false
	t.lookLocked()
}

// putOffLocked is lookLocked unless a call is still to be heeded: that has set when.
func (t *topic) putOffLocked() {
	if t.calls.place == "" {
		t.lookLocked()
	}
}

// lookLocked sets when the head asks without being called.
func (t *topic) lookLocked() {
	if t.spec.Unheard == nil {
		return
	}
	every := lookEvery
	if n := t.node.hub.waiting; n > looksAtOnce {
		every = min(every*time.Duration(n)/looksAtOnce, longestLook)
	}
	t.calls.look = time.Now().Add(every*3/4 + rand.N(every/2)) // #nosec G404 -- to spread them
}

// HearOthers subscribes to the channel of another library, for all of the topic: one of its
// clients has the lock, and calls nobody.
func (w *Waiter) HearOthers() {
	w.hub.mu.Lock()
	defer w.hub.mu.Unlock()
	if !w.hasLeft {
		w.topic.hearOthersLocked()
	}
}

func (t *topic) hearOthersLocked() {
	if t.spec.Foreign == "" {
		return
	}
	t.calls.otherWanted = time.Now()
	if t.subs[t.spec.Foreign] == nil {
		t.node.hub.wantLocked(t, t.spec.Foreign, false)
		t.node.kick()
	}
}
