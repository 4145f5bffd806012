package testbed

import (
	"errors"
	"fmt"
	"net"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// recorder is a TB whose failures are looked at instead of reported.
type recorder struct {
	Program
	failures []string
}

func (r *recorder) Errorf(format string, args ...any) {
	r.failures = append(r.failures, fmt.Sprintf(format, args...))
}

func (r *recorder) Logf(string, ...any) {}

func TestServerListensOnLoopbackOnlyAndSavesNothing(t *testing.T) {
	s := Standalone(t)
	for setting, want := range map[string]string{"bind": "127.0.0.1", "save": "", "appendonly": "no"} {
		Equal(t, s.Hash(t, "CONFIG", "GET", setting)[setting], want, setting)
	}
}

func TestFailedStartShowsTheServersWords(t *testing.T) {
	s, err := Start(t.Context(), "--no-such-setting", "1")
	if err == nil {
		_ = s.Stop()
		t.Fatal("started with a bad setting")
	}
	if !strings.Contains(err.Error(), "no-such-setting") {
		t.Errorf("the error hides what the server said: %v", err)
	}
}

func TestStartTriesAnotherPortWhenItsOwnWasTaken(t *testing.T) {
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	Must(t, err)
	defer func() { _ = busy.Close() }()
	taken := fmt.Sprint(busy.Addr().(*net.TCPAddr).Port)
	tries := 0
	// The second --port wins: the first try meets a port in use.
	program, err := Find()
	Must(t, err)
	s, err := start(t.Context(), program, nil, func(int) []string {
		if tries++; tries == 1 {
			return []string{"--port", taken}
		}
		return nil
	}, "")
	Must(t, err)
	defer func() { _ = s.Stop() }()
	Equal(t, tries, 2, "tries")
}

func TestMissingServerProgramIsSaid(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	for program, want := range map[string]error{"": ErrNoServer, "no-such-program": exec.ErrNotFound} {
		t.Setenv("REDLATCH_TEST_SERVER", program)
		if _, err := Start(t.Context()); !errors.Is(err, want) {
			t.Errorf("%q: got %v, want %v", program, err, want)
		}
	}
}

func TestFrozenServerCanBeStopped(t *testing.T) {
	s := Standalone(t)
	s.Freeze(t)
	begin := time.Now()
	Must(t, s.Stop())
	AtMost(t, time.Since(begin), 4*time.Second, "it was not thawed, but killed after the grace: it took")
}

func TestServerThatDiesByItselfFailsTheTest(t *testing.T) {
	for want, kill := range map[string]func(s *Server) error{
		"died by itself": func(s *Server) error { return s.process().proc.Kill() },
		"":               func(s *Server) error { s.Kill(t); return nil }, // on purpose
	} {
		var r recorder
		s := Standalone(&r)
		Must(t, kill(s))
		<-s.process().done
		r.Close()
		if got := strings.Join(r.failures, "; "); len(r.failures) > 1 || (got == "") != (want == "") || !strings.Contains(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
