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
	tells(t, err, "the disk is full")
}

// tells fails unless an error says so.
func tells(t *testing.T, err error, text string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), text) {
		t.Errorf("error %v, which does not say %q", err, text)
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
	testbed.Equal(t, starts, 1, "starts")
	testbed.Equal(t, len(keys), 3, "keys")
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
	tells(t, says(t.Context(), addr, "", "serving"), "starting") // what it said instead
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
	_, err := buildAgainst(t.Context(), t.TempDir(), t.TempDir())
	tells(t, err, "no checkout")
}

// TestAgainstMeasuresBothBuilds, here of one and the same source.
func TestAgainstMeasuresBothBuilds(t *testing.T) {
	if testing.Short() {
		t.Skip("it builds the program")
	}
	b := quick(t)
	var err error
	b.take.against, err = buildAgainst(t.Context(), "..", t.TempDir())
	testbed.Must(t, err)
	b.take.alone = true
	seen, failed := b.measured(t, uncontended(1))
	for _, name := range []string{"redlatch/build=before", "redlatch/build=now"} {
		testbed.AtLeast(t, seen[name].n, 1, "acquisitions of", name, "failed:", failed)
	}
}
