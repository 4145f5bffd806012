package engine_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/redlatch/redlatch/internal/conn"
	"github.com/redlatch/redlatch/internal/engine"
	"github.com/redlatch/redlatch/internal/luascript"
	"github.com/redlatch/redlatch/internal/observe"
	"github.com/redlatch/redlatch/lock"
	"github.com/redlatch/redlatch/rwlock"
)

// byHand is a server whose answers the test gives: each command waits for its own. Use it
// inside a bubble.
type byHand struct {
	t     *testing.T
	mu    sync.Mutex
	asked []*question // guarded by mu; without an answer
}

// question is a command that has reached the server.
type question struct {
	cmd    conn.Command
	answer chan conn.Result
}

func (b *byHand) Topology() conn.Topology { return conn.Topology{} }

func (b *byHand) Run(_ context.Context, cmd conn.Command) (conn.Reply, error) {
	q := &question{cmd, make(chan conn.Result)}
	b.mu.Lock()
	b.asked = append(b.asked, q)
	b.mu.Unlock()
	r := <-q.answer
	return r.Reply, r.Err
}

func (b *byHand) RunMulti(ctx context.Context, cmds []conn.Command, _ []conn.Result) []conn.Result {
	return side(ctx, b.Run, cmds)
}

// all are the commands without an answer.
func (b *byHand) all() []*question {
	synctest.Wait()
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.asked)
}

// of are those of one script, whose first argument contains about.
func (b *byHand) of(script *luascript.Script, about string) []*question {
	var out []*question
	for _, q := range b.all() {
		if q.cmd.Script == script && strings.Contains(q.cmd.Args[0], about) {
			out = append(out, q)
		}
	}
	return out
}

// only is the one command of that kind that has no answer.
func (b *byHand) only(script *luascript.Script, about string) *question {
	b.t.Helper()
	qs := b.of(script, about)
	if len(qs) != 1 {
		b.t.Fatalf("%d commands %s of %q wait for an answer", len(qs), script.Name, about)
	}
	return qs[0]
}

// tell answers a command and waits for what comes of it.
func (b *byHand) tell(q *question, r conn.Reply, err error) {
	b.t.Helper()
	b.mu.Lock()
	at := slices.Index(b.asked, q)
	if at < 0 {
		b.mu.Unlock()
		b.t.Fatal("answered twice")
	}
	b.asked = slices.Delete(b.asked, at, at+1)
	b.mu.Unlock()
	q.answer <- conn.Result{Reply: r, Err: err}
	synctest.Wait()
}

// tellAll answers whatever comes with one code until nothing comes any more.
func (b *byHand) tellAll(code int64) {
	b.t.Helper()
	for all := b.all(); len(all) > 0; all = b.all() {
		b.tell(all[0], code1(code), nil)
	}
}

// grantedTwo is the grant of a group of two.
func grantedTwo() conn.Reply { return conn.Reply{Code: 1, Vals: []conn.Value{{Int: 1}, {}, {}}} }

// busyRW is the refusal of a read-write lock: a writer holds it for another second.
func busyRW(now int64) conn.Reply {
	return conn.Reply{Vals: []conn.Value{{}, {Int: 1000}, {Str: "other:g1-x.1"}, {}, {Int: 1000}, {Int: now}}}
}

// newByHand starts a core that passes locks on, and shares reads, for a tenure. Its observer is a user's, or nil.
func newByHand(t *testing.T, o observe.Observer) (*byHand, *engine.Core) {
	t.Helper()
	b := &byHand{t: t}
	core := newCore(t, b, newServer().link(), func(cfg *engine.Config) {
		cfg.Tenure, cfg.Alone, cfg.Observer = tenure, true, o
	})
	t.Cleanup(func() { // before the core's own
		core.Close()
		b.tellAll(0)
	})
	return b, core
}

// got is what became of an acquisition.
type got struct {
	h    lock.Hold
	err  error
	over bool
	done chan struct{} // closed then, for who looks before
}

// start begins an acquisition, until it stands still.
func start(acquire func() (lock.Hold, error)) *got {
	g := &got{done: make(chan struct{})}
	go func() {
		g.h, g.err = acquire()
		g.over = true
		close(g.done)
	}()
	synctest.Wait()
	return g
}

// has fails unless the acquisition has succeeded by now.
func (g *got) has(t *testing.T, who string) lock.Hold {
	t.Helper()
	synctest.Wait()
	if !g.over || g.err != nil {
		t.Fatalf("%s is not inside: %v", who, g.err)
	}
	return g.h
}

// ends fails unless the acquisition is over; with that error, if one is said.
func (g *got) ends(t *testing.T, wanted ...error) {
	t.Helper()
	synctest.Wait()
	if !g.over {
		t.Fatal("it is under way")
	}
	for _, want := range wanted {
		wants(t, g.err, want)
	}
}

// locking begins to take a plain lock.
func locking(ctx context.Context, core *engine.Core, name string, opts ...lock.AcquireOption) *got {
	return start(func() (lock.Hold, error) { return plain(core, name).Lock(ctx, opts...) })
}

// openRW is what Client.ReadWriteLock does.
func openRW(core *engine.Core, name string, opts ...lock.Option) *rwlock.ReadWriteLock {
	l := new(rwlock.ReadWriteLock)
	engine.Open(l.ReadLock(), core, name, opts...)
	engine.Open(l.WriteLock(), core, name, opts...)
	return l
}

func sharing(core *engine.Core, opts ...lock.Option) *rwlock.ReadWriteLock {
	return openRW(core, "n", append(opts, rwlock.ShareReads())...)
}
