package main

import (
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

// TestAServerThatEndsIsToldWithItsWords, at once and not when the time to start is over, and nothing of it is left.
func TestAServerThatEndsIsToldWithItsWords(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("there is no sh")
	}
	t.Setenv("TMPDIR", t.TempDir())
	f := &foreign{
		name: "broken",
		command: func(context.Context, string, string, int, int) (*exec.Cmd, error) {
			return exec.Command("sh", "-c", "echo the disk is full; exit 1"), nil
		},
		ready: func(context.Context, string) error { return errors.New("not yet") },
	}
	_, err := f.start(t.Context(), "")
	if err == nil || !strings.Contains(err.Error(), "the disk is full") {
		t.Errorf("it was told as: %v", err)
	}
	if left, err := filepath.Glob(filepath.Join(os.TempDir(), "*")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// TestAForeignServerIsStartedOnce for a run, each measurement has a key of its own, and stop ends it.
func TestAForeignServerIsStartedOnce(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("there is no sleep")
	}
	t.Setenv("TMPDIR", t.TempDir())
	starts := 0
	e := entry{name: "calm", server: &foreign{
		name: "calm",
		command: func(context.Context, string, string, int, int) (*exec.Cmd, error) {
			starts++
			return exec.Command("sleep", "60"), nil
		},
		ready: func(context.Context, string) error { return nil },
	}}
	b := &bench{}
	keys := map[string]bool{}
	for range 3 {
		at, err := b.place(t.Context(), row{}, e)
		if err != nil {
			t.Fatal(err)
		}
		keys[at.key] = true
		if u, err := at.usage(t.Context()); err != nil || u.calls != nil {
			t.Errorf("usage %+v, %v: it counts no commands", u, err)
		}
		at.close()
	}
	if starts != 1 || len(keys) != 3 {
		t.Errorf("%d starts, keys %v", starts, keys)
	}
	if err := b.stop(); err != nil {
		t.Error(err)
	}
	if left, err := filepath.Glob(filepath.Join(os.TempDir(), "*")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestCPUOfAProcess(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux tells")
	}
	begin := cpuOf(os.Getpid())
	for start := time.Now(); cpuOf(os.Getpid()) < begin+0.05; {
		if time.Since(start) > 30*time.Second {
			t.Fatal("this process spins and uses no processor")
		}
	}
	if got := cpuOf(1 << 30); got != 0 {
		t.Errorf("a process that is not there has used %v s", got)
	}
}

// TestSays: a server is ready when its answer holds the text, not when it only answers.
func TestSays(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() { // ends with the listener
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = conn.Write([]byte("version 3, starting"))
			_ = conn.Close()
		}
	}()
	if err := says(t.Context(), l.Addr().String(), "", "version 3"); err != nil {
		t.Error(err)
	}
	if err := says(t.Context(), l.Addr().String(), "", "serving"); err == nil || !strings.Contains(err.Error(), "starting") {
		t.Errorf("what it said instead is not told: %v", err)
	}
}

// TestWhatIsNotThereIsNamed: nobody takes a table without a system for one that has been measured.
func TestWhatIsNotThereIsNamed(t *testing.T) {
	for _, e := range systems {
		if e.server != nil && e.server.find(t.TempDir()) == nil {
			t.Errorf("%s was found in an empty folder", e.name)
		}
	}
	if redissonReady(t.TempDir()) == nil {
		t.Error("Redisson was found in an empty folder")
	}
	var out strings.Builder
	notAsked(&out)
	for _, e := range systems {
		if !strings.Contains(out.String(), e.name) {
			t.Errorf("%s is not named in %s", e.name, &out)
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
	other, err := buildAgainst(t.Context(), "..", t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	b := quick(t)
	b.take = selection{against: other, alone: true}
	o := b.measured(t, rowNamed(t, "uncontended/1"))
	for _, name := range []string{"redlatch", "redlatch" + twinMark} {
		if v, ok := o.median(name, throughput); !ok || v <= 0 {
			t.Errorf("%s: %v (failure: %v)", name, v, o.failed[name])
		}
	}
	if l := o.twinLines(); len(l) != 1 || l[0].Value == 0 {
		t.Errorf("the two are compared as %+v", l)
	}
}
