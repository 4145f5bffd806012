package hazard

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/testbed"
)

// patience bounds waits for what a healthy machine does at once.
const patience = 20 * time.Second

func server(t *testing.T, args ...string) *testbed.Server {
	t.Helper()
	s := testbed.Standalone(t, args...)
	testbed.LeakCheck(t, s, testbed.AllowKeys("redisson_lock_token:", "redlatch_void:"))
	return s
}

func dial(t testing.TB, addr string, change ...func(*redlatch.Config)) *redlatch.Client {
	t.Helper()
	cfg := redlatch.Config{
		Redis:  rueidis.ClientOption{InitAddress: []string{addr}},
		Logger: slog.New(slog.DiscardHandler),
	}
	for _, f := range change {
		f(&cfg)
	}
	c, err := redlatch.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func leaseTime(d time.Duration) func(*redlatch.Config) {
	return func(c *redlatch.Config) { c.LeaseTime = d }
}

// kinds makes one lock of each kind.
var kinds = []struct {
	name string
	make func(c *redlatch.Client, name string) redlatch.Locker
}{
	{"rlock", func(c *redlatch.Client, name string) redlatch.Locker { return c.RLock(name) }},
	{"fair", func(c *redlatch.Client, name string) redlatch.Locker { return c.FairLock(name) }},
	{"read", func(c *redlatch.Client, name string) redlatch.Locker { return c.ReadWriteLock(name).ReadLock() }},
	{"write", func(c *redlatch.Client, name string) redlatch.Locker { return c.ReadWriteLock(name).WriteLock() }},
	{"multi", func(c *redlatch.Client, name string) redlatch.Locker {
		return redlatch.MultiLock(c.RLock(name), c.RLock("{"+name+"}2"))
	}},
}

type result struct {
	hold redlatch.Hold
	err  error
}

func async(ctx context.Context, l redlatch.Locker, opts ...redlatch.AcquireOption) <-chan result {
	out := make(chan result, 1)
	go func() {
		h, err := l.Lock(ctx, opts...)
		out <- result{h, err}
	}()
	return out
}

func await(t testing.TB, c <-chan result) result {
	t.Helper()
	select {
	case r := <-c:
		return r
	case <-time.After(patience):
		t.Fatal("Lock does not return")
		return result{}
	}
}

func take(t testing.TB, ctx context.Context, l redlatch.Locker, opts ...redlatch.AcquireOption) redlatch.Hold { //nolint:revive // t first, as in testing
	t.Helper()
	r := await(t, async(ctx, l, opts...))
	if r.err != nil {
		t.Fatalf("Lock: %v", r.err)
	}
	return r.hold
}

func unlock(t testing.TB, h redlatch.Hold) {
	t.Helper()
	if err := h.Unlock(context.Background()); err != nil {
		t.Fatalf("Unlock: %v", err)
	}
}

func eventually(t testing.TB, what string, cond func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !cond(); {
		if time.Now().After(deadline) {
			t.Fatalf("does not come: %s", what)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// marked waits until a marked goroutine is in a function.
func marked(t testing.TB, mark, function string) {
	t.Helper()
	eventually(t, mark+" in "+function, func() bool { return testbed.MarkedIn(mark, function) > 0 })
}

func is(t testing.TB, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%s: %v, want %v", what, err, want)
	}
}
