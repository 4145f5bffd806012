//go:build unix

package redisson

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redlatch/redlatch/internal/testbed"
)

// patience bounds each wait for an answer that a healthy machine gives soon. It
// ends a test that would hang; no test measures with it.
const patience = 45 * time.Second

// ErrGone is the answer to commands of a driver that has ended.
var ErrGone = errors.New("redisson: the driver has ended")

var errPending = fmt.Errorf("redisson: no answer within %v", patience)

// Options say what a driver connects to and how.
type Options struct {
	Addresses []string      // host:port of standalone servers; several make client 0, 1, …
	Cluster   []string      // host:port of some nodes of one cluster (then client 0)
	Watchdog  time.Duration // lockWatchdogTimeout; 0: Redisson's default, 30 s
	FairWait  time.Duration // fairLockWaitTimeout; 0: Redisson's default, 5 min
	SkipAfter time.Duration // of fair locks, for a Go driver only; 0: its default, 5 s
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
	return args
}

// Driver is a running Java process with Redisson in it, or another one that takes
// the same commands. Its methods are safe for concurrent use.
type Driver struct {
	*testbed.Process

	tb testbed.TB // whose the process is

	mu     sync.Mutex
	lastID int              // guarded by mu
	calls  map[string]*Call // guarded by mu: unanswered, by id; nil once the process is gone
}

// Start builds the driver if need be and starts it. It returns when Redisson has
// connected. Locks that are held when the process ends stay to their lease.
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
	// No ctx: the process ends by Kill, by Quit or with the test.
	cmd := exec.CommandContext(context.Background(), "java", append(args, o.args()...)...)
	return drive(tb, testbed.Run(tb, "Redisson", cmd), string(v))
}

// drive takes over a process that speaks the driver's protocol, and returns with it when it says that it is ready.
func drive(tb testbed.TB, p *testbed.Process, hello string) *Driver {
	tb.Helper()
	d := &Driver{Process: p, tb: tb, calls: map[string]*Call{}}
	ready := d.expect("0")
	go d.read() // until the process is gone, which it is at the end of the test
	if got := ready.Wait(tb).Value; got != hello {
		tb.Fatalf("redisson: the driver runs %s, not %s", got, hello)
	}
	return d
}

func (d *Driver) read() {
	for line := range d.Lines() {
		id, rest, _ := strings.Cut(line, " ")
		d.mu.Lock()
		call := d.calls[id]
		delete(d.calls, id)
		d.mu.Unlock()
		if call != nil {
			call.finish(parseAnswer(rest))
		}
	}
	d.mu.Lock()
	left := d.calls
	d.calls = nil
	d.mu.Unlock()
	for _, call := range left {
		call.finish(Answer{}, ErrGone)
	}
}

// Quit shuts Redisson down in good order and returns when the process is gone.
func (d *Driver) Quit(tb testbed.TB) {
	tb.Helper()
	d.Go("quit").Wait(tb)
	if err := d.Wait(tb); err != nil {
		tb.Errorf("redisson: %v", err)
	}
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
	d.Send(d.tb, "%s %s", id, strings.Join(fields, " "))
	return call
}

func (d *Driver) expect(id string) *Call {
	call := &Call{done: make(chan struct{})}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.calls == nil {
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

// Pending reports whether the answer has not come yet.
func (c *Call) Pending() bool {
	select {
	case <-c.done:
		return false
	default:
		return true
	}
}

// Result waits for the answer; the error is an *[Error], [ErrGone], or says that it does not come.
func (c *Call) Result() (Answer, error) {
	select {
	case <-c.done:
		return c.answer, c.err
	case <-time.After(patience):
		return Answer{}, errPending
	}
}

// Wait waits for the answer and ends the test when it is an error or does not come.
func (c *Call) Wait(tb testbed.TB) Answer {
	tb.Helper()
	a, err := c.Result()
	if err != nil {
		tb.Fatalf("redisson: %v", err)
	}
	return a
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
