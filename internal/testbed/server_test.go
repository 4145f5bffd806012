package testbed

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
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

func TestServerAnswersAndIsGoneAfterStop(t *testing.T) {
	s, err := Start(t.Context(), "--maxmemory", "77mb")
	if err != nil {
		t.Fatal(err)
	}
	if got := s.Hash(t, "CONFIG", "GET", "maxmemory")["maxmemory"]; got != "80740352" {
		t.Errorf("maxmemory = %s: the argument was not used", got)
	}
	if got := s.Info(t, "server")["process_id"]; got != fmt.Sprint(s.Pid()) {
		t.Errorf("process %s answers, Pid is %d", got, s.Pid())
	}
	if err := s.Stop(); err != nil {
		t.Fatal(err)
	}
	if conn, err := net.Dial("tcp", s.Addr()); err == nil {
		_ = conn.Close()
		t.Error("somebody still listens after Stop")
	}
	if _, err := os.Stat(s.dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the folder is still there: %v", err)
	}
	if err := s.Stop(); err != nil {
		t.Errorf("second Stop: %v", err)
	}
}

func TestServerListensOnLoopbackOnly(t *testing.T) {
	s := Standalone(t)
	if got := s.Hash(t, "CONFIG", "GET", "bind")["bind"]; got != "127.0.0.1" {
		t.Errorf("bind = %q", got)
	}
	if got := s.Hash(t, "CONFIG", "GET", "save")["save"]; got != "" {
		t.Errorf("save = %q", got)
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
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = busy.Close() }()
	taken := fmt.Sprint(busy.Addr().(*net.TCPAddr).Port)
	tries := 0
	// The second --port wins: the first try meets a port in use.
	program, err := Find()
	if err != nil {
		t.Fatal(err)
	}
	s, err := start(t.Context(), program, nil, func(int) []string {
		if tries++; tries == 1 {
			return []string{"--port", taken}
		}
		return nil
	}, "")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Stop() }()
	if tries != 2 {
		t.Errorf("%d tries, want 2", tries)
	}
}

func TestMissingServerProgramIsSaid(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	t.Setenv("REDLATCH_TEST_SERVER", "")
	if _, err := Start(t.Context()); !errors.Is(err, ErrNoServer) {
		t.Errorf("got %v, want ErrNoServer", err)
	}
	t.Setenv("REDLATCH_TEST_SERVER", "no-such-program")
	if _, err := Start(t.Context()); !errors.Is(err, exec.ErrNotFound) {
		t.Errorf("got %v, want exec.ErrNotFound", err)
	}
}

func TestFrozenServerDoesNotAnswerUntilThawed(t *testing.T) {
	s := Standalone(t)
	client, err := s.Client()
	if err != nil {
		t.Fatal(err)
	}
	s.Freeze(t)
	answered := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		answered <- client.Do(ctx, client.B().Ping().Build()).Error()
	}()
	select {
	case err := <-answered:
		t.Fatalf("a frozen server answered: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	s.Thaw(t)
	if err := <-answered; err != nil {
		t.Fatal(err)
	}
}

func TestFrozenServerCanBeStopped(t *testing.T) {
	s := Standalone(t)
	s.Freeze(t)
	begin := time.Now()
	if err := s.Stop(); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(begin); took > 4*time.Second {
		t.Errorf("took %v: it was not thawed but killed after the grace", took)
	}
}

func TestRestart(t *testing.T) {
	s := Standalone(t)
	s.Do(t, "SET", "k", "old")
	port, pid := s.Port(), s.Pid()

	s.Restart(t, Keep)
	if got := s.Text(t, "GET", "k"); got != "old" {
		t.Errorf("after Keep: %q", got)
	}
	if s.Port() != port || s.Pid() == pid {
		t.Errorf("port %d -> %d, process %d -> %d", port, s.Port(), pid, s.Pid())
	}
	s.Do(t, "SET", "k", "new")
	s.Restart(t, Stale)
	if got := s.Text(t, "GET", "k"); got != "old" {
		t.Errorf("after Stale: %q", got)
	}
	s.Kill(t)
	if s.Running() {
		t.Error("running after Kill")
	}
	s.Restart(t, Empty)
	if got := s.Int(t, "DBSIZE"); got != 0 {
		t.Errorf("after Empty: %d keys", got)
	}
}

func TestServerThatDiesByItselfFailsTheTest(t *testing.T) {
	var r recorder
	s := Standalone(&r)
	if err := s.process().proc.Kill(); err != nil {
		t.Fatal(err)
	}
	<-s.process().done
	r.Close()
	if len(r.failures) != 1 || !strings.Contains(r.failures[0], "died by itself") {
		t.Errorf("failures: %q", r.failures)
	}

	r = recorder{}
	Standalone(&r).Kill(&r)
	r.Close()
	if len(r.failures) != 0 {
		t.Errorf("killed on purpose, yet: %q", r.failures)
	}
}

func TestCommandStatsCountWhatRan(t *testing.T) {
	s := Standalone(t)
	before := s.CommandStats(t)
	for range 7 {
		s.Do(t, "SET", "k", "v")
	}
	s.Do(t, "EVAL", "redis.call('INCR', KEYS[1]) return 1", "1", "n")
	if _, err := s.Try("EVALSHA", strings.Repeat("0", 40), "0"); err == nil {
		t.Error("a script that nobody loaded ran")
	}
	got := s.CommandStats(t).Sub(before)
	want, failed := map[string]int64{"set": 7, "eval": 1, "incr": 1, "evalsha": 1}, got.Failed["evalsha"]
	if fmt.Sprint(got.Calls) != fmt.Sprint(want) || failed != 1 || got.Failed["eval"] != 0 {
		t.Errorf("calls %v, want %v; %v failed, want one evalsha", got.Calls, want, got.Failed)
	}
	if got.Time["eval"] <= 0 || got.CPU < 0 {
		t.Errorf("time %v, CPU %v", got.Time, got.CPU)
	}
}

func TestMastersAreIndependent(t *testing.T) {
	ids := map[string]bool{}
	for _, s := range Masters(t, 3) {
		ids[s.Info(t, "server")["run_id"]] = true
		if role := s.Info(t, "replication")["role"]; role != "master" {
			t.Errorf("role %s", role)
		}
	}
	if len(ids) != 3 {
		t.Errorf("%d different servers, want 3", len(ids))
	}
}
