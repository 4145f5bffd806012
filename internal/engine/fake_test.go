package engine_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redlatch/redlatch/internal/conn"
	"github.com/redlatch/redlatch/internal/engine"
	"github.com/redlatch/redlatch/internal/luascript"
	"github.com/redlatch/redlatch/internal/pubsub"
	"github.com/redlatch/redlatch/lock"
	"github.com/redlatch/redlatch/rlock"
)

// fakeRedis runs the plain lock's scripts on maps, with the clock of the test's
// bubble. It is a conn.Runner and a pubsub.Dialer.
type fakeRedis struct {
	latency time.Duration // of one way
	topo    conn.Topology
	others  int64 // clients of another library that listen to every message for all

	mu       sync.Mutex
	before   func(cmd conn.Command) error // guarded by mu; an error: the command does not run
	after    func(cmd conn.Command) error // guarded by mu; an error: it ran, the reply is lost
	keys     map[string]*fakeKey          // guarded by mu
	void     map[string]bool              // guarded by mu
	list     fakeList                     // guarded by mu
	ran      []ran                        // guarded by mu
	listener pubsub.Handler               // guarded by mu
	channels map[string]bool              // guarded by mu
}

type fakeKey struct {
	field string
	count int
	ends  time.Time
}

// ran is a command that reached the server.
type ran struct {
	script string
	keys   int
	at     time.Time
}

var (
	errLost   = io.EOF                                                    // the command may have run
	errUnsent = &net.OpError{Op: "dial", Err: errors.New("no such host")} // it did not
)

func (f *fakeRedis) Topology() conn.Topology { return f.topo }

func (f *fakeRedis) Run(_ context.Context, cmd conn.Command) (conn.Reply, error) {
	time.Sleep(f.latency)
	f.mu.Lock()
	before, after := f.before, f.after
	f.mu.Unlock()
	if before != nil {
		if err := before(cmd); err != nil {
			return conn.Reply{}, err
		}
	}
	r := f.exec(cmd)
	if after != nil {
		if err := after(cmd); err != nil {
			return conn.Reply{}, err
		}
	}
	time.Sleep(f.latency)
	return r, nil
}

func (f *fakeRedis) RunMulti(ctx context.Context, cmds []conn.Command, _ []conn.Result) []conn.Result {
	return side(ctx, f.Run, cmds)
}

// onBefore sets what happens before a command runs.
func (f *fakeRedis) onBefore(hook func(cmd conn.Command) error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.before = hook
}

// onAfter sets what happens to the reply.
func (f *fakeRedis) onAfter(hook func(cmd conn.Command) error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.after = hook
}

// find is the key if its lease has not run out.
func (f *fakeRedis) find(key string) *fakeKey {
	k := f.keys[key]
	if k != nil && !time.Now().Before(k.ends) {
		delete(f.keys, key)
		k = nil
	}
	return k
}

func ms(s string) time.Duration {
	n, _ := strconv.ParseInt(s, 10, 64)
	return time.Duration(n) * time.Millisecond
}

func (k *fakeKey) raise(lease time.Duration) {
	if ends := time.Now().Add(lease); ends.After(k.ends) {
		k.ends = ends
	}
}

func (f *fakeRedis) exec(cmd conn.Command) conn.Reply {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.list == nil {
		f.list = fakeList{}
	}
	f.ran = append(f.ran, ran{cmd.Script.Name, len(cmd.Keys), time.Now()})
	code := func(n int64) conn.Reply { return conn.Reply{Code: n} }
	key, arg := cmd.Keys[0], cmd.Args
	k := f.find(key)
	mine := k != nil && k.field == arg[0]
	switch cmd.Script {
	case luascript.Acquire:
		switch {
		case k == nil && f.void[arg[0]]:
			return conn.Reply{Code: -1, Vals: []conn.Value{{Int: -1}}}
		case k == nil && placeOf(arg) == "s":
			f.list.enlist(key, arg[0], placeOf(arg))
			return conn.Reply{Vals: []conn.Value{{}, {Int: -2}, {IsStr: true}, {IsStr: true}, {Int: 250}}}
		case k == nil:
			f.list.granted(key, arg[0], placeOf(arg))
			f.keys[key] = &fakeKey{arg[0], 1, time.Now().Add(ms(arg[1]))}
			return code(1)
		case mine:
			k.raise(ms(arg[1]))
			return code(2)
		}
		f.list.enlist(key, arg[0], placeOf(arg))
		return conn.Reply{Vals: []conn.Value{{}, {Int: time.Until(k.ends).Milliseconds()}, {Str: k.field, IsStr: true}, {IsStr: true}}}
	case luascript.Reenter:
		if !mine {
			return code(0)
		}
		k.count, _ = strconv.Atoi(arg[1])
		k.raise(ms(arg[2]))
		return code(1)
	case luascript.Release:
		if argument(arg, 5, "0") != "0" {
			f.void[arg[0]] = true
		}
		switch {
		case !mine:
			return code(0)
		case arg[1] != "0":
			k.count, _ = strconv.Atoi(arg[1])
			return code(1)
		}
		delete(f.keys, key)
		return f.list.release(key, arg, f.publish)
	case luascript.WaitLeave:
		delete(f.list[key], arg[0])
		if k != nil {
			return code(0)
		}
		return code(f.list.call(key, f.publish))
	case luascript.Renew:
		var r conn.Reply
		for i, key := range cmd.Keys {
			k := f.find(key)
			held := k != nil && k.field == arg[2*i]
			if held {
				k.raise(ms(arg[2*i+1]))
				r.Vals = append(r.Vals, conn.Value{Int: 1})
			} else {
				r.Vals = append(r.Vals, conn.Value{})
			}
		}
		return r
	}
	panic("no script " + cmd.Script.Name)
}

func (f *fakeRedis) publish(channel, payload string) int64 {
	if h := f.listener; h != nil && f.channels[channel] {
		go h.Message(channel, payload)
		return 1
	}
	if payload == "0" {
		return f.others
	}
	return 0
}

// count is what the server's hash says, 0 when it is gone.
func (f *fakeRedis) count(key string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	if k := f.find(key); k != nil {
		return k.count
	}
	return 0
}

// scripts lists when a script ran.
func (f *fakeRedis) scripts(name string) []ran {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []ran
	for _, r := range f.ran {
		if r.script == name {
			out = append(out, r)
		}
	}
	return out
}

// Node implements pubsub.Dialer.
func (f *fakeRedis) Node(uint16) string { return "" }

// Moved implements pubsub.Dialer.
func (f *fakeRedis) Moved(string) {}

// Dial implements pubsub.Dialer.
func (f *fakeRedis) Dial(_ string, h pubsub.Handler) (pubsub.Link, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.listener, f.channels = h, map[string]bool{}
	return &fakeLink{f, make(chan error)}, nil
}

type fakeLink struct {
	f    *fakeRedis
	down chan error
}

func (l *fakeLink) Subscribe(_ context.Context, channels []string, _ bool) error {
	l.f.mu.Lock()
	for _, ch := range channels {
		l.f.channels[ch] = true
	}
	l.f.mu.Unlock()
	for _, ch := range channels {
		l.f.listener.Confirmed(ch)
	}
	return nil
}

func (l *fakeLink) Unsubscribe(_ context.Context, channels []string, _ bool) error {
	l.f.mu.Lock()
	defer l.f.mu.Unlock()
	for _, ch := range channels {
		delete(l.f.channels, ch)
	}
	return nil
}

func (l *fakeLink) Down() <-chan error { return l.down }
func (l *fakeLink) Close()             {}

// newFake starts a core on a fake server; call it inside a bubble.
func newFake(t *testing.T, leaseTime time.Duration) (*fakeRedis, *engine.Core) {
	t.Helper()
	return newFakeWith(t, func(_ *fakeRedis, cfg *engine.Config) { cfg.LeaseTime = leaseTime })
}

// newFakeWith lets set change the server and the configuration before the core starts.
func newFakeWith(t *testing.T, set func(f *fakeRedis, cfg *engine.Config)) (*fakeRedis, *engine.Core) {
	t.Helper()
	f := &fakeRedis{keys: map[string]*fakeKey{}, void: map[string]bool{}}
	cfg := engine.Config{
		ID: "00000000-0000-0000-0000-00000000000c", LeaseTime: leaseTime, UnlockTimeout: 5 * time.Second,
		FenceTTL: time.Hour, Log: slog.New(slog.DiscardHandler),
	}
	set(f, &cfg)
	core := engine.NewCore(cfg, f, pubsub.NewHub(f, nil))
	t.Cleanup(func() {
		core.Close()
		core.Wait()
		if n := core.Owners(); n != 0 {
			t.Errorf("%d explicit owners are remembered", n)
		}
	})
	return f, core
}

// coreOn starts a core on a runner of the test's own; nothing can be subscribed to
// but by a fake that stays silent.
func coreOn(t *testing.T, run conn.Runner) *engine.Core {
	t.Helper()
	core := engine.NewCore(engine.Config{
		ID: "00000000-0000-0000-0000-00000000000e", LeaseTime: leaseTime, UnlockTimeout: 5 * time.Second,
		Log: slog.New(slog.DiscardHandler),
	}, run, pubsub.NewHub(&fakeRedis{}, nil))
	t.Cleanup(func() { core.Close(); core.Wait() })
	return core
}

// second is another client of the same server.
func second(t *testing.T, f *fakeRedis, leaseTime time.Duration) *engine.Core {
	t.Helper()
	g := &fakeRedis{}
	core := engine.NewCore(engine.Config{
		ID: "00000000-0000-0000-0000-00000000000d", LeaseTime: leaseTime, UnlockTimeout: 5 * time.Second,
		Log: slog.New(slog.DiscardHandler),
	}, shared{f}, pubsub.NewHub(g, nil))
	t.Cleanup(func() { core.Close(); core.Wait() })
	return core
}

// shared runs commands on another fake's data, without its faults.
type shared struct{ f *fakeRedis }

func (s shared) Topology() conn.Topology { return s.f.topo }
func (s shared) Run(_ context.Context, cmd conn.Command) (conn.Reply, error) {
	return s.f.exec(cmd), nil
}
func (s shared) RunMulti(ctx context.Context, cmds []conn.Command, _ []conn.Result) []conn.Result {
	out := make([]conn.Result, len(cmds))
	for i, cmd := range cmds {
		out[i].Reply, out[i].Err = s.Run(ctx, cmd)
	}
	return out
}

func take(t *testing.T, ctx context.Context, core *engine.Core, name string, opts ...lock.AcquireOption) lock.Hold { //nolint:revive // t first, as in testing
	t.Helper()
	h, err := engine.Open(new(rlock.RLock), core, name).Lock(ctx, opts...)
	if err != nil {
		t.Fatalf("Lock: %v", err)
	}
	return h
}

// lostAt waits for the loss of a hold and says when that was.
func lostAt(t *testing.T, h lock.Hold, reason lock.LossReason) time.Time {
	t.Helper()
	<-h.Context().Done()
	at := time.Now()
	var lost *lock.LeaseLostError
	if err := context.Cause(h.Context()); !errors.As(err, &lost) || lost.Reason != reason {
		t.Fatalf("the hold ended with %v, want a lease lost as %q", err, reason)
	}
	if err := h.Unlock(context.Background()); !errors.Is(err, lock.ErrLeaseLost) {
		t.Errorf("Unlock: %v", err)
	}
	return at
}

// slowLog is a log handler that blocks until it is released.
type slowLog struct{ released chan struct{} }

func (l slowLog) Enabled(context.Context, slog.Level) bool { return true }
func (l slowLog) Handle(context.Context, slog.Record) error {
	<-l.released
	return nil
}
func (l slowLog) WithAttrs([]slog.Attr) slog.Handler { return l }
func (l slowLog) WithGroup(string) slog.Handler      { return l }
