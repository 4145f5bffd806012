package multilock

import (
	"context"
	"sync"
	"time"

	"github.com/redlatch/redlatch/internal/engine"
	"github.com/redlatch/redlatch/internal/held"
)

// state is what the quorums of a process keep with a client.
type state struct {
	core *engine.Core

	mu    sync.Mutex
	lines map[string]*line // guarded by mu
	// run_ids of servers, guarded by mu: the last one that said it, and those known to
	// have been up for a lease, with the longest one
	last    string
	trusted map[string]time.Duration
}

type stateKey struct{}

func stateOf(c *engine.Core) *state {
	s, _ := c.Attach(stateKey{}, func() any {
		return &state{core: c, lines: map[string]*line{}, trusted: map[string]time.Duration{}}
	}).(*state)
	return s
}

// lastServer is the run_id of the server that answered last; "" if none was asked.
func (s *state) lastServer() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last
}

// saw notes who answered, and for how long that run of the server has been there.
// It reports whether that is at least need by now, and whether any run has been
// found to be there for as long as was needed then.
func (s *state) saw(runID string, up, need time.Duration) (longEnough, before bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last = runID
	// For each need anew: a run that is old enough for a short lease may still have
	// forgotten one that was taken for long. The longest is kept since a server's clock
	// may go back.
	if up >= need {
		s.trusted[runID] = max(s.trusted[runID], up)
	}
	return s.trusted[runID] >= need, len(s.trusted) > 0
}

// line is where the quorum acquisitions of one process stand for a lock, first
// come, first served: only one of them asks the servers.
type line struct {
	s    *state
	name string
	gate held.Gate
	refs int // guarded by s.mu
}

// line finds the line of a name; leave gives it back.
func (s *state) line(name string) *line {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.lines[name]
	if l == nil {
		l = &line{s: s, name: name}
		s.lines[name] = l
	}
	l.refs++
	return l
}

// enter blocks until it is the caller's turn (true), ctx ends, or too many of the caller's
// clients are closed. That the one is closed which keeps the line does not end it.
func (l *line) enter(ctx context.Context, closed func() (over bool, open []<-chan struct{})) bool {
	next := func() <-chan struct{} {
		if over, open := closed(); !over {
			return open[0]
		}
		return nil
	}
	if l.gate.TryEnter() {
		return true
	}
	stop := next()
	return stop != nil && l.gate.EnterWhile(ctx, stop, next)
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
