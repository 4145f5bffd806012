package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

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

// patience ends a test that would hang, also where the machine has much else to do.
const patience = time.Minute

// server starts a server on which nothing may be left behind.
func server(t *testing.T, args ...string) *testbed.Server {
	t.Helper()
	s := testbed.Standalone(t, args...)
	testbed.LeakCheck(t, s, testbed.AllowKeys("redisson_lock_token:", "redlatch_void:", "redlatch_history:"))
	return s
}

// client is a client of a server, or of what a change says.
func client(t *testing.T, s *testbed.Server, change ...func(*redlatch.Config)) *redlatch.Client {
	t.Helper()
	var cfg redlatch.Config
	if s != nil {
		cfg.Redis.InitAddress = []string{s.Addr()}
	}
	cfg.Redis.Dialer.Timeout = patience // a short lease would make it short, too
	for _, f := range change {
		f(&cfg)
	}
	c, err := redlatch.New(cfg)
	testbed.Must(t, err)
	t.Cleanup(c.Close)
	return c
}

// beside begins a test that runs beside the others, on a server of its own with a client.
func beside(t *testing.T, change ...func(*redlatch.Config)) (*testbed.Server, *redlatch.Client) {
	t.Helper()
	t.Parallel()
	s := server(t)
	return s, client(t, s, change...)
}

func named(name string) func(*redlatch.Config) {
	return func(c *redlatch.Config) { c.Name = name }
}

// hold takes a lock for the test.
func hold(t *testing.T, l redlatch.Locker, opts ...redlatch.AcquireOption) redlatch.Hold {
	t.Helper()
	h, err := l.Lock(t.Context(), opts...)
	testbed.Must(t, err)
	return h
}

func unlock(t *testing.T, holds ...redlatch.Hold) {
	t.Helper()
	for _, h := range holds {
		if err := h.Unlock(context.Background()); err != nil {
			t.Error(err)
		}
	}
}

// waiting waits for a lock; the hold comes later.
func waiting(t *testing.T, ctx context.Context, l redlatch.Locker) <-chan redlatch.Hold { //nolint:revive // t first, as in testing
	t.Helper()
	got := make(chan redlatch.Hold, 1)
	go func() { // ends with the lock
		h, err := l.Lock(ctx)
		if err != nil {
			t.Error(err)
		}
		got <- h
	}()
	return got
}

// taken fails unless the lock of a hold was taken away.
func taken(t *testing.T, h redlatch.Hold) {
	t.Helper()
	if err := h.Unlock(context.Background()); !errors.Is(err, redlatch.ErrLeaseLost) {
		t.Errorf("the evicted one's Unlock: %v", err)
	}
}

// outcome is what a command came to.
type outcome struct {
	t         *testing.T
	args      []string
	status    int
	out, errs string
}

// call runs the command in this process.
func call(t *testing.T, s *testbed.Server, args ...string) outcome {
	t.Helper()
	if s != nil {
		args = append([]string{"--url", "redis://" + s.Addr()}, args...)
	}
	return callWith(t, strings.NewReader(""), args...)
}

func callWith(t *testing.T, input io.Reader, args ...string) outcome {
	t.Helper()
	var out, errs bytes.Buffer
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	status := execute(ctx, args, streams{input, &out, &errs})
	return outcome{t, args, status, out.String(), errs.String()}
}

// ends fails unless the command has that status, and all parts on its output.
func (o outcome) ends(status int, parts ...string) outcome {
	o.t.Helper()
	if o.status != status {
		o.t.Errorf("%q: status %d, not %d:\n%s%s", o.args, o.status, status, o.out, o.errs)
	}
	need(o.t, o.out, parts...)
	return o
}

// fails is the same of a command that prints nothing but errors, which have all parts.
func (o outcome) fails(status int, parts ...string) {
	o.t.Helper()
	if o.ends(status); o.out != "" {
		o.t.Errorf("%q prints:\n%s", o.args, o.out)
	}
	need(o.t, o.errs, parts...)
}

// warns fails unless the errors have all parts; without any, unless there are none.
func (o outcome) warns(parts ...string) {
	o.t.Helper()
	if len(parts) == 0 && o.errs != "" {
		o.t.Errorf("%q: %s", o.args, o.errs)
	}
	need(o.t, o.errs, parts...)
}

// rows are the lines that a command printed, after the first, with single spaces.
func (o outcome) rows() []string {
	o.t.Helper()
	o.ends(exitOK)
	rows := strings.Split(strings.TrimSpace(o.out), "\n")[1:]
	for i, row := range rows {
		rows[i] = strings.Join(strings.Fields(row), " ")
	}
	return rows
}

// decoded is what a text of JSON says.
func decoded[T any](t *testing.T, text string) (v T) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Errorf("%v: %s", err, text)
	}
	return v
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
	testbed.Must(t, err)
	c.in = in
	testbed.Must(t, c.cmd.Start())
	c.follow()
	return c
}

// follow waits for the end of the process, which comes with that of the test.
func (c *command) follow() {
	go func() { // ends with the process
		_ = c.cmd.Wait()
		close(c.ended)
	}()
	c.t.Cleanup(func() {
		_ = c.cmd.Process.Kill()
		<-c.ended
	})
}

// says waits until the program has written a text.
func (c *command) says(text string) string {
	c.t.Helper()
	until(c.t, "the command says "+text, func() bool { return strings.Contains(c.text(), text) }, c.text)
	return c.text()
}

func (c *command) signal(s os.Signal) {
	c.t.Helper()
	testbed.Must(c.t, c.cmd.Process.Signal(s))
}

// ends waits for the end, and fails unless the program has that status, and has written all parts.
func (c *command) ends(status int, parts ...string) {
	c.t.Helper()
	select {
	case <-c.ended:
	case <-time.After(patience):
		c.t.Fatalf("the command does not end:\n%s", c.text())
	}
	if got := c.cmd.ProcessState.ExitCode(); got != status {
		c.t.Errorf("status %d, not %d:\n%s", got, status, c.text())
	}
	need(c.t, c.text(), parts...)
}

// until waits for a state that nobody announces.
func until(t *testing.T, what string, ok func() bool, state ...func() string) {
	t.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			for _, f := range state {
				what += "; it is:\n" + f()
			}
			t.Fatalf("not after %v: %s", patience, what)
		}
	}
}

// inspect looks at a lock.
func inspect(t *testing.T, c *redlatch.Client, name string) redlatch.Inspection {
	t.Helper()
	in, err := c.Inspect(t.Context(), name)
	testbed.Must(t, err)
	return in
}

// isHeld fails unless a lock is held, or not.
func isHeld(t *testing.T, c *redlatch.Client, name string, want bool) {
	t.Helper()
	if in := inspect(t, c, name); in.Held() != want {
		t.Errorf("%s is held: %t: %+v", name, !want, in)
	}
}

// untilQueued waits until so many wait in a lock's queue.
func untilQueued(t *testing.T, c *redlatch.Client, name string, n int) {
	t.Helper()
	untilState(t, c, name, func(in redlatch.Inspection) bool { return in.QueueLength == n })
}

// untilState waits for a state of a lock.
func untilState(t *testing.T, c *redlatch.Client, name string, ok func(redlatch.Inspection) bool) redlatch.Inspection {
	t.Helper()
	var in redlatch.Inspection
	until(t, "the state of "+name, func() bool {
		var err error
		in, err = c.Inspect(t.Context(), name)
		return err == nil && ok(in) || errors.Is(err, context.Canceled)
	}, func() string { return fmt.Sprintf("%+v", in) })
	return in
}

// hasAll reports whether a text has all parts.
func hasAll(text string, parts []string) bool {
	return !slices.ContainsFunc(parts, func(p string) bool { return !strings.Contains(text, p) })
}

// lacks fails when a text has one of the parts.
func lacks(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, p := range parts {
		if strings.Contains(text, p) {
			t.Errorf("%q is in:\n%s", p, text)
		}
	}
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
