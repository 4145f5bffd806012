// Package once tests redlatch.Once against real servers: processes whose clocks differ,
// replies that are lost, processes that die.
package once

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/integration/bed"
	"github.com/redlatch/redlatch/internal/luascript"
	"github.com/redlatch/redlatch/internal/testbed"
)

func TestMain(m *testing.M) { bed.Main(m) }

// outage is a wait after which a server that does not answer is unavailable for certain: a
// second of silence says so, even if the machine is too busy to see the connection fail.
const outage = 2 * time.Second

// short is a period whose end a test waits for; a claim is good for most of one.
const short = time.Second / 2

// hour is a period that no test outlives.
const hour = time.Hour

func server(t *testing.T) *testbed.Server {
	t.Helper()
	return bed.Loaded(t, "redlatch_once:", "runs")
}

func itoa(n int64) string { return strconv.FormatInt(n, 10) }

func nothing(context.Context) error { return nil }

// must runs the job and ends the test on an error.
func must(t *testing.T, o *redlatch.Once, period time.Duration) (ran bool) {
	t.Helper()
	ran, err := o.Do(t.Context(), period, nothing)
	testbed.Must(t, err)
	return ran
}

// oneLine checks the message of an error.
func oneLine(t *testing.T, err error) {
	t.Helper()
	if err == nil || strings.ContainsAny(err.Error(), "\r\n") {
		t.Errorf("not one line: %q", err)
	}
}

// now is the server's clock in ms.
func now(t *testing.T, s *testbed.Server) int64 {
	t.Helper()
	return s.Int(t, "EVAL", "local clock = redis.call('TIME') return clock[1] * 1000 + math.floor(clock[2] / 1000)", "0")
}

// record is what the server remembers of the last run: when its period began; 0 is none.
func record(t *testing.T, s *testbed.Server, name string) int64 {
	t.Helper()
	text := s.Text(t, "EVAL", "return redis.call('GET', KEYS[1]) or ''", "1", luascript.OnceKey(name))
	if text == "" {
		return 0
	}
	first, _, _ := strings.Cut(text, " ")
	tick, err := strconv.ParseInt(first, 10, 64)
	testbed.Must(t, err)
	return tick
}

// records is how many runs the server remembers: one, or none.
func records(t *testing.T, s *testbed.Server) int64 {
	t.Helper()
	return s.Int(t, "EXISTS", luascript.OnceKey("report"))
}

// gone waits until the record is: the claim was given back, or its period is over.
func gone(t *testing.T, s *testbed.Server) {
	t.Helper()
	exists(t, s, luascript.OnceKey("report"), 0)
}

// exists waits until the key is there (1) or not (0).
func exists(t *testing.T, s *testbed.Server, key string, want int64) {
	t.Helper()
	bed.Eventually(t, key+" is there or not", func() bool { return s.Int(t, "EXISTS", key) == want })
}

// scene is a server with two clients: one goes through a proxy, where faults happen, the other straight.
type scene struct {
	*testbed.Server
	proxy    *testbed.Proxy
	c, other *redlatch.Client
}

func newScene(t *testing.T, change ...func(*redlatch.Config)) scene {
	t.Helper()
	t.Parallel()
	s := server(t)
	p := testbed.NewProxy(t, s.Addr())
	return scene{s, p, bed.Client(t, p.Addr(), change...), bed.Client(t, s.Addr())}
}

// never is a job that must not run.
func never(t *testing.T) func(context.Context) error {
	t.Helper()
	return func(context.Context) error { t.Error("fn ran"); return nil }
}

// call runs a job in a goroutine of its own.
func call(ctx context.Context, c *redlatch.Client, period time.Duration, fn func(context.Context) error) <-chan error {
	done := make(chan error, 1)
	go func() {
		_, err := c.Once("report").Do(ctx, period, fn)
		done <- err
	}()
	return done
}

// running begins a run that goes on until end is called, which returns what it came to. The next one is due.
func running(t *testing.T, s *testbed.Server, ctx context.Context, c *redlatch.Client) (end func() error) { //nolint:revive // t first, as in testing
	t.Helper()
	begun, stop := make(chan struct{}), make(chan struct{})
	done := call(ctx, c, short, func(context.Context) error {
		close(begun)
		<-stop
		return nil
	})
	<-begun
	gone(t, s)
	return func() error { close(stop); return <-done }
}

// isBusy fails unless an error says who runs, or holds, the job, and whether that is the caller's own owner.
func isBusy(t *testing.T, err error, own bool) {
	t.Helper()
	busy, is := errors.AsType[*redlatch.NotAcquiredError](err)
	if !is || busy.Holder == "" || busy.Name != "report" || busy.Own != own {
		t.Errorf("%+v", err)
	}
}
