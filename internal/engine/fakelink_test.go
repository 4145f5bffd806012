package engine_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redlatch/redlatch/internal/conn"
	"github.com/redlatch/redlatch/internal/luascript"
	"github.com/redlatch/redlatch/internal/pubsub"
)

// fakeLink is one client's way to the server. It implements conn.Runner and pubsub.Dialer.
type fakeLink struct {
	f      *fakeRedis
	direct bool      // its commands meet no faults
	subs   *fakeSubs // guarded by f.mu; of the connection of the moment
}

func (f *fakeRedis) link() *fakeLink {
	l := &fakeLink{f: f}
	f.locked(func() { f.links = append(f.links, l) })
	return l
}

func (l *fakeLink) Topology() conn.Topology { return l.f.topo }

func (l *fakeLink) Run(_ context.Context, cmd conn.Command) (conn.Reply, error) {
	f := l.f
	// The memory of the command is its caller's, and may be used again after the answer.
	cmd.Keys, cmd.Args = slices.Clone(cmd.Keys), slices.Clone(cmd.Args)
	if l.direct {
		return f.exec(cmd), nil
	}
	time.Sleep(f.latency + f.lag())
	f.mu.Lock()
	before, after := f.before, f.after
	f.mu.Unlock()
	if before != nil {
		if err := before(cmd); err != nil {
			f.locked(func() { f.noteLocked(cmd, err.Error()) })
			return conn.Reply{}, err
		}
	}
	r := f.exec(cmd)
	r.Acked = cmd.Acks
	if after != nil {
		if err := after(cmd, &r); err != nil {
			f.locked(func() { f.noteLocked(cmd, "no reply: "+err.Error()) })
			return conn.Reply{}, err
		}
	}
	time.Sleep(f.latency + f.lag())
	return r, nil
}

func (l *fakeLink) RunMulti(ctx context.Context, cmds []conn.Command, _ []conn.Result) []conn.Result {
	return side(ctx, l.Run, cmds)
}

// side runs commands side by side, for RunMulti of a conn.Runner.
func side(ctx context.Context, run func(context.Context, conn.Command) (conn.Reply, error), cmds []conn.Command) []conn.Result {
	out := make([]conn.Result, len(cmds))
	var wg sync.WaitGroup
	for i, cmd := range cmds {
		wg.Go(func() { out[i].Reply, out[i].Err = run(ctx, cmd) })
	}
	wg.Wait()
	return out
}

func (l *fakeLink) Node(uint16) string { return "" }
func (l *fakeLink) Moved(string)       {}
func (l *fakeLink) Dial(_ string, h pubsub.Handler) (pubsub.Link, error) {
	time.Sleep(l.f.lag())
	luck := l.f.luck()
	l.f.mu.Lock()
	defer l.f.mu.Unlock()
	if luck == 0 || l.f.deaf {
		return nil, errUnsent
	}
	l.subs = &fakeSubs{f: l.f, listener: h, channels: map[string]bool{}, down: make(chan error, 1)}
	return l.subs, nil
}

// listener is who hears what the first client subscribed to.
func (f *fakeRedis) listener() pubsub.Handler {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.links[0].subs.listener
}

// fault is what happens to commands: of a script, or of all; of a lock, or of any.
type fault struct {
	script *luascript.Script
	key    string
	once   bool // to the first of them alone
	do     func()
	pause  time.Duration
	err    error
}

// hook is for onBefore or onAfter.
func (x fault) hook() func(cmd conn.Command) error {
	var met atomic.Bool
	return func(cmd conn.Command) error {
		if x.script != nil && x.script != cmd.Script || x.key != "" && x.key != cmd.Keys[0] || x.once && met.Swap(true) {
			return nil
		}
		if x.do != nil {
			x.do()
		}
		time.Sleep(x.pause)
		return x.err
	}
}

// fakeSubs is a connection for subscriptions. It implements pubsub.Link.
type fakeSubs struct {
	f        *fakeRedis
	listener pubsub.Handler
	channels map[string]bool // guarded by f.mu
	down     chan error
	over     bool // guarded by f.mu
}

func (s *fakeSubs) Subscribe(_ context.Context, channels []string, _ bool) error {
	time.Sleep(s.f.lag())
	s.f.locked(func() {
		for _, ch := range channels {
			s.channels[ch] = !s.over
		}
	})
	s.later(s.f.lag(), func() {
		for _, ch := range channels {
			s.listener.Confirmed(ch)
		}
	})
	return nil
}

// later tells the client something, if the connection stands by then.
func (s *fakeSubs) later(lag time.Duration, tell func()) {
	go func() {
		time.Sleep(lag)
		s.f.mu.Lock()
		over := s.over
		s.f.mu.Unlock()
		if !over {
			tell()
		}
	}()
}

func (s *fakeSubs) Unsubscribe(_ context.Context, channels []string, _ bool) error {
	s.f.locked(func() {
		for _, ch := range channels {
			delete(s.channels, ch)
		}
	})
	return nil
}

func (s *fakeSubs) Down() <-chan error { return s.down }
func (s *fakeSubs) Close()             { s.f.locked(s.endLocked) }

func (s *fakeSubs) endLocked() {
	s.over = true
	clear(s.channels)
}

// cut ends the connection for subscriptions: the client is told later.
func (l *fakeLink) cut() {
	l.f.mu.Lock()
	defer l.f.mu.Unlock()
	s, lag := l.subs, l.f.soonLocked(200*time.Millisecond)
	if s == nil || s.over {
		return
	}
	s.endLocked()
	go func() {
		time.Sleep(lag)
		s.down <- errors.New("cut")
	}()
}

// publish sends a message to all who listen. mu is held.
func (f *fakeRedis) publish(ch, payload string) (n int64) {
	for _, l := range f.links {
		if s := l.subs; s != nil && s.channels[ch] {
			n++
			s.later(f.soonLocked(2*time.Millisecond), func() { s.listener.Message(ch, payload) })
		}
	}
	if n == 0 && payload == "0" {
		return f.others
	}
	return n
}
