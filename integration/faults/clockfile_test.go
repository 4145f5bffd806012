package faults

import (
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/redlatch/redlatch/internal/testbed"
)

// clockFile moves the wall clock of a server that was started with its environment.
type clockFile struct {
	file  *os.File
	ahead time.Duration
}

// newClock builds the shim of integration/servers/clock and returns what a server needs to be
// started with.
func newClock(t *testing.T) (*clockFile, []string) {
	t.Helper()
	cc, err := exec.LookPath("cc")
	if runtime.GOOS != "linux" || err != nil {
		testbed.Skip(t, "faults of a server's clock (it takes Linux and a C compiler cc)")
	}
	dir := t.TempDir()
	lib := filepath.Join(dir, "clock.so")
	source := filepath.Join("..", "servers", "clock", "testdata", "clock.c")
	if out, err := exec.Command(cc, "-O1", "-shared", "-fPIC", "-o", lib, source).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	file, err := os.Create(filepath.Join(dir, "offset"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = file.Close() }) // the server has its own view of it
	c := &clockFile{file: file}
	c.put(t, 0)
	return c, []string{"LD_PRELOAD=" + lib, "REDLATCH_CLOCK=" + file.Name()}
}

// put sets the clock so far ahead of this machine's, in whole seconds.
func (c *clockFile) put(t *testing.T, ahead time.Duration) {
	t.Helper()
	c.ahead = ahead
	n := binary.NativeEndian.AppendUint64(nil, uint64(ahead/time.Second)) // #nosec G115 -- two's complement
	if _, err := c.file.WriteAt(n, 0); err != nil {
		t.Fatal(err)
	}
}
