package multi

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/luascript"
	"github.com/redlatch/redlatch/internal/testbed"
	"github.com/redlatch/redlatch/multilock"
)

// patience bounds waits for what a healthy machine does at once. It is below the
// leases of tests about waiting, so that a waiter who sleeps until a lease ends
// fails them.
const patience = 20 * time.Second

// woken bounds the time from an unlock to the hold of the next one, whom a message wakes. A machine that
// stands still for a while stays below it. Who hears nothing looks again when a lease of 30 s ends, of
// which 20 s or more are left.
const woken = 5 * time.Second

// server starts a server on which nothing may be left behind.
func server(t *testing.T) *testbed.Server {
	t.Helper()
	s := testbed.Standalone(t)
	leakCheck(t, s)
	return s
}

func leakCheck(t *testing.T, s *testbed.Server) {
	t.Helper()
	testbed.LeakCheck(t, s, testbed.AllowKeys("redisson_lock_token:", "redlatch_void:", "fenced:"))
}

// servers starts independent servers.
func servers(t *testing.T, n int) []*testbed.Server {
	t.Helper()
	list := testbed.Masters(t, n)
	for _, s := range list {
		leakCheck(t, s)
	}
	return list
}

// dial makes a client that is closed with the test.
func dial(t testing.TB, addr string, change ...func(*redlatch.Config)) *redlatch.Client {
	t.Helper()
	c, err := newClient(addr, change...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func newClient(addr string, change ...func(*redlatch.Config)) (*redlatch.Client, error) {
	cfg := redlatch.Config{
		Redis:  rueidis.ClientOption{InitAddress: []string{addr}, ForceSingleClient: true},
		Logger: slog.New(slog.DiscardHandler),
	}
	for _, f := range change {
		f(&cfg)
	}
	return redlatch.New(cfg)
}

// clients makes one client per address.
func clients(t testing.TB, addrs []string, change ...func(*redlatch.Config)) []*redlatch.Client {
	t.Helper()
	out := make([]*redlatch.Client, len(addrs))
	for i, a := range addrs {
		out[i] = dial(t, a, change...)
	}
	return out
}

func addrs(list []*testbed.Server) []string {
	out := make([]string, len(list))
	for i, s := range list {
		out[i] = s.Addr()
	}
	return out
}

func lease(d time.Duration) func(*redlatch.Config) {
	return func(c *redlatch.Config) { c.LeaseTime = d }
}

// copies are the copies of one lock, one per client.
func copies(cs []*redlatch.Client, name string, opts ...redlatch.Option) []redlatch.Member {
	out := make([]redlatch.Member, len(cs))
	for i, c := range cs {
		out[i] = c.RLock(name, opts...)
	}
	return out
}

func plain(c *redlatch.Client, names ...string) []redlatch.Member {
	out := make([]redlatch.Member, len(names))
	for i, n := range names {
		out[i] = c.RLock(n)
	}
	return out
}

// result is what an acquisition came to.
type result struct {
	hold redlatch.Hold
	err  error
	took time.Duration
}

func async(ctx context.Context, l redlatch.Member, opts ...redlatch.AcquireOption) <-chan result {
	out := make(chan result, 1)
	began := time.Now()
	go func() {
		h, err := l.Lock(ctx, opts...)
		out <- result{h, err, time.Since(began)}
	}()
	return out
}

func get(t testing.TB, c <-chan result) redlatch.Hold {
	t.Helper()
	select {
	case r := <-c:
		if r.err != nil {
			t.Fatalf("Lock: %v", r.err)
		}
		return r.hold
	case <-time.After(patience):
		t.Fatal("Lock does not return")
		return nil
	}
}

func blocked(t testing.TB, c <-chan result) {
	t.Helper()
	select {
	case r := <-c:
		t.Fatalf("Lock returned early: %v", r.err)
	default:
	}
}

func mustLock(t testing.TB, ctx context.Context, l redlatch.Member, opts ...redlatch.AcquireOption) redlatch.Hold { //nolint:revive // t first, as in testing
	t.Helper()
	return get(t, async(ctx, l, opts...))
}

func unlock(t testing.TB, h redlatch.Hold) {
	t.Helper()
	if err := h.Unlock(context.Background()); err != nil {
		t.Fatalf("Unlock: %v", err)
	}
}

func want(t testing.TB, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("error %v, want %v", err, want)
	}
}

// eventually polls a state that nobody announces.
func eventually(t testing.TB, what string, cond func() bool) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for !cond() {
		if time.Now().After(deadline) {
			t.Fatalf("does not come: %s", what)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// ended waits for the end of a hold's context and returns its cause.
func ended(t testing.TB, h redlatch.Hold) error {
	t.Helper()
	select {
	case <-h.Context().Done():
	case <-time.After(patience):
		t.Fatal("the hold's context does not end")
	}
	return context.Cause(h.Context())
}

// listens waits until somebody listens to a lock's unlock messages.
func listens(t testing.TB, s *testbed.Server, name string) {
	t.Helper()
	channel := luascript.CallChannel(name)
	eventually(t, "a subscription of "+name, func() bool {
		return len(s.List(t, "PUBSUB", "CHANNELS", channel+"*")) > 0
	})
}

// unheard waits until nobody listens to a lock's unlock messages any more: a subscription lingers for
// half a second, and the next waiter would not be told from it.
func unheard(t testing.TB, s *testbed.Server, name string) {
	t.Helper()
	channel := luascript.CallChannel(name)
	eventually(t, "the end of a subscription of "+name, func() bool {
		return len(s.List(t, "PUBSUB", "CHANNELS", channel+"*")) == 0
	})
}

func held(t testing.TB, s *testbed.Server, names ...string) {
	t.Helper()
	for _, n := range names {
		if s.Int(t, "HLEN", n) != 1 {
			t.Fatalf("%s is not held on %s", n, s.Addr())
		}
	}
}

func free(t testing.TB, s *testbed.Server, names ...string) {
	t.Helper()
	for _, n := range names {
		if s.Int(t, "EXISTS", n) != 0 {
			t.Fatalf("%s is held on %s: %v", n, s.Addr(), s.Hash(t, "HGETALL", n))
		}
	}
}

func names(prefix string, n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf("%s%d", prefix, i)
	}
	return out
}

// count is the count of a lock's one owner.
func count(t testing.TB, s *testbed.Server, name string) string {
	t.Helper()
	for _, n := range s.Hash(t, "HGETALL", name) {
		return n
	}
	return "0"
}

type multiLock = multilock.MultiLock

func rawClient(addr string) (rueidis.Client, error) {
	return rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{addr}, DisableCache: true, ForceSingleClient: true})
}

// bump counts up without the server's help: read, add, write. It marks when
// somebody else is inside.
func bump(ctx context.Context, c rueidis.Client, name string) error {
	inside, err := c.Do(ctx, c.B().Incr().Key("fenced:inside:"+name).Build()).AsInt64()
	if err != nil {
		return err
	}
	if inside != 1 {
		c.Do(ctx, c.B().Set().Key("fenced:bad:"+name).Value("1").Build())
	}
	n, err := c.Do(ctx, c.B().Get().Key("fenced:count:"+name).Build()).AsInt64()
	if err != nil && !rueidis.IsRedisNil(err) {
		return err
	}
	if err := c.Do(ctx, c.B().Set().Key("fenced:count:"+name).Value(strconv.FormatInt(n+1, 10)).Build()).Error(); err != nil {
		return err
	}
	return c.Do(ctx, c.B().Decr().Key("fenced:inside:"+name).Build()).Error()
}

// becomesFree is free for locks that are being given back.
func becomesFree(t testing.TB, s *testbed.Server, names ...string) {
	t.Helper()
	eventually(t, "free locks "+strings.Join(names, " "), func() bool {
		return s.Int(t, append([]string{"EXISTS"}, names...)...) == 0
	})
}
