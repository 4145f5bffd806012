//go:build unix

package redisson

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/redlatch/redlatch/internal/testbed"
)

// patience bounds each wait for an answer that a healthy machine gives soon. It
// ends a test that would hang; no test measures with it.
const patience = 45 * time.Second

// ErrGone is the answer to commands of a driver that has ended.
var ErrGone = errors.New("redisson: the driver has ended")

// Options say what a driver connects to and how.
type Options struct {
	Addresses []string      // host:port of standalone servers; several make client 0, 1, …
	Cluster   []string      // host:port of some nodes of one cluster (then client 0)
	Watchdog  time.Duration // lockWatchdogTimeout; 0: Redisson's default, 30 s
	FairWait  time.Duration // fairLockWaitTimeout; 0: Redisson's default, 5 min
	SkipAfter time.Duration // of fair locks, for a Go driver only; 0: its default, 5 s
	Sharded   string        // shardedSubscriptionMode on a cluster: AUTO (default), ON, OFF
	Username  string
	Password  string
}

func (o Options) args() []string {
	var args []string
	add := func(name, value string) { args = append(args, name, value) }
	if len(o.Cluster) > 0 {
		add("--cluster", "redis://"+strings.Join(o.Cluster, ",redis://"))
	}
	for _, a := range o.Addresses {
		add("--address", "redis://"+a)
	}
	if o.Watchdog > 0 {
		add("--watchdog", millis(o.Watchdog))
	}
	if o.FairWait > 0 {
		add("--fair-wait", millis(o.FairWait))
	}
	if o.Sharded != "" {
		add("--sharded", o.Sharded)
	}
	if o.Username != "" {
		add("--username", o.Username)
	}
	if o.Password != "" {
		add("--password", o.Password)
	}
	return args
}

// Driver is a running Java process with Redisson in it, or another one that takes
// the same commands. Its methods are safe for concurrent use.
type Driver struct {
	cmd   *exec.Cmd
	ended chan struct{} // closed when the process is gone and all answers are read

	writeMu sync.Mutex
	stdin   io.WriteCloser // writes are guarded by writeMu

	mu     sync.Mutex
	lastID int              // guarded by mu
	calls  map[string]*Call // guarded by mu: unanswered, by id
	gone   bool             // guarded by mu
	stderr bytes.Buffer     // guarded by mu
}

// Start builds the driver if need be and starts it. It returns when Redisson has
// connected. The process ends with the test, or with this process: its standard
// input closes then.
func Start(tb testbed.TB, v Version, o Options) *Driver {
	tb.Helper()
	classpath, err := Build(v)
	if err != nil {
		tb.Fatalf("%v", err)
	}
	args := []string{
		// Quick to start and small: a test runs several of them on few cores.
		"-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto", "-Xmx256m",
		"-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
		"-cp", classpath, "redlatch.interop.Driver",
	}
	// No ctx: the process ends by Kill, by Quit or with its standard input.
	d, hello := Run(tb, exec.CommandContext(context.Background(), "java", append(args, o.args()...)...))
	if hello != string(v) {
		tb.Fatalf("redisson: the driver runs Redisson %s, not %s", hello, v)
	}
	return d
}

// Run starts any program that speaks the driver's protocol, takes over its
// standard streams, and returns with what it says when it is ready. The process
// ends with the test, or with this process: its standard input closes then.
func Run(tb testbed.TB, cmd *exec.Cmd) (d *Driver, hello string) {
	tb.Helper()
	d = &Driver{cmd: cmd, ended: make(chan struct{}), calls: map[string]*Call{}}
	d.cmd.Stderr = (*driverStderr)(d)
	var err error
	if d.stdin, err = d.cmd.StdinPipe(); err != nil {
		tb.Fatalf("redisson: %v", err)
	}
	// A pipe of our own: Wait would close the one of StdoutPipe under the reader.
	stdout, w, err := os.Pipe()
	if err != nil {
		tb.Fatalf("redisson: %v", err)
	}
	d.cmd.Stdout = w
	ready := d.expect("0")
	err = d.cmd.Start()
	_ = w.Close()
	if err != nil {
		_ = stdout.Close()
		tb.Fatalf("redisson: start the driver: %v", err)
	}
	// Owned by the driver; ends when the process has closed its standard output.
	go d.read(stdout)
	tb.Cleanup(func() {
		d.stop()
		if tb.Failed() {
			tb.Logf("redisson: standard error of %s:\n%s", d.cmd.Path, d.Stderr())
		}
	})
	return d, ready.Wait(tb).Value
}

// driverStderr keeps what the process writes to standard error.
type driverStderr Driver

func (s *driverStderr) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stderr.Write(p)
}

// Stderr is what the process has written to standard error: Redisson's warnings.
func (d *Driver) Stderr() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.stderr.String()
}

func (d *Driver) read(stdout io.ReadCloser) {
	lines := bufio.NewScanner(stdout)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		id, rest, _ := strings.Cut(lines.Text(), " ")
		d.mu.Lock()
		call := d.calls[id]
		delete(d.calls, id)
		d.mu.Unlock()
		if call != nil {
			call.finish(parseAnswer(rest))
		}
	}
	_ = stdout.Close()
	_ = d.cmd.Wait()
	d.mu.Lock()
	d.gone = true
	left := d.calls
	d.calls = nil
	d.mu.Unlock()
	for _, call := range left {
		call.finish(Answer{}, ErrGone)
	}
	close(d.ended)
}

// stop lets the process end as it does when its parent dies, and kills it when it
// does not.
func (d *Driver) stop() {
	_ = d.cmd.Process.Signal(syscall.SIGCONT)
	d.writeMu.Lock()
	_ = d.stdin.Close()
	d.writeMu.Unlock()
	select {
	case <-d.ended:
	case <-time.After(5 * time.Second):
		_ = d.cmd.Process.Kill()
		<-d.ended
	}
}

// Kill ends the process with SIGKILL and returns when it is gone. Locks that it
// holds stay to their lease.
func (d *Driver) Kill(tb testbed.TB) {
	tb.Helper()
	if err := d.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		tb.Fatalf("redisson: kill the driver: %v", err)
	}
	<-d.ended
}

// Freeze stops the process with SIGSTOP; Thaw lets it go on.
func (d *Driver) Freeze(tb testbed.TB) { tb.Helper(); d.signal(tb, syscall.SIGSTOP) }

// Thaw lets a frozen process go on.
func (d *Driver) Thaw(tb testbed.TB) { tb.Helper(); d.signal(tb, syscall.SIGCONT) }

func (d *Driver) signal(tb testbed.TB, sig syscall.Signal) {
	tb.Helper()
	if err := d.cmd.Process.Signal(sig); err != nil {
		tb.Fatalf("redisson: signal %v: %v", sig, err)
	}
}

// Quit shuts Redisson down in good order (locks that are held stay to their lease)
// and returns when the process is gone.
func (d *Driver) Quit(tb testbed.TB) {
	tb.Helper()
	d.Go("quit").Wait(tb)
	<-d.ended
}

// Halt ends the loops of all owners, each after its present round.
func (d *Driver) Halt(tb testbed.TB) { tb.Helper(); d.Go("halt").Wait(tb) }

// Asleep reports whether every owner of a Java process waits for a message, or for its next
// command.
func (d *Driver) Asleep(tb testbed.TB) bool {
	tb.Helper()
	return d.Go("asleep").Wait(tb).Value == "true"
}

// Go sends a command and does not wait for its answer.
func (d *Driver) Go(fields ...string) *Call {
	d.mu.Lock()
	d.lastID++
	id := strconv.Itoa(d.lastID)
	d.mu.Unlock()
	call := d.expect(id)
	d.writeMu.Lock()
	// An error here means that the process has ended: read answers the call.
	_, _ = io.WriteString(d.stdin, id+" "+strings.Join(fields, " ")+"\n")
	d.writeMu.Unlock()
	return call
}

func (d *Driver) expect(id string) *Call {
	call := &Call{done: make(chan struct{})}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.gone {
		call.finish(Answer{}, ErrGone)
		return call
	}
	d.calls[id] = call
	return call
}

// Answer is what the driver said to a command.
type Answer struct {
	Value string        // "-" for none
	At    time.Time     // the instant in the Java process when the command ended
	Took  time.Duration // how long it ran there
}

// Error is a Java exception that ended a command.
type Error struct {
	Exception string // simple class name
	Message   string
}

func (e *Error) Error() string { return e.Exception + ": " + e.Message }

// Call is a command on its way.
type Call struct {
	done   chan struct{}
	answer Answer // valid once done is closed
	err    error  // valid once done is closed
}

func (c *Call) finish(a Answer, err error) {
	c.answer, c.err = a, err
	close(c.done)
}

// Done is closed when the answer has come.
func (c *Call) Done() <-chan struct{} { return c.done }

// Pending reports whether the answer has not come yet.
func (c *Call) Pending() bool {
	select {
	case <-c.done:
		return false
	default:
		return true
	}
}

// Result waits for the answer; the error is an *[Error] or [ErrGone].
func (c *Call) Result() (Answer, error) {
	<-c.done
	return c.answer, c.err
}

// Wait waits for the answer and ends the test when it is an error or does not come.
func (c *Call) Wait(tb testbed.TB) Answer {
	tb.Helper()
	select {
	case <-c.done:
	case <-time.After(patience):
		tb.Fatalf("redisson: no answer within %v", patience)
	}
	if c.err != nil {
		tb.Fatalf("redisson: %v", c.err)
	}
	return c.answer
}

// parseAnswer reads "ok value epoch_us took_us" and "err name message".
func parseAnswer(line string) (Answer, error) {
	f := strings.Split(line, " ")
	switch {
	case len(f) == 4 && f[0] == "ok":
		at, err1 := strconv.ParseInt(f[2], 10, 64)
		took, err2 := strconv.ParseInt(f[3], 10, 64)
		if err := errors.Join(err1, err2); err != nil {
			return Answer{}, fmt.Errorf("redisson: answer %q: %w", line, err)
		}
		return Answer{Value: f[1], At: time.UnixMicro(at), Took: time.Duration(took) * time.Microsecond}, nil
	case len(f) >= 2 && f[0] == "err":
		text, err := url.PathUnescape(strings.Join(f[2:], " "))
		if err != nil {
			return Answer{}, fmt.Errorf("redisson: answer %q: %w", line, err)
		}
		return Answer{}, &Error{Exception: f[1], Message: text}
	}
	return Answer{}, fmt.Errorf("redisson: answer %q is none", line)
}

// millis writes a duration for the protocol: negative values are -1, and what is
// shorter than a millisecond is one, because 0 means something else there.
func millis(d time.Duration) string {
	switch {
	case d < 0:
		return "-1"
	case d > 0 && d < time.Millisecond:
		return "1"
	}
	return strconv.FormatInt(d.Milliseconds(), 10)
}
