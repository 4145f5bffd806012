package clock

import (
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/redlatch/redlatch/internal/testbed"
)

// server is one whose wall clock the test sets.
type server struct {
	*testbed.Server

	file *os.File
}

// library builds what gives a server a clock of its own, once for all servers of a
// test. It needs a C compiler, as the race detector does, and the dynamic linker of
// Linux.
func library(t *testing.T) string {
	t.Helper()
	if runtime.GOOS != "linux" {
		testbed.Skip(t, "steps of the server's clock (only on Linux)")
	}
	cc, err := exec.LookPath("cc")
	if err != nil {
		testbed.Skip(t, "steps of the server's clock (no C compiler cc on PATH)")
	}
	lib := filepath.Join(t.TempDir(), "clock.so")
	if out, err := exec.Command(cc, "-O1", "-shared", "-fPIC", "-o", lib, filepath.Join("testdata", "clock.c")).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return lib
}

// start starts a server with a clock of its own, which the library makes.
func start(t *testing.T, lib string) *server {
	t.Helper()
	file, err := os.Create(filepath.Join(t.TempDir(), "offset"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = file.Close() }) // the server has its own view of it
	s := &server{file: file}
	s.put(t, 0)
	s.Server = testbed.StandaloneEnv(t, []string{"LD_PRELOAD=" + lib, "REDLATCH_CLOCK=" + file.Name()})
	testbed.LeakCheck(t, s.Server, testbed.AllowKeys("redisson_lock_token:", "redlatch_void:"))
	return s
}

func (s *server) put(t *testing.T, ahead time.Duration) {
	t.Helper()
	if _, err := s.file.WriteAt(binary.NativeEndian.AppendUint64(nil, uint64(ahead/time.Second)), 0); err != nil { // #nosec G115 -- two's complement
		t.Fatal(err)
	}
}

// step sets the server's clock to so far ahead of this machine's.
func (s *server) step(t *testing.T, ahead time.Duration) {
	t.Helper()
	s.put(t, ahead)
	sec, err := strconv.ParseInt(s.List(t, "TIME")[0], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	if got := time.Until(time.Unix(sec, 0)); got < ahead-5*time.Second || got > ahead+5*time.Second {
		t.Fatalf("the server's clock is %v ahead, want %v", got, ahead)
	}
}
