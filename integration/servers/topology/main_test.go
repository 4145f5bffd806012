// Package topology tests the locks on deployments of several servers: Sentinel
// and Cluster, while they fail over and move data.
package topology

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"go.uber.org/goleak"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/testbed"
)

// TestMain looks for goroutines that outlive their tests. Three are the client
// library's: it looks at a cluster's topology a second after it saw a reason to, and closes
// what it no longer needs five seconds later (in two places), whether the client is closed or not.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		goleak.IgnoreAnyFunction("github.com/redis/rueidis.(*call).DelayDo.func1"),
		goleak.IgnoreAnyFunction("github.com/redis/rueidis.(*clusterClient)._refresh.func2"),
		goleak.IgnoreAnyFunction("github.com/redis/rueidis.(*clusterClient).redirectOrNew.func1"))
}

// lease is short enough for a test to see losses and long enough for a loaded
// machine to renew in time.
const lease = 6 * time.Second

// open makes a client that is closed with the test. A short lease makes the limits of a connection
// short, too: a busy machine's server may give its first answer too late for them.
func open(t *testing.T, opt rueidis.ClientOption, more ...func(*redlatch.Config)) *redlatch.Client {
	t.Helper()
	cfg := redlatch.Config{
		Redis: opt, LeaseTime: lease,
		Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError})),
	}
	for _, f := range more {
		f(&cfg)
	}
	var c *redlatch.Client
	eventually(t, 20*time.Second, "a client", func() bool {
		var err error
		if c, err = redlatch.New(cfg); err != nil && !errors.Is(err, redlatch.ErrUnavailable) {
			t.Fatal(err)
		}
		return err == nil
	})
	t.Cleanup(c.Close)
	return c
}

// nodeTimeout sets how long a node of a cluster must be silent before the others take it for dead. One
// that only stands still for longer than testbed.ClusterNodeTimeout loses its slots.
func nodeTimeout(t *testing.T, set *testbed.ClusterSet, d time.Duration) {
	t.Helper()
	for _, n := range set.Nodes() {
		n.Do(t, "CONFIG", "SET", "cluster-node-timeout", strconv.FormatInt(d.Milliseconds(), 10))
	}
}

// standsStill is longer than a busy machine's node stands still.
const standsStill = 3 * time.Second

func cluster(c *testbed.ClusterSet) rueidis.ClientOption {
	return rueidis.ClientOption{InitAddress: c.Addrs()}
}

func sentinel(s *testbed.SentinelSet) rueidis.ClientOption {
	return rueidis.ClientOption{
		InitAddress: s.SentinelAddrs(),
		Sentinel:    rueidis.SentinelOption{MasterSet: testbed.MasterName},
	}
}

// within is a context for everything that must end in a test.
func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

func mustLock(t *testing.T, ctx context.Context, l redlatch.Locker) redlatch.Hold { //nolint:revive // t comes first
	t.Helper()
	h, err := l.Lock(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// waiting starts a waiter and returns once it has found the lock busy and its
// subscription stands.
func waiting(t *testing.T, l redlatch.Locker, subscribed func() bool) <-chan redlatch.Hold {
	t.Helper()
	got := make(chan redlatch.Hold, 1)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	done := make(chan struct{})
	go func() {
		defer close(done)
		h, err := l.Lock(ctx)
		if err != nil {
			t.Error(err)
		}
		got <- h
	}()
	t.Cleanup(func() { cancel(); <-done })
	eventually(t, 20*time.Second, "the waiter has subscribed", subscribed)
	return got
}

func eventually(t *testing.T, d time.Duration, what string, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(d); !cond(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", d, what)
		}
	}
}

// gets waits for a waiter's hold for at most d.
func gets(t *testing.T, got <-chan redlatch.Hold, d time.Duration) redlatch.Hold {
	t.Helper()
	select {
	case h := <-got:
		if h == nil {
			t.FailNow()
		}
		return h
	case <-time.After(d):
		t.Fatalf("the waiter did not get the lock within %v", d)
		return nil
	}
}

func lost(err error) bool { return errors.Is(err, redlatch.ErrLeaseLost) }
