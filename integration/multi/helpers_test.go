package multi

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/integration/bed"
	"github.com/redlatch/redlatch/internal/luascript"
	"github.com/redlatch/redlatch/internal/testbed"
	"github.com/redlatch/redlatch/multilock"
)

// woken bounds the time from an unlock to the hold of the next one, whom a message wakes. A machine that
// stands still for a while stays below it. Who hears nothing looks again when a lease of 30 s ends, of
// which 20 s or more are left.
const woken = 5 * time.Second

// servers starts independent servers.
func servers(t *testing.T, n int) []*testbed.Server {
	t.Helper()
	list := make([]*testbed.Server, n)
	for i := range list {
		list[i] = bed.Server(t, "fenced:")
	}
	return list
}

// clients makes one client per address.
func clients(t *testing.T, addrs []string, change ...func(*redlatch.Config)) []*redlatch.Client {
	t.Helper()
	out := make([]*redlatch.Client, len(addrs))
	for i, a := range addrs {
		out[i] = bed.Client(t, a, change...)
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

func want(t *testing.T, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("error %v, want %v", err, want)
	}
}

// ended waits for the end of a hold's context and returns its cause.
func ended(t *testing.T, h redlatch.Hold) error {
	t.Helper()
	select {
	case <-h.Context().Done():
	case <-time.After(bed.Patience):
		t.Fatal("the hold's context does not end")
	}
	return context.Cause(h.Context())
}

// listens waits until somebody listens to a lock's unlock messages.
func listens(t *testing.T, s *testbed.Server, name string) {
	t.Helper()
	channel := luascript.CallChannel(name)
	bed.Eventually(t, "a subscription of "+name, func() bool {
		return len(s.List(t, "PUBSUB", "CHANNELS", channel+"*")) > 0
	})
}

// unheard waits until nobody listens to a lock's unlock messages any more: a subscription lingers for
// half a second, and the next waiter would not be told from it.
func unheard(t *testing.T, s *testbed.Server, name string) {
	t.Helper()
	channel := luascript.CallChannel(name)
	bed.Eventually(t, "the end of a subscription of "+name, func() bool {
		return len(s.List(t, "PUBSUB", "CHANNELS", channel+"*")) == 0
	})
}

func held(t *testing.T, s *testbed.Server, names ...string) {
	t.Helper()
	for _, n := range names {
		if s.Int(t, "HLEN", n) != 1 {
			t.Fatalf("%s is not held on %s", n, s.Addr())
		}
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

func names(prefix string, n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf("%s%d", prefix, i)
	}
	return out
}

// count is the count of a lock's one owner.
func count(t *testing.T, s *testbed.Server, name string) string {
	t.Helper()
	for _, n := range s.Hash(t, "HGETALL", name) {
		return n
	}
	return "0"
}

type multiLock = multilock.MultiLock

// becomesFree is free for locks that are being given back.
func becomesFree(t *testing.T, s *testbed.Server, names ...string) {
	t.Helper()
	bed.Eventually(t, "free locks "+strings.Join(names, " "), func() bool {
		return s.Int(t, append([]string{"EXISTS"}, names...)...) == 0
	})
}

func blocked(t *testing.T, c <-chan bed.Attempt) {
	t.Helper()
	select {
	case r := <-c:
		t.Fatalf("Lock returned early: %v", r.Err)
	default:
	}
}
