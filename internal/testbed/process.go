package testbed

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"
)

// maxLine bounds one line of the conversation with a process.
const maxLine = 1 << 20

// Process is a process that [Spawn] or [Run] started, spoken to by lines on
// its standard input and output. It is safe for concurrent use.
type Process struct {
	name  string
	child *child
	input io.WriteCloser
	lines chan string

	mu     sync.Mutex
	stderr bytes.Buffer // guarded by mu
}

// Spawn runs a role of this program (see [Role]) in a new process, with args
// encoded as JSON. The process is killed when the test ends and, on Linux,
// when this process dies.
func Spawn(tb TB, role string, args any) *Process {
	tb.Helper()
	encoded, err := json.Marshal(args)
	if err != nil {
		tb.Fatalf("testbed: arguments of %s: %v", role, err)
	}
	program, err := os.Executable()
	if err != nil {
		tb.Fatalf("testbed: %v", err)
	}
	cmd := exec.Command(program)
	cmd.Env = append(os.Environ(), roleVariable+"="+role, argsVariable+"="+string(encoded))
	return Run(tb, role, cmd)
}

// Run starts any program as a [Process]; name is used in messages. It takes
// over the command's standard streams.
func Run(tb TB, name string, cmd *exec.Cmd) *Process {
	tb.Helper()
	p := &Process{name: name, lines: make(chan string, 1024)}
	input, err := cmd.StdinPipe()
	if err != nil {
		tb.Fatalf("testbed: %s: %v", name, err)
	}
	p.input = input
	// Pipes of our own: those of exec.Cmd are closed by Wait, which would lose
	// what the process said last.
	output, outputEnd, err := os.Pipe()
	if err != nil {
		tb.Fatalf("testbed: %s: %v", name, err)
	}
	cmd.Stdout, cmd.Stderr = outputEnd, (*errorLog)(p)
	p.child, err = startChild(cmd)
	_ = outputEnd.Close() // The child has its own descriptor.
	if err != nil {
		_ = output.Close()
		tb.Fatalf("testbed: start %s: %v", name, err)
	}
	drained := make(chan struct{})
	go func() { // ends when the process, and whoever inherited its output, has ended
		defer close(drained)
		defer close(p.lines)
		defer func() { _ = output.Close() }() // Only read from.
		scanner := bufio.NewScanner(output)
		scanner.Buffer(nil, maxLine)
		for scanner.Scan() {
			p.lines <- scanner.Text()
		}
	}()
	tb.Cleanup(func() {
		p.child.kill()
		for range p.lines { // the reader may wait for room
		}
		<-drained
		if text := p.Stderr(); tb.Failed() && text != "" {
			tb.Logf("%s (process %d) wrote:\n%s", name, p.child.pid, text)
		}
	})
	return p
}

// errorLog collects what a process writes to standard error.
type errorLog Process

func (l *errorLog) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.stderr.Write(b)
}

// Pid returns the process id.
func (p *Process) Pid() int { return p.child.pid }

// Stderr returns what the process has written to standard error so far.
func (p *Process) Stderr() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stderr.String()
}

// Send writes a line to the process's standard input.
func (p *Process) Send(tb TB, format string, args ...any) {
	tb.Helper()
	if _, err := fmt.Fprintf(p.input, format+"\n", args...); err != nil {
		tb.Fatalf("testbed: %s (process %d): %v\n%s", p.name, p.Pid(), err, p.Stderr())
	}
}

// CloseInput ends the process's standard input: a worker's ctx ends.
func (p *Process) CloseInput(tb TB) {
	tb.Helper()
	if err := p.input.Close(); err != nil {
		tb.Fatalf("testbed: %s (process %d): %v", p.name, p.Pid(), err)
	}
}

// Lines returns the channel of the lines that the process prints. It is closed
// when the process has ended and all its lines are read. Up to 1,024 unread
// lines are kept; then the process waits.
func (p *Process) Lines() <-chan string { return p.lines }

// Line returns the next line that the process prints. The test ends when the
// process ends first, or none comes within half a minute.
func (p *Process) Line(tb TB) string {
	tb.Helper()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case line, ok := <-p.lines:
		if !ok {
			<-p.child.done
			tb.Fatalf("testbed: %s (process %d) ended (%s) and said nothing more\n%s",
				p.name, p.Pid(), p.child.status(), p.Stderr())
		}
		return line
	case <-timer.C:
		tb.Fatalf("testbed: %s (process %d) says nothing\n%s", p.name, p.Pid(), p.Stderr())
		return ""
	}
}

// Expect reads lines until one begins with prefix and returns the rest of it,
// without the space between. Lines before it are passed over.
func (p *Process) Expect(tb TB, prefix string) string {
	tb.Helper()
	for {
		if rest, ok := strings.CutPrefix(p.Line(tb), prefix); ok {
			return strings.TrimPrefix(rest, " ")
		}
	}
}

// Kill ends the process with SIGKILL and returns once it is gone. Lines that
// it has printed can still be read.
func (p *Process) Kill(tb TB) {
	tb.Helper()
	p.child.kill()
}

// Freeze stops the process with SIGSTOP and returns once it stands still.
func (p *Process) Freeze(tb TB) {
	tb.Helper()
	if err := p.child.freeze(); err != nil {
		tb.Fatalf("testbed: freeze %s (process %d): %v", p.name, p.Pid(), err)
	}
}

// Thaw lets a frozen process go on.
func (p *Process) Thaw(tb TB) {
	tb.Helper()
	if err := thaw(p.child.proc); err != nil {
		tb.Fatalf("testbed: thaw %s (process %d): %v", p.name, p.Pid(), err)
	}
}

// Done returns a channel that is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.child.done }

// Wait returns when the process has ended, with its exit status as an error
// unless that is 0. The test ends when it takes more than ten times as long as
// anything else is waited for here.
func (p *Process) Wait(tb TB) error {
	tb.Helper()
	timer := time.NewTimer(10 * patience)
	defer timer.Stop()
	select {
	case <-p.child.done:
		return p.child.err
	case <-timer.C:
		tb.Fatalf("testbed: %s (process %d) does not end\n%s", p.name, p.Pid(), p.Stderr())
		return nil
	}
}
