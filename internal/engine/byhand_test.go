package engine_test

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlatch/redlatch/internal/conn"
	"github.com/redlatch/redlatch/internal/engine"
	"github.com/redlatch/redlatch/internal/luascript"
	"github.com/redlatch/redlatch/internal/pubsub"
	"github.com/redlatch/redlatch/lock"
)

// byHand is a server whose answers the test gives: each command waits for its own. Use it
// inside a bubble.
type byHand struct {
	t     *testing.T
	pubs  *fakeRedis
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

// of are the commands without an answer: of one script, whose first argument contains
// about.
func (b *byHand) of(script *luascript.Script, about string) []*question {
	synctest.Wait()
	b.mu.Lock()
	defer b.mu.Unlock()
	var out []*question
	for _, q := range b.asked {
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
	found := false
	for i, x := range b.asked {
		if x == q {
			b.asked, found = append(b.asked[:i], b.asked[i+1:]...), true
			break
		}
	}
	b.mu.Unlock()
	if !found {
		b.t.Fatal("answered twice")
	}
	q.answer <- conn.Result{Reply: r, Err: err}
	synctest.Wait()
}

// tellAll answers whatever comes with one code until nothing comes any more.
func (b *byHand) tellAll(code int64) {
	b.t.Helper()
	for {
		synctest.Wait()
		b.mu.Lock()
		var q *question
		if len(b.asked) > 0 {
			q = b.asked[0]
		}
		b.mu.Unlock()
		if q == nil {
			return
		}
		b.tell(q, code1(code), nil)
	}
}

// code1 is the reply of one integer.
func code1(code int64) conn.Reply { return conn.Reply{Code: code} }

// busyRW is the refusal of a read-write lock: a writer holds it for another second.
func busyRW(now int64) conn.Reply {
	return conn.Reply{Vals: []conn.Value{{}, {Int: 1000}, {Str: "other:g1-x.1", IsStr: true}, {IsStr: true}, {Int: 1000}, {Int: now}}}
}

// newByHand starts a core that passes locks on, and shares reads, for a tenure.
func newByHand(t *testing.T) (*byHand, *engine.Core) {
	t.Helper()
	b := &byHand{t: t, pubs: &fakeRedis{}}
	core := engine.NewCore(engine.Config{
		ID: "00000000-0000-0000-0000-00000000000f", LeaseTime: leaseTime, UnlockTimeout: 5 * time.Second,
		Tenure: tenure, FenceTTL: time.Hour, Alone: true, Log: slog.New(slog.DiscardHandler),
	}, b, pubsub.NewHub(b.pubs, nil))
	t.Cleanup(func() {
		core.Close()
		b.tellAll(0)
		core.Wait()
		if n := core.Owners(); n != 0 {
			t.Errorf("%d explicit owners are remembered", n)
		}
		if n := core.Shares(); n != 0 {
			t.Errorf("%d locks have readers that share", n)
		}
	})
	return b, core
}

// got is what became of an acquisition.
type got struct {
	h    lock.Hold
	err  error
	over bool
}

// start begins an acquisition, until it stands still.
func start(acquire func() (lock.Hold, error)) *got {
	g := &got{}
	go func() {
		g.h, g.err = acquire()
		g.over = true
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

// waits fails unless the acquisition is under way.
func (g *got) waits(t *testing.T, who string) {
	t.Helper()
	synctest.Wait()
	if g.over {
		t.Fatalf("%s does not wait: inside %v, %v", who, g.h != nil, g.err)
	}
}
