package main

import (
	"context"
	"net"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/redlatch/redlatch/internal/testbed"
)

// TestAServerThatEndsIsToldWithItsWords, at once and not when the time to start is over, and nothing of it is left.
func TestAServerThatEndsIsToldWithItsWords(t *testing.T) {
	leavesNothing(t)
	f := &foreign{name: "broken", command: func(context.Context, string, string, int, int) (*exec.Cmd, error) {
		return exec.Command("sh", "-c", "echo the disk is full; exit 1"), nil
	}}
	_, err := f.start(t.Context(), "")
	if err == nil || !strings.Contains(err.Error(), "the disk is full") {
		t.Errorf("it was told as: %v", err)
	}
}

// leavesNothing fails if there are temporary files at the end of a test that starts programs of Unix.
func leavesNothing(t *testing.T) {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("there are no such programs")
	}
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	t.Cleanup(func() {
		if left, err := filepath.Glob(filepath.Join(dir, "*")); err != nil || len(left) > 0 {
			t.Errorf("left behind: %v, %v", left, err)
		}
	})
}

// TestAForeignServerIsStartedOnce for a run, each measurement has a key of its own, and stop ends it.
func TestAForeignServerIsStartedOnce(t *testing.T) {
	leavesNothing(t)
	b, err := newBench()
	testbed.Must(t, err)
	starts := 0
	f := &foreign{name: "calm", answer: "here", command: func(_ context.Context, _, _ string, port, _ int) (*exec.Cmd, error) {
		starts++
		answering(t, port, "here")
		return exec.Command("sleep", "60"), nil
	}}
	keys := map[string]bool{}
	for range 3 {
		at, err := b.place(t.Context(), row{}, entry{server: f})
		testbed.Must(t, err)
		keys[at.key] = true
		if u, err := at.usage(t.Context()); err != nil || u.calls != nil {
			t.Errorf("usage %+v, %v: it counts no commands", u, err)
		}
		at.close()
	}
	if starts != 1 || len(keys) != 3 {
		t.Errorf("%d starts, keys %v", starts, keys)
	}
	testbed.Must(t, b.stop())
}

// answering says one text to whoever connects, for as long as the test lasts.
func answering(t *testing.T, port int, text string) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	testbed.Must(t, err)
	t.Cleanup(func() { _ = l.Close() })
	go func() { // ends with the listener
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = conn.Write([]byte(text))
			_ = conn.Close()
		}
	}()
	return l.Addr().String()
}

// TestSays: a server is ready when its answer holds the text, not when it only answers.
func TestSays(t *testing.T) {
	addr := answering(t, 0, "version 3, starting")
	testbed.Must(t, says(t.Context(), addr, "", "version 3"))
	if err := says(t.Context(), addr, "", "serving"); err == nil || !strings.Contains(err.Error(), "starting") {
		t.Errorf("what it said instead is not told: %v", err)
	}
}

// TestWhatIsNotThereIsMissed: nobody takes a run without a system for one in which it was measured.
func TestWhatIsNotThereIsMissed(t *testing.T) {
	for _, e := range systems {
		if p, err := e.runsBy(t.TempDir()); err == nil {
			t.Errorf("%s was found in an empty folder: %v", e.name, p)
		}
	}
}

// TestAgainstNeedsACheckout: any other folder is refused before something is built.
func TestAgainstNeedsACheckout(t *testing.T) {
	if _, err := buildAgainst(t.Context(), t.TempDir(), t.TempDir()); err == nil || !strings.Contains(err.Error(), "no checkout") {
		t.Errorf("an empty folder: %v", err)
	}
}

// TestAgainstMeasuresBothBuilds, here of one and the same source.
func TestAgainstMeasuresBothBuilds(t *testing.T) {
	if testing.Short() {
		t.Skip("it builds the program")
	}
	b := quick(t)
	var err error
	if b.take.against, err = buildAgainst(t.Context(), "..", t.TempDir()); err != nil {
		t.Fatal(err)
	}
	b.take.alone = true
	seen, failed := b.measured(t, uncontended(1))
	for _, name := range []string{"redlatch/build=before", "redlatch/build=now"} {
		if seen[name].n == 0 {
			t.Errorf("%s was not measured: %v", name, failed)
		}
	}
}
