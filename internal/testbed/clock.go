package testbed

import (
	_ "embed"
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"time"
)

//go:embed testdata/clock.c
var clockSource []byte

// Clock is the wall clock of a server that was started with its environment.
type Clock struct {
	file  *os.File
	ahead time.Duration
}

// NewClock builds what gives a server a clock of its own; env is for [StandaloneEnv]. It takes the dynamic linker of
// Linux and a C compiler, as the race detector does; without them the test is skipped.
func NewClock(tb TB) (c *Clock, env []string) {
	tb.Helper()
	cc, err := exec.LookPath("cc")
	if runtime.GOOS != "linux" || err != nil {
		Skip(tb, "steps of a server's clock (they take Linux and a C compiler cc)")
	}
	dir, err := os.MkdirTemp("", "redlatch-clock-")
	if err != nil {
		tb.Fatalf("testbed: %v", err)
	}
	tb.Cleanup(func() { _ = os.RemoveAll(dir) })
	source, lib := filepath.Join(dir, "clock.c"), filepath.Join(dir, "clock.so")
	if err := os.WriteFile(source, clockSource, 0o600); err != nil {
		tb.Fatalf("testbed: %v", err)
	}
	if out, err := exec.Command(cc, "-O1", "-shared", "-fPIC", "-o", lib, source).CombinedOutput(); err != nil { // #nosec G204 -- of PATH
		tb.Fatalf("testbed: %v\n%s", err, out)
	}
	file, err := os.Create(filepath.Join(dir, "offset")) // #nosec G304 -- a folder of our own
	if err != nil {
		tb.Fatalf("testbed: %v", err)
	}
	tb.Cleanup(func() { _ = file.Close() }) // the server has its own view of it
	c = &Clock{file: file}
	c.Set(tb, 0)
	return c, []string{"LD_PRELOAD=" + lib, "REDLATCH_CLOCK=" + file.Name()}
}

// Set sets the clock so far ahead of this machine's, in whole seconds.
func (c *Clock) Set(tb TB, ahead time.Duration) {
	tb.Helper()
	c.ahead = ahead
	n := binary.NativeEndian.AppendUint64(nil, uint64(ahead/time.Second)) // #nosec G115 -- two's complement
	if _, err := c.file.WriteAt(n, 0); err != nil {
		tb.Fatalf("testbed: %v", err)
	}
}

// Step sets it on by so much.
func (c *Clock) Step(tb TB, by time.Duration) {
	tb.Helper()
	c.Set(tb, c.ahead+by)
}
