package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"go.uber.org/goleak"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/testbed"
)

// TestMain runs the tests, or is the command that a test started.
func TestMain(m *testing.M) {
	if status, ok := helper(os.Args); ok {
		os.Exit(status)
	}
	if os.Getenv("REDLATCH_TEST_COMMAND") != "" {
		_ = os.Unsetenv("REDLATCH_TEST_COMMAND")
		main()
		return
	}
	for _, v := range os.Environ() { // a user's settings are not for tests
		if name, _, _ := strings.Cut(v, "="); strings.HasPrefix(name, "REDLATCH_") && !strings.HasPrefix(name, "REDLATCH_TEST") && name != "REDLATCH_CHROMIUM" || name == "REDIS_URL" {
			_ = os.Unsetenv(name)
		}
	}
	if signal.Ignored(os.Interrupt) { // by a shell that runs the tests in its background; the program is to heed it
		signal.Notify(make(chan os.Signal, 1), os.Interrupt)
	}
	// Two goroutines of the client library end by themselves, seconds after the client: one asks again for
	// a cluster's topology, one closes connections that are not needed any more.
	goleak.VerifyTestMain(m,
		goleak.IgnoreAnyFunction("github.com/redis/rueidis.(*call).DelayDo.func1"),
		goleak.IgnoreAnyFunction("github.com/redis/rueidis.(*clusterClient)._refresh.func2"))
}

// patience ends a test that would hang.
const patience = 30 * time.Second

// server starts a server on which nothing may be left behind.
func server(t *testing.T, args ...string) *testbed.Server {
	t.Helper()
	s := testbed.Standalone(t, args...)
	testbed.LeakCheck(t, s, testbed.AllowKeys("redisson_lock_token:", "redlatch_void:", "redlatch_history:"))
	return s
}

func client(t *testing.T, s *testbed.Server, change ...func(*redlatch.Config)) *redlatch.Client {
	t.Helper()
	cfg := redlatch.Config{Redis: rueidis.ClientOption{InitAddress: []string{s.Addr()}}}
	cfg.Redis.Dialer.Timeout = patience // a short lease would make it short, too
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

func named(name string) func(*redlatch.Config) {
	return func(c *redlatch.Config) { c.Name = name }
}

// hold takes a lock for the test.
func hold(t *testing.T, l redlatch.Locker, opts ...redlatch.AcquireOption) redlatch.Hold {
	t.Helper()
	h, err := l.Lock(t.Context(), opts...)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func unlock(t *testing.T, h redlatch.Hold) {
	t.Helper()
	if err := h.Unlock(context.Background()); err != nil {
		t.Error(err)
	}
}

// call runs the command in this process.
func call(t *testing.T, s *testbed.Server, args ...string) (status int, out, errs string) {
	t.Helper()
	return callWith(t, "", s, args...)
}

func callWith(t *testing.T, input string, s *testbed.Server, args ...string) (status int, out, errs string) {
	t.Helper()
	var o, e bytes.Buffer
	if s != nil {
		args = append([]string{"--url", "redis://" + s.Addr()}, args...)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	status = execute(ctx, args, streams{strings.NewReader(input), &o, &e})
	return status, o.String(), e.String()
}

// command is the program in a process of its own.
type command struct {
	t     *testing.T
	cmd   *exec.Cmd
	in    io.WriteCloser
	mu    sync.Mutex
	out   bytes.Buffer // guarded by mu; both outputs
	ended chan struct{}
}

// Write implements io.Writer.
func (c *command) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.out.Write(p)
}

func (c *command) text() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.out.String()
}

// prepare makes the process of a command line.
func prepare(s *testbed.Server, args ...string) *exec.Cmd {
	self, err := os.Executable()
	if err != nil {
		panic(err)
	}
	return as(s, exec.Command(self, args...))
}

// as makes a process of this program that of the command. A short lease would make the limit of a connection
// short, too.
func as(s *testbed.Server, cmd *exec.Cmd) *exec.Cmd {
	cmd.Env = append(os.Environ(), "REDLATCH_TEST_COMMAND=1", "REDIS_URL=redis://"+s.Addr()+"?dial_timeout="+patience.String())
	return cmd
}

// begin starts the program.
func begin(t *testing.T, s *testbed.Server, args ...string) *command {
	t.Helper()
	return beginProcess(t, prepare(s, args...))
}

// beginProcess starts a process that is, or becomes, the program.
func beginProcess(t *testing.T, cmd *exec.Cmd) *command {
	t.Helper()
	c := &command{t: t, cmd: cmd, ended: make(chan struct{})}
	c.cmd.Stdout, c.cmd.Stderr = c, c
	c.cmd.WaitDelay = 5 * time.Second // what it leaves behind may hold its output open
	in, err := c.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	c.in = in
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { // ends with the process
		_ = c.cmd.Wait()
		close(c.ended)
	}()
	t.Cleanup(func() {
		_ = c.cmd.Process.Kill()
		<-c.ended
	})
	return c
}

// says waits until the program has written a text.
func (c *command) says(text string) string {
	c.t.Helper()
	until(c.t, "the command says "+text, func() bool { return strings.Contains(c.text(), text) },
		func() string { return c.text() })
	return c.text()
}

// status waits for the end and returns the exit status.
func (c *command) status() int {
	c.t.Helper()
	select {
	case <-c.ended:
		return c.cmd.ProcessState.ExitCode()
	case <-time.After(patience):
		c.t.Fatalf("the command does not end:\n%s", c.text())
		return -1
	}
}

// until waits for a state that nobody announces.
func until(t *testing.T, what string, ok func() bool, state func() string) {
	t.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: not after %v; it is:\n%s", what, patience, state())
		}
	}
}

// inspect looks at a lock.
func inspect(t *testing.T, c *redlatch.Client, name string) redlatch.Inspection {
	t.Helper()
	in, err := c.Inspect(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	return in
}

// untilState waits for a state of a lock.
func untilState(t *testing.T, c *redlatch.Client, name string, ok func(redlatch.Inspection) bool) redlatch.Inspection {
	t.Helper()
	var in redlatch.Inspection
	until(t, "the state of "+name, func() bool {
		var err error
		in, err = c.Inspect(t.Context(), name)
		return err == nil && ok(in) || errors.Is(err, context.Canceled)
	}, func() string { return strings.TrimSpace(string(mustJSON(in))) })
	return in
}

func mustJSON(v any) []byte {
	var b bytes.Buffer
	_ = writeJSON(&b, v, false)
	return b.Bytes()
}

// need fails when a text lacks one of the parts.
func need(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, p := range parts {
		if !strings.Contains(text, p) {
			t.Errorf("%q is missing in:\n%s", p, text)
		}
	}
}
