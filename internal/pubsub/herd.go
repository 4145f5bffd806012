package pubsub

import (
	"math/rand/v2"
	"time"
)

// herd keeps the processes that wait for one lock from all running for it at
// every message: one of them gets it, and the attempts of the others cost the
// server and themselves for nothing. A process that has just had the lock stands
// back for as many messages as most of the others can use (see yields), so that
// those run for it who have waited longest. One that never had it does not know how
// many there are: when it has lost often, it leaves some messages to the others.
// If nobody else seems to run, a process that stands back tries all the same a moment
// later (see patience), and stands back no more until it meets another one.
//
// The same timer serves a pause: see Hub.Pause.
//
// The zero value stands back for nobody. Guarded by hub.mu.
type herd struct {
	size  int  // how many heard this process's last unlock
	since int  // messages since this process had the lock
	alone bool // nobody else ran for it the last time
	late  bool // the attempt under way is one that nobody else seemed to make

	ran    bool          // the attempt under way answers a message
	losses int           // such attempts that found another holder, before the first turn
	leave  int           // messages that are left to others because of that
	heard  time.Time     // the last message
	gap    time.Duration // between messages, on average

	state herdState
	pause time.Duration // while paused
	again *time.Timer   // fires at `at` unless state is running
	at    time.Time
}

type herdState int

const (
	// running: a message wakes the head, unless it is left to others.
	running herdState = iota
	// standing: a message was left to others.
	standing
	// unreleased: paused, and the message of the own release has not come.
	unreleased
	// released: paused, and the next message is somebody else's.
	released
)

const (
	// herdSize is how many must listen before a process stands back: among two
	// there is little to save, and a mistake costs more.
	herdSize = 3
	// herdRun is how many of a crowd run for the lock at a message. If it were one,
	// each turn would depend on a single process.
	herdRun = 3
	// herdLosses is how often a process that never had the lock loses before it leaves
	// messages to others, fewer than herdLeave of them: so often it loses in a small herd
	// as well, and most of a large one stand back then.
	herdLosses = 8
	herdLeave  = 64
	// herdPause is after how long a process that stood back tries, at least. Timers are
	// not much finer than this in a process that does nothing else. In a crowd it is
	// herdEach for each of it at most, and herdLongest; herdUnknown if its size is not known.
	herdPause   = time.Millisecond
	herdEach    = 30 * time.Microsecond
	herdLongest = 100 * time.Millisecond
	herdUnknown = 16 * time.Millisecond
	// unheard is how long a pause waits at least for a sign of its own release.
	unheard = 100 * time.Millisecond
)

// Heard tells how many listened to an unlock of this client, itself included: none
// is 0. What it changes holds at once: a head that stands back for more processes
// than there are now tries.
func (h *Hub) Heard(id string, listeners int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	t := h.topics[id]
	if t == nil {
		return
	}
	d := &t.herd
	d.size = int(max(0, min(listeners, 1<<16)))
	switch {
	case d.state == unreleased:
		d.arm(t, unreleased, d.pause)
	case d.state == standing && !d.yields(t):
		d.end(t)
	}
}

// Pause makes the process leave the lock to others after the release that is about
// to be sent: call it before the release, since the release's message can overtake
// its answer.
//
// The head of the line does not try at the next message, which is this release's
// own. It tries at the one after that, as far as the herd lets it, or when d has
// passed since the release was noticed: by its message, or by Heard. If neither
// comes it tries after 100 ms, or d if that is longer. A head that leaves makes the
// next one wait like itself. A confirmed subscription, the end of the holder's lease
// and Poke wake as ever; so does the message after a look that found another holder.
//
// With d = 0, Pause ends a pause: the head tries at once. Without waiters or a
// subscription that stands from earlier ones there is nobody to pause, and Pause
// does nothing.
func (h *Hub) Pause(id string, d time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	t := h.topics[id]
	switch {
	case t == nil:
	case d > 0:
		t.herd.pause = d
		t.herd.arm(t, unreleased, max(d, unheard))
	case t.herd.paused():
		t.herd.end(t)
	}
}

// messageLocked counts a message and says whether the head of the line tries now.
func (d *herd) messageLocked(t *topic) bool {
	d.count()
	switch {
	case d.state == unreleased:
		d.arm(t, released, d.pause)
		return false
	case t.wantedLocked() && d.yields(t):
		d.leave = max(0, d.leave-1)
		d.arm(t, standing, d.patience())
		return false
	}
	d.late, d.ran = false, true
	d.stop()
	return true
}

// yields reports whether the last message is one to be left to others. Whoever had
// the lock leaves as many as three quarters of the listeners can use, or all but
// herdRun of them if that is more.
func (d *herd) yields(t *topic) bool {
	switch {
	case !t.spec.Herd || d.alone:
		return false
	case d.leave > 0:
		return true
	}
	return d.size >= herdSize && (4*d.since < 3*d.size || d.since <= d.size-herdRun)
}

// patience is for how long a process that stands back waits for another message. In a
// crowd a message takes long to reach all of it, and so do turns: several times as long
// as those took lately, and up to twice that at random, so that one of the crowd is first.
func (d *herd) patience() time.Duration {
	most := min(time.Duration(d.size)*herdEach, herdLongest)
	if d.size == 0 {
		most = herdUnknown
	}
	p := min(4*d.gap, most)
	if p <= herdPause {
		return herdPause
	}
	return p + rand.N(p)
}

// count counts a message.
func (d *herd) count() {
	now := time.Now()
	if d.since++; !d.heard.IsZero() {
		d.gap += (now.Sub(d.heard) - d.gap) / 8
	}
	d.heard = now
}

// paused reports whether the head waits for the end of a pause; the timer runs then.
func (d *herd) paused() bool { return d.state == unreleased || d.state == released }

// arm makes the topic's head try after a while, unless there is a message before.
func (d *herd) arm(t *topic, state herdState, after time.Duration) {
	d.state, d.at = state, time.Now().Add(after)
	if d.again != nil {
		d.again.Reset(after)
		return
	}
	h := t.node.hub
	d.again = time.AfterFunc(after, func() { // ends at once
		h.mu.Lock()
		defer h.mu.Unlock()
		// else it was stopped or set anew after it had fired
		if d.state != running && !time.Now().Before(d.at) {
			d.late = t.wantedLocked()
			d.end(t)
		}
	})
}

// end makes the head try.
func (d *herd) end(t *topic) {
	d.stop()
	t.tryLocked()
}

func (d *herd) stop() {
	if d.state != running {
		d.state = running
		d.again.Stop()
	}
}

// won says that this process has the lock.
func (d *herd) won() {
	d.alone, d.since, d.late, d.ran, d.losses, d.leave = d.late, 0, false, false, 0, 0
	d.stop()
}

// kept says that this process has the lock still.
func (d *herd) kept() {
	d.since, d.losses, d.leave = 0, 0, 0
	d.stop()
}

// lost says that another one has it. A timer that runs goes on: its message may
// be newer than what was found.
func (d *herd) lost() {
	if d.ran && d.size == 0 {
		if d.losses++; d.losses%herdLosses == 0 {
			d.leave = rand.IntN(herdLeave)
		}
	}
	d.alone, d.late, d.ran = false, false, false
	if d.state == unreleased {
		d.state = released
	}
}
