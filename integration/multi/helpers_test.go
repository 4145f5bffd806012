package multi

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/integration/bed"
	"github.com/redlatch/redlatch/internal/testbed"
	"github.com/redlatch/redlatch/multilock"
)

func TestMain(m *testing.M) { bed.Main(m) }

// woken bounds the time from an unlock to the hold of the next one, whom a message wakes. A machine that
// stands still for a while stays below it. Who hears nothing looks again when a lease of 30 s ends, of
// which 20 s or more are left.
const woken = 5 * time.Second

type multiLock = multilock.MultiLock

// servers starts independent servers.
func servers(t *testing.T, n int) []*testbed.Server {
	t.Helper()
	list := make([]*testbed.Server, n)
	for i := range list {
		list[i] = bed.Server(t)
	}
	return list
}

// clients makes one client per server.
func clients(t *testing.T, list []*testbed.Server, change ...func(*redlatch.Config)) []*redlatch.Client {
	t.Helper()
	out := make([]*redlatch.Client, len(list))
	for i, s := range list {
		out[i] = bed.Client(t, s.Addr(), change...)
	}
	return out
}

// copies are the copies of one lock, one per client.
func copies(cs []*redlatch.Client, name string, opts ...redlatch.Option) []redlatch.Member {
	out := make([]redlatch.Member, len(cs))
	for i, c := range cs {
		out[i] = c.RLock(name, opts...)
	}
	return out
}

func quorum(cs []*redlatch.Client, name string, opts ...redlatch.Option) *multiLock {
	return redlatch.QuorumLock(copies(cs, name, opts...)...)
}

// quorums starts n servers, with a process that goes through proxies (Lock) and one that goes straight (Beside).
// A majority will do for their quorum "q" from here on. It is fenced.
func quorums(t *testing.T, n int, change ...func(*redlatch.Config)) *bed.Site {
	t.Helper()
	x := bed.NewSite(t, bed.Kind{
		Name: "quorum", Servers: n,
		New: func(cs []*redlatch.Client, name string, opts ...redlatch.Option) redlatch.Locker {
			return quorum(cs, name, append(opts, redlatch.Fenced())...)
		},
	}, change...)
	for _, l := range []redlatch.Locker{x.Lock("q"), x.Beside("q")} {
		bed.Unlock(t, bed.Lock(t, t.Context(), l))
	}
	return x
}

// whole takes a quorum of [quorums] with all its copies. One that was not answered for in time, on a busy machine, is
// given back: then the quorum is taken again.
func whole(t *testing.T, ctx context.Context, q redlatch.Locker, opts ...redlatch.AcquireOption) redlatch.Hold { //nolint:revive // t first, as in testing
	t.Helper()
	for range 3 {
		h := bed.Lock(t, ctx, q, opts...)
		for end := time.Now().Add(time.Second); time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
			if !slices.Contains(tokens(h), 0) {
				return h
			}
		}
		testbed.Untested(t, "that the first quorum has all its copies in a second: another one was taken")
		bed.Unlock(t, h)
	}
	t.Fatal("three quorums, and none had all its copies")
	return nil
}

// tokens are those of the members, or copies; 0 where there is none.
func tokens(h redlatch.Hold) []uint64 {
	return h.(redlatch.MultiHold).Tokens() //nolint:forcetypeassert // it is one
}

// away are the ways in which a server behind a proxy is not there.
var away = map[string]func(t *testing.T, s *testbed.Server, p *testbed.Proxy) (back func()){
	"down": func(t *testing.T, s *testbed.Server, _ *testbed.Proxy) func() {
		t.Helper()
		s.Kill(t)
		return func() { s.Restart(t, testbed.Empty) }
	},
	"stopped": func(t *testing.T, s *testbed.Server, _ *testbed.Proxy) func() {
		t.Helper()
		s.Freeze(t)
		return func() { s.Thaw(t) }
	},
	"slow": func(_ *testing.T, _ *testbed.Server, p *testbed.Proxy) func() {
		p.Delay(testbed.Replies, 2*time.Second)
		return func() { p.Delay(testbed.Replies, 0) }
	},
	"cut off": func(t *testing.T, _ *testbed.Server, p *testbed.Proxy) func() {
		t.Helper()
		p.Refuse()
		p.Cut()
		return func() { p.Admit(t) }
	},
	"silent": func(_ *testing.T, _ *testbed.Server, p *testbed.Proxy) func() {
		p.Pause(testbed.Requests)
		return func() { p.Resume(testbed.Requests) }
	},
}

// across makes a lock of one plain lock per client; "a" of the first one, "b" of the second.
func across(cs []*redlatch.Client) *multiLock {
	members := make([]redlatch.Member, len(cs))
	for i, c := range cs {
		members[i] = c.RLock(string(rune('a' + i)))
	}
	return redlatch.MultiLock(members...)
}

func plain(c *redlatch.Client, names ...string) []redlatch.Member {
	out := make([]redlatch.Member, len(names))
	for i, n := range names {
		out[i] = c.RLock(n)
	}
	return out
}

func held(t *testing.T, s *testbed.Server, names ...string) {
	t.Helper()
	for _, n := range names {
		testbed.Equal(t, s.Int(t, "HLEN", n), 1, "who hold", n, "on", s.Addr())
	}
}

func free(t *testing.T, s *testbed.Server, names ...string) {
	t.Helper()
	for _, n := range names {
		if s.Int(t, "EXISTS", n) != 0 {
			t.Fatalf("%s is held on %s: %v", n, s.Addr(), s.Hash(t, "HGETALL", n))
		}
	}
}

// becomeFree is free on all these servers for a lock that is being given back.
func becomeFree(t *testing.T, name string, on ...*testbed.Server) {
	t.Helper()
	bed.Eventually(t, name+" is free", func() bool { return heldOn(t, on, name) == 0 })
}

// heldOn counts the servers on which the lock is taken.
func heldOn(t *testing.T, list []*testbed.Server, name string) int {
	t.Helper()
	n := 0
	for _, s := range list {
		if s.Running() && s.Int(t, "EXISTS", name) == 1 {
			n++
		}
	}
	return n
}

func blocked(t *testing.T, c <-chan bed.Attempt) {
	t.Helper()
	select {
	case r := <-c:
		t.Fatalf("Lock returned early: %v", r.Err)
	default:
	}
}
