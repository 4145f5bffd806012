package multilock

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/redlatch/redlatch/internal/engine"
	"github.com/redlatch/redlatch/internal/held"
	"github.com/redlatch/redlatch/internal/lease"
	"github.com/redlatch/redlatch/lock"
)

// state is what the quorums of a process keep with a client's server.
type state struct {
	core *engine.Core

	mu    sync.Mutex
	lines map[string]*line // guarded by mu
	// guarded by mu: the acquisitions of each lock, in whatever mode
	fellows map[string]map[*fellow]struct{}
	// guarded by mu: the run_id of the server that answered last, when this client saw it first, and
	// whether it saw another one before
	last      string
	since     time.Time
	restarted bool
	// guarded by mu: the locks of which that run is known to have forgotten nothing, though it is
	// young; see count.newDeployment. Empty once it is old.
	free map[use]bool
}

// use is a lock in a mode.
type use struct {
	key  string
	mode lock.Mode
}

type stateKey struct{ slot uint16 }

// stateOf finds what is kept for a lock: with a client of a cluster, for its slot, which may be on another node than
// others. It goes by the slot, not by the node: one that gets a slot back may have missed a grant.
func stateOf(l *engine.Lock) *state {
	c := l.Core()
	s, _ := c.Attach(stateKey{l.Slot()}, func() any {
		return &state{
			core: c, lines: map[string]*line{}, fellows: map[string]map[*fellow]struct{}{},
			free: map[use]bool{},
		}
	}).(*state)
	return s
}

// lastServer is the run_id of the server that answered last; "" if none was asked.
func (s *state) lastServer() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last
}

// saw notes who answered, and says for how long this client has seen that run of the server, on its own
// monotonic clock. A run that is old has been there for longer than any lease that an earlier one may
// have forgotten.
func (s *state) saw(runID string) (age time.Duration, old bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if s.last != runID {
		s.restarted = s.restarted || s.last != ""
		s.last, s.since = runID, now
		clear(s.free)
	}
	age = now.Sub(s.since)
	if old = age >= s.quarantine(); old {
		clear(s.free)
	}
	return age, old
}

// quarantine is how long a run of the server says nothing of what an earlier one had granted: no copy is
// asked for more than LeaseTime.
func (s *state) quarantine() time.Duration { return lease.Margin(s.core.LeaseTime()) }

// hasRestarted reports whether this process has seen two runs of the server.
func (s *state) hasRestarted() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.restarted
}

// wasFree notes that a run has forgotten nothing of a lock that would be in the way of u.
func (s *state) wasFree(runID string, u use) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.last == runID {
		s.free[u] = true
	}
}

// knowsFree reports whether that was noted of the run that was seen last. Who could write
// could read, too.
func (s *state) knowsFree(runID string, u use) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last == runID && (s.free[u] || u.mode == lock.ModeRead && s.free[use{u.key, lock.ModeWrite}])
}

// line is where the quorum acquisitions of one process stand for a lock, first
// come, first served: only one of them asks the servers.
type line struct {
	s    *state
	name string
	gate held.Gate
	refs int // guarded by s.mu

	// guarded by s.mu: who was in the way when it was last looked, nil if nobody was, and when
	// that one's lease ends
	busy *lock.NotAcquiredError
	ends time.Time
	// guarded by s.mu: why the copy of a client was of no use when it was last asked
	trouble map[string]lock.NodeError
}

// line finds the line of a name; leave gives it back.
func (s *state) line(name string) *line {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.lines[name]
	if l == nil {
		l = &line{s: s, name: name, trouble: map[string]lock.NodeError{}}
		s.lines[name] = l
	}
	l.refs++
	return l
}

// saw notes what a round came to.
func (l *line) saw(err error) {
	var busy *lock.NotAcquiredError
	if errors.As(err, &busy) && busy.Holder == "" {
		busy = nil
	}
	l.s.mu.Lock()
	defer l.s.mu.Unlock()
	if l.busy = busy; busy != nil {
		l.ends = time.Now().Add(busy.Remaining - busy.Age)
	}
}

// note keeps what the last answer of a copy, or its absence, came to.
func (l *line) note(client string, trouble lock.NodeError) {
	l.s.mu.Lock()
	defer l.s.mu.Unlock()
	l.trouble[client] = trouble
}

// lastTrouble is what was noted last.
func (l *line) lastTrouble(client string) lock.NodeError {
	l.s.mu.Lock()
	defer l.s.mu.Unlock()
	return l.trouble[client]
}

// inTheWay is what those hear who did not have their turn; nil: nothing is known.
func (l *line) inTheWay() error {
	l.s.mu.Lock()
	defer l.s.mu.Unlock()
	if l.busy == nil {
		return nil
	}
	out := &lock.NotAcquiredError{Name: l.busy.Name, Holder: l.busy.Holder, Own: l.busy.Own}
	if l.busy.Remaining > 0 {
		out.Remaining = max(time.Until(l.ends), 0)
	}
	return out
}

// enter blocks until it is the caller's turn (true) or ctx ends. That the client is closed which keeps
// the line does not end it. told says that it ended since the owner has got the lock in another call.
func (l *line) enter(ctx context.Context, f *fellow) (entered, told bool) {
	if l.gate.TryEnter() {
		return true, false
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if f.wakes(cancel) {
		return false, true
	}
	entered = l.gate.Enter(ctx, nil)
	return entered, f.wakes(nil)
}

// leave gives the line back, and the turn if entered says that it was taken.
func (l *line) leave(entered bool) {
	if entered {
		l.gate.Leave()
	}
	l.s.mu.Lock()
	defer l.s.mu.Unlock()
	if l.refs--; l.refs == 0 {
		delete(l.s.lines, l.name)
	}
}

// fellow is an acquisition as others of its owner see it: as soon as one of them has the lock,
// all may enter.
type fellow struct {
	s     *state
	key   string
	owner any
	q     *quorum
	wake  func() // guarded by s.mu; ends the standing in line
}

// join makes an acquisition known; leave ends that.
func (s *state) join(q *quorum) *fellow {
	f := &fellow{s: s, key: q.m.leaves[0].eng.Key(), q: q}
	f.owner, _ = engine.OwnerOf(q.ctx) // a bad id gets nothing at all
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fellows[f.key] == nil {
		s.fellows[f.key] = map[*fellow]struct{}{}
	}
	s.fellows[f.key][f] = struct{}{}
	return f
}

func (f *fellow) leave() {
	f.s.mu.Lock()
	defer f.s.mu.Unlock()
	if delete(f.s.fellows[f.key], f); len(f.s.fellows[f.key]) == 0 {
		delete(f.s.fellows, f.key)
	}
}

// wakes says what ends the standing in line, and reports whether it was told since it was last
// asked.
func (f *fellow) wakes(wake func()) (told bool) {
	f.s.mu.Lock()
	defer f.s.mu.Unlock()
	f.wake = wake
	return f.q.told.Swap(false)
}

// tell lets the owner's other acquisitions try: the owner has got the lock.
func (f *fellow) tell() {
	f.s.mu.Lock()
	defer f.s.mu.Unlock()
	for o := range f.s.fellows[f.key] {
		if o == f || o.owner != f.owner {
			continue
		}
		o.q.told.Store(true)
		if o.wake != nil {
			o.wake()
		}
		select {
		case o.q.signal <- struct{}{}:
		default:
		}
	}
}
