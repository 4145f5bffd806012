package engine_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlatch/redlatch/internal/conn"
	"github.com/redlatch/redlatch/internal/engine"
	"github.com/redlatch/redlatch/internal/held"
	"github.com/redlatch/redlatch/internal/pubsub"
	"github.com/redlatch/redlatch/internal/testbed"
	"github.com/redlatch/redlatch/lock"
	"github.com/redlatch/redlatch/rlock"
)

// fakeRedis runs the scripts of plain locks and of one read-write lock on maps, with the clock of the test's
// bubble, for several clients. Their links meet the faults that a test or a seed puts in their way.
type fakeRedis struct {
	latency time.Duration // of one way
	topo    conn.Topology
	others  int64 // clients of another library that listen to every message for all

	mu     sync.Mutex // guards all below
	before func(cmd conn.Command) error
	after  func(cmd conn.Command, r *conn.Reply) error
	rand   *rand.Rand // nil: nothing is left to chance
	calm   bool       // nothing is lost, and nothing takes long
	deaf   bool       // no connection for subscriptions can be made
	ran    []ran
	hist   []string // what happened, for who looks for a fault
	links  []*fakeLink

	keys  map[string]*fakeKey
	ended map[string]time.Time // when a lease ended that nobody had given back
	void  map[string]time.Time // by field and key
	token int64
	list  fakeList
	rw    fakeRW
}

// ran is a command that reached the server.
type ran struct {
	script string
	keys   int
	at     time.Time
}

var (
	errLost     = io.EOF                                                    // the command may have run
	errUnsent   = &net.OpError{Op: "dial", Err: errors.New("no such host")} // it did not
	errLoading  = conn.Refusal("LOADING Redis is loading the dataset in memory")
	errTryAgain = conn.Refusal("TRYAGAIN Multiple keys request during rehashing of slot")
)

func newServer() *fakeRedis {
	return &fakeRedis{
		keys: map[string]*fakeKey{}, ended: map[string]time.Time{}, void: map[string]time.Time{}, list: fakeList{},
		rw: fakeRW{fields: map[string]time.Time{}, readers: map[string]time.Time{}, turn: map[string]time.Time{}},
	}
}

// newRough makes a server on whose links commands are slow, late and lost, as a seed says.
func newRough(seed uint64) *fakeRedis {
	f := newServer()
	f.rand = rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // a test
	f.before = func(cmd conn.Command) error {
		switch luck := f.luck(); {
		case luck == 0:
			return errUnsent
		case luck == 1:
			return errLoading
		case luck == 2:
			late := f.lag()
			go func() { // it runs after its caller was told
				time.Sleep(late)
				f.exec(cmd)
			}()
			return errLost
		case luck == 3 && len(cmd.Keys) > 1 && !strings.HasPrefix(cmd.Script.Name, "rw_"): // those it can't run by one key
			return errTryAgain
		}
		return nil
	}
	f.after = func(cmd conn.Command, r *conn.Reply) error {
		switch luck := f.luck(); {
		case luck == 0:
			return errLost
		case luck == 1 && cmd.Acks > 0:
			r.Acked = 0
		case luck == 2 && cmd.Acks > 0:
			r.Acked, r.Waits = 0, errLost
		}
		return nil
	}
	return f
}

// luck is a number below 60; some of them mean that something goes wrong.
func (f *fakeRedis) luck() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.calm || f.rand == nil {
		return -1
	}
	return f.rand.IntN(60)
}

// lag is how long something takes on its way, besides the latency.
func (f *fakeRedis) lag() time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	d := f.soonLocked(time.Millisecond)
	switch {
	case f.calm || f.rand == nil:
	case f.rand.IntN(300) == 0:
		d += f.soonLocked(4 * time.Second) // longer than a lease
	case f.rand.IntN(20) == 0:
		d += f.soonLocked(30 * time.Millisecond)
	}
	return d
}

func (f *fakeRedis) soonLocked(limit time.Duration) time.Duration {
	if f.rand == nil {
		return 0
	}
	return micros(f.rand, int(limit.Microseconds())) // so that things happen at one instant
}

// locked looks at the server, or changes what is there.
func (f *fakeRedis) locked(do func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	do()
}

// onBefore sets what happens before a command runs; after an error it does not.
func (f *fakeRedis) onBefore(hook func(cmd conn.Command) error) {
	f.locked(func() { f.before = hook })
}

// onAfter sets what happens to the reply; with an error it is lost.
func (f *fakeRedis) onAfter(hook func(cmd conn.Command) error) {
	f.locked(func() { f.after = func(cmd conn.Command, _ *conn.Reply) error { return hook(cmd) } })
}

func (f *fakeRedis) exec(cmd conn.Command) conn.Reply {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ran = append(f.ran, ran{cmd.Script.Name, len(cmd.Keys), time.Now()})
	r := f.run(cmd)
	f.noteLocked(cmd, fmt.Sprint(r.Code, r.Vals))
	return r
}

func (f *fakeRedis) noteLocked(cmd conn.Command, what string) {
	f.hist = append(f.hist, fmt.Sprintf("%d %s %v %v: %s", time.Now().UnixMicro(), cmd.Script.Name, cmd.Keys, cmd.Args, what))
}

// about is what happened last to a lock.
func (f *fakeRedis) about(key string) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := slices.DeleteFunc(slices.Clone(f.hist), func(h string) bool {
		return !strings.Contains(h, " ["+key) && !strings.Contains(h, " "+key+" ") && !strings.Contains(h, " "+key+"]")
	})
	return strings.Join(out[max(0, len(out)-15):], "\n")
}

// String is what is on the server, and who listens.
func (f *fakeRedis) String() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	left := f.rw.left()
	for key := range f.keys {
		if k := f.find(key); k != nil {
			left = append(left, fmt.Sprintf("%s held by %s %d times for %v", key, k.field, k.count, time.Until(k.ends)))
		}
	}
	for i, l := range f.links {
		if l.subs != nil && len(l.subs.channels) > 0 {
			left = append(left, fmt.Sprintf("link %d listens to %v", i, l.subs.channels))
		}
	}
	if len(left) == 0 {
		return ""
	}
	return strings.Join(left, ", ") + ", after\n" + strings.Join(f.hist[max(0, len(f.hist)-100):], "\n")
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

// field is whose a lock is.
func (f *fakeRedis) field(key string) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.keys[key].field
}

// forget deletes a lock and tells nobody.
func (f *fakeRedis) forget(key string) { f.locked(func() { delete(f.keys, key) }) }

// sets gives a lock another end of its lease.
func (f *fakeRedis) sets(key string, ends time.Time) { f.locked(func() { f.keys[key].ends = ends }) }

// covers fails if the server frees the lock before its holder's deadline.
func (f *fakeRedis) covers(t *testing.T, h lock.Hold) {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	testbed.AtMost(t, h.ValidUntil().Sub(f.keys[h.Name()].ends), 0, "how early the server frees", h.Name())
}

// scripts lists when a script ran.
func (f *fakeRedis) scripts(name string) (out []ran) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, r := range f.ran {
		if r.script == name {
			out = append(out, r)
		}
	}
	return out
}

func ms(s string) time.Duration {
	n, _ := strconv.ParseInt(s, 10, 64)
	return time.Duration(n) * time.Millisecond
}

// code1 is the reply of one integer.
func code1(code int64) conn.Reply { return conn.Reply{Code: code} }

// newCore starts a core; change sees its configuration before.
func newCore(t *testing.T, run conn.Runner, dialer pubsub.Dialer, change func(cfg *engine.Config)) *engine.Core {
	t.Helper()
	cfg := engine.Config{
		ID: "00000000-0000-0000-0000-00000000000c", LeaseTime: leaseTime, UnlockTimeout: 5 * time.Second,
		FenceTTL: time.Hour, Log: slog.New(slog.DiscardHandler),
	}
	if change != nil {
		change(&cfg)
	}
	core := engine.NewCore(cfg, run, pubsub.NewHub(dialer, func(string, ...any) {}))
	t.Cleanup(func() {
		core.Close()
		core.Wait()
		testbed.Equal(t, core.Owners(), 0, "explicit owners that are remembered")
		testbed.Equal(t, core.Shares(), 0, "locks that have readers that share")
	})
	return core
}

// newFake starts a core on a fake server; call it inside a bubble.
func newFake(t *testing.T) (*fakeRedis, *engine.Core) {
	t.Helper()
	return newFakeWith(t, func(*fakeRedis, *engine.Config) {})
}

// onFake runs a test in a bubble, with a core on a fake server.
func onFake(t *testing.T, test func(t *testing.T, f *fakeRedis, core *engine.Core)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f, core := newFake(t)
		test(t, f, core)
	})
}

// bubble runs a case in a bubble of its own.
func bubble(t *testing.T, name string, test func(t *testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { synctest.Test(t, test) })
}

// newFakeWith lets set change the server and the configuration before the core starts.
func newFakeWith(t *testing.T, set func(f *fakeRedis, cfg *engine.Config)) (*fakeRedis, *engine.Core) {
	t.Helper()
	f := newServer()
	l := f.link()
	return f, newCore(t, l, l, func(cfg *engine.Config) { set(f, cfg) })
}

// second is another client of the same server, which meets no faults and hears nothing.
func second(t *testing.T, f *fakeRedis) *engine.Core {
	t.Helper()
	return newCore(t, &fakeLink{f: f, direct: true}, newServer().link(), func(cfg *engine.Config) {
		cfg.ID = "00000000-0000-0000-0000-00000000000d"
	})
}

// plain is a plain lock.
func plain(core *engine.Core, name string, opts ...lock.Option) *rlock.RLock {
	return engine.Open(new(rlock.RLock), core, name, opts...)
}

// take locks a plain lock.
func take(t *testing.T, ctx context.Context, core *engine.Core, name string, opts ...lock.AcquireOption) lock.Hold { //nolint:revive // t first, as in testing
	t.Helper()
	h, err := plain(core, name).Lock(ctx, opts...)
	testbed.Must(t, err)
	return h
}

// group takes several plain locks together, with a wait or none (-1).
func group(ctx context.Context, core *engine.Core, wait time.Duration, names ...string) ([]*held.Hold, error) {
	var all []*engine.Lock
	for _, name := range names {
		all = append(all, engine.Of(plain(core, name)))
	}
	return engine.AcquireAll(ctx, all, wait, 0, time.Now(), time.Time{})
}

// free unlocks what must be held.
func free(t *testing.T, holds ...lock.Hold) {
	t.Helper()
	for _, h := range holds {
		if err := h.Unlock(context.Background()); err != nil {
			t.Errorf("Unlock of %s: %v", h.Name(), err)
		}
	}
}

// wants fails unless err is the wanted one.
func wants(t *testing.T, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("error %v, want %v", err, want)
	}
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
	wants(t, h.Unlock(context.Background()), lock.ErrLeaseLost)
	return at
}
