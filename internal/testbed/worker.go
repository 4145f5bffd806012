package testbed

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"sync"
)

// The environment of a process that Spawn starts.
const (
	roleVariable = "REDLATCH_ROLE"
	argsVariable = "REDLATCH_ROLE_ARGS"
)

// exitOrphaned is the status of a worker whose parent does not listen any more.
const exitOrphaned = 3

var (
	rolesMu sync.Mutex
	roles   = map[string]func(context.Context, *Worker) error{} // guarded by rolesMu
)

// Role registers what a process started by [Spawn] with this name runs. Call
// it from an init function or before [Main]. ctx ends when the parent closes
// the worker's input or dies. A role that returns an error makes the process
// exit with status 1 and the error on standard error.
func Role(name string, run func(ctx context.Context, w *Worker) error) {
	rolesMu.Lock()
	defer rolesMu.Unlock()
	if _, ok := roles[name]; ok {
		panic("testbed: role " + name + " is registered twice")
	}
	roles[name] = run
}

// Main turns this process into a worker when [Spawn] started it: it runs the
// role and exits. In any other process it returns at once. It is the first
// call of TestMain, or of main in a program:
//
//	func TestMain(m *testing.M) {
//		testbed.Main()
//		goleak.VerifyTestMain(m)
//	}
func Main() {
	name := os.Getenv(roleVariable)
	if name == "" {
		return
	}
	rolesMu.Lock()
	run := roles[name]
	rolesMu.Unlock()
	if run == nil {
		fmt.Fprintf(os.Stderr, "testbed: this program has no role %q\n", name)
		os.Exit(2)
	}
	// A worker that starts servers or processes of its own must not have them
	// take its role.
	args := os.Getenv(argsVariable)
	for _, name := range []string{roleVariable, argsVariable} {
		if err := os.Unsetenv(name); err != nil {
			fmt.Fprintf(os.Stderr, "testbed: %v\n", err)
			os.Exit(2)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	w := &Worker{args: args, lines: make(chan string)}
	go w.read(cancel) // until the input ends; the process exits with it
	if err := run(ctx, w); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// Worker is a role's side of its conversation with the process that spawned
// it. It is safe for concurrent use.
type Worker struct {
	args  string
	lines chan string

	mu sync.Mutex // held while a line is written
}

func (w *Worker) read(closed context.CancelFunc) {
	scanner := bufio.NewScanner(os.Stdin)
	scanner.Buffer(nil, maxLine)
	for scanner.Scan() {
		w.lines <- scanner.Text()
	}
	close(w.lines)
	closed()
}

// Args decodes the arguments given to [Spawn] into v.
func (w *Worker) Args(v any) error {
	if err := json.Unmarshal([]byte(w.args), v); err != nil {
		return fmt.Errorf("testbed: arguments of the role: %w", err)
	}
	return nil
}

// Lines returns the channel of the lines that the parent sends; it is closed
// when the parent closes the input or dies. A role that neither reads it nor
// expects a line still sees the end of its ctx.
func (w *Worker) Lines() <-chan string { return w.lines }

// Say sends a line to the parent; it must hold no line break. When the parent
// is gone the process exits: nobody is left to work for.
func (w *Worker) Say(format string, args ...any) {
	w.mu.Lock()
	_, err := fmt.Printf(format+"\n", args...)
	w.mu.Unlock()
	if err != nil {
		os.Exit(exitOrphaned)
	}
}
