package testbed

import (
	"cmp"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"
)

// patience bounds every wait for something that a healthy machine does within
// a second or two. It ends a test that would hang; no test measures with it. A sentinel
// that did not get to run for two seconds does nothing for 30 (TILT).
const patience = 75 * time.Second

// poll is the pause between two looks at a state that nobody announces.
const poll = 5 * time.Millisecond

// TB is the part of testing.TB that the test bed needs. *testing.T and
// *testing.B satisfy it, and so does [Program].
type TB interface {
	Helper()
	Cleanup(func())
	Failed() bool
	Logf(format string, args ...any)
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// Program is a [TB] for programs that are no tests: what fails is written to
// standard error, Fatalf cleans up and ends the process with status 1.
// It is safe for concurrent use.
type Program struct {
	mu       sync.Mutex
	cleanups []func() // guarded by mu
	failed   bool     // guarded by mu
}

// Helper does nothing.
func (p *Program) Helper() {}

// Cleanup registers f to be called by Close, last registered first.
func (p *Program) Cleanup(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cleanups = append(p.cleanups, f)
}

// Failed reports whether Errorf was called.
func (p *Program) Failed() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.failed
}

// Logf writes a line to standard error.
func (p *Program) Logf(format string, args ...any) {
	fmt.Fprintf(os.Stderr, format+"\n", args...)
}

// Errorf writes a line to standard error and marks the program as failed.
func (p *Program) Errorf(format string, args ...any) {
	p.mu.Lock()
	p.failed = true
	p.mu.Unlock()
	p.Logf(format, args...)
}

// Fatalf writes a line to standard error, cleans up and exits with status 1.
func (p *Program) Fatalf(format string, args ...any) {
	p.Errorf(format, args...)
	p.Close()
	os.Exit(1)
}

// Close runs what Cleanup registered. It may be called again.
func (p *Program) Close() {
	for {
		p.mu.Lock()
		last := len(p.cleanups) - 1
		if last < 0 {
			p.mu.Unlock()
			return
		}
		f := p.cleanups[last]
		p.cleanups = p.cleanups[:last]
		p.mu.Unlock()
		f()
	}
}

// Equal fails the test unless got is what is wanted. What it is about may be said.
func Equal[T comparable](tb TB, got, want T, about ...any) {
	tb.Helper()
	if got != want {
		tb.Errorf("%s: %#v, not %#v", strings.TrimSuffix(fmt.Sprintln(about...), "\n"), got, want)
	}
}

// AtMost fails the test if got is more than that. What it is about may be said.
func AtMost[T cmp.Ordered](tb TB, got, most T, about ...any) {
	tb.Helper()
	if got > most {
		tb.Errorf("%s: %v, more than %v", strings.TrimSuffix(fmt.Sprintln(about...), "\n"), got, most)
	}
}

// AtLeast fails the test if got is less than that. What it is about may be said.
func AtLeast[T cmp.Ordered](tb TB, got, least T, about ...any) {
	tb.Helper()
	if got < least {
		tb.Errorf("%s: %v, less than %v", strings.TrimSuffix(fmt.Sprintln(about...), "\n"), got, least)
	}
}

// Between fails the test unless got is one of the two, or between them. What it is about may be said.
func Between[T cmp.Ordered](tb TB, got, least, most T, about ...any) {
	tb.Helper()
	if got < least || got > most {
		tb.Errorf("%s: %v, not from %v to %v", strings.TrimSuffix(fmt.Sprintln(about...), "\n"), got, least, most)
	}
}

// Must ends the test after an error.
func Must(tb TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatalf("%v", err)
	}
}

// eventually calls cond until it returns nil, and ends the test with its last
// error when patience has run out.
func eventually(tb TB, what string, cond func() error) {
	tb.Helper()
	if err := until(time.Now().Add(patience), cond); err != nil {
		tb.Fatalf("testbed: %s: %v", what, err)
	}
}

func until(deadline time.Time, cond func() error) error {
	for {
		late := time.Now().After(deadline) // before: what a server says that stood still meanwhile is old
		err := cond()
		if err == nil || late {
			return err
		}
		time.Sleep(poll)
	}
}
