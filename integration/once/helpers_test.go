package once

import (
	"context"
	"log/slog"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/luascript"
	"github.com/redlatch/redlatch/internal/testbed"
)

// patience bounds waits for what a healthy machine does at once.
const patience = 20 * time.Second

// outage is a wait after which a server that does not answer is unavailable for certain: a
// second of silence says so, even if the machine is too busy to see the connection fail.
const outage = 2 * time.Second

// short is a period whose end a test waits for; a claim is good for most of one.
const short = time.Second / 2

// hour is a period that no test outlives.
const hour = time.Hour

func server(t *testing.T, args ...string) *testbed.Server {
	t.Helper()
	s := testbed.Standalone(t, args...)
	testbed.LeakCheck(t, s, testbed.AllowKeys("redlatch_once:", "redlatch_void:", "runs"))
	for _, script := range []*luascript.Script{
		luascript.Once, luascript.OnceUndo, luascript.OnceReset, luascript.Acquire, luascript.Release, luascript.Renew,
	} {
		s.Do(t, "SCRIPT", "LOAD", script.Body)
	}
	return s
}

func dial(t *testing.T, addr string, change ...func(*redlatch.Config)) *redlatch.Client {
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

func nothing(context.Context) error { return nil }

// must runs the job and ends the test on an error.
func must(t *testing.T, o *redlatch.Once, period time.Duration) (ran bool) {
	t.Helper()
	ran, err := o.Do(t.Context(), period, nothing)
	if err != nil {
		t.Fatal(err)
	}
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
	parts := s.List(t, "TIME")
	sec, err1 := strconv.ParseInt(parts[0], 10, 64)
	us, err2 := strconv.ParseInt(parts[1], 10, 64)
	if err1 != nil || err2 != nil {
		t.Fatal(parts)
	}
	return sec*1000 + us/1000
}

// record is what the server remembers of the last run: when its period began.
func record(t *testing.T, s *testbed.Server, name string) (tick int64, found bool) {
	t.Helper()
	text := s.Text(t, "EVAL", "return redis.call('GET', KEYS[1]) or ''", "1", luascript.OnceKey(name))
	if text == "" {
		return 0, false
	}
	first, _, _ := strings.Cut(text, " ")
	tick, err := strconv.ParseInt(first, 10, 64)
	if err != nil {
		t.Fatal(text)
	}
	return tick, true
}

// gone waits until the record is: the claim was given back, or its period is over.
func gone(t *testing.T, s *testbed.Server) {
	t.Helper()
	exists(t, s, luascript.OnceKey("report"), 0)
}

// exists waits until the key is there (1) or not (0).
func exists(t *testing.T, s *testbed.Server, key string, want int64) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for s.Int(t, "EXISTS", key) != want {
		if time.Now().After(deadline) {
			t.Fatalf("EXISTS %s is not %d", key, want)
		}
		time.Sleep(5 * time.Millisecond)
	}
}
