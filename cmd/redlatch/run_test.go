//go:build unix

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/testbed"
)

// The command runs under the lock, with what it needs in its environment; its status
// and its output are run's, and the lock is free afterwards.
func TestRun(t *testing.T) {
	s := server(t)
	c := client(t, s)
	for kind, mode := range map[string]redlatch.Mode{
		"reentrant": redlatch.ModeLock, "fair": redlatch.ModeLock, "read": redlatch.ModeRead, "write": redlatch.ModeWrite,
	} {
		name := "job:" + kind
		p := begin(t, s, "run", name, "--kind", kind, "--client-name", "runner", "--fenced", "--", "sh", "-c",
			`echo "lock=$REDLATCH_LOCK token=$REDLATCH_TOKEN id=$REDLATCH_CLIENT_ID"; read line; echo "got $line"; exit 7`)
		text := p.says("id=")
		// Names are read once a second at most.
		in := untilState(t, c, name, func(in redlatch.Inspection) bool { return len(in.Holders) == 1 && in.Holders[0].Client != "" })
		if in.Mode != mode || len(in.Holders) != 1 || in.Holders[0].Client != "runner" {
			t.Errorf("while it runs: %+v", in)
		} else {
			need(t, text, "lock="+name+" ", "id="+in.Holders[0].ClientID)
		}
		if kind == "reentrant" || kind == "fair" || kind == "write" {
			need(t, text, fmt.Sprintf("token=%d ", in.Token))
		}
		fmt.Fprintln(p.in, "a line")
		if st := p.status(); st != 7 {
			t.Errorf("%s: status %d\n%s", kind, st, p.text())
		}
		need(t, p.text(), "got a line")
		if in := inspect(t, c, name); in.Held() {
			t.Errorf("afterwards: %+v", in)
		}
	}
}

// The command gets no token but its own: one of a run around it is another lock's. --hide-url keeps the server's
// address, and the password in it, from the command.
func TestRunEnvironment(t *testing.T) {
	s := server(t)
	environment := func(args ...string) string {
		cmd := prepare(s, append(append([]string{"run", "x"}, args...), "--", "sh", "-c", `echo "token=${REDLATCH_TOKEN-none} url=${REDIS_URL-none} home=$HOME."`)...)
		cmd.Env = append(cmd.Env, "REDLATCH_TOKEN=41", "HOME=/here")
		p := beginProcess(t, cmd)
		if st := p.status(); st != 0 {
			t.Errorf("status %d: %s", st, p.text())
		}
		return p.text()
	}
	need(t, environment(), "token=none ", "url=redis://"+s.Addr(), "home=/here.")
	need(t, environment("--hide-url"), "url=none ", "home=/here.")
	if text := environment("--fenced"); strings.Contains(text, "token=none") || strings.Contains(text, "token=41 ") {
		t.Error(text)
	}
}

func TestRunBusy(t *testing.T) {
	s := server(t)
	c := client(t, s)
	h := hold(t, c.RLock("x"))
	for _, tc := range []struct {
		status int
		args   []string
	}{
		{exitBusy, []string{"--wait", "0"}},
		{exitBusy, []string{"-n"}},
		{9, []string{"--wait", "3s", "--conflict-exit-code", "9"}}, // long enough for an answer, which names the holder
		{0, []string{"-n", "-E", "0"}},
	} {
		args := append(append([]string{"run", "x"}, tc.args...), "--", "echo", "ran")
		st, out, errs := call(t, s, args...)
		if st != tc.status || strings.Contains(out, "ran") {
			t.Errorf("%v: status %d, %s", tc.args, st, out)
		}
		if tc.status != exitBusy {
			if errs != "" {
				t.Errorf("%v: the status says it, and it writes %q", tc.args, errs)
			}
			continue
		}
		need(t, errs, "not acquired", c.ID())
	}
	// Who waits without end gets it.
	p := begin(t, s, "run", "x", "--", "echo", "ran")
	untilState(t, c, "x", func(in redlatch.Inspection) bool { return in.Processes == 1 })
	unlock(t, h)
	if st := p.status(); st != 0 || !strings.Contains(p.text(), "ran") {
		t.Errorf("status %d: %s", st, p.text())
	}
}

func TestRunWrongCommands(t *testing.T) {
	s := server(t)
	plain := filepath.Join(t.TempDir(), "plain")
	if err := os.WriteFile(plain, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		status int
		args   []string
	}{
		{exitNotFound, []string{"run", "x", "--", "no-such-command-here"}},
		{exitNotFound, []string{"run", "x", "--", "/no/such/command"}},
		{exitCantRun, []string{"run", "x", "--", plain}},
		{exitUsage, []string{"run", "x"}},
		{exitUsage, []string{"run", "--", "true"}},
		{exitUsage, []string{"run", "x", "--kind", "odd", "--", "true"}},
		{exitUsage, []string{"run", "x", "--wait", "-1s", "--", "true"}},
		{exitUsage, []string{"run", "x", "--odd", "--", "true"}},
		{exitUsage, []string{"odd"}},
		{exitUsage, []string{"run", "x", "--lease-time", "1ms", "--", "true"}},
		{0, []string{"run", "x", "true"}},
	} {
		if st, _, errs := call(t, s, tc.args...); st != tc.status || (errs == "") != (st == 0) {
			t.Errorf("%v: status %d, %s", tc.args, st, errs)
		}
	}
	gone := server(t)
	addr := gone.Addr()
	gone.Kill(t)
	if st, _, errs := callWith(t, "", nil, "--url", "redis://"+addr, "run", "x", "--", "true"); st != exitUnavailable {
		t.Errorf("no server: status %d, %s", st, errs)
	}
	gone.Restart(t, testbed.Empty)
}

// Signals reach every process of the command.
func TestRunPassesSignalsOn(t *testing.T) {
	s := server(t)
	c := client(t, s)
	p := begin(t, s, "run", "x", "--", "sh", "-c", `trap 'echo caught; exit 42' USR1; sh -c 'trap "echo inner; exit" USR1; echo ready; while :; do sleep 0.05; done' & while :; do sleep 0.05; done`)
	p.says("ready")
	if err := p.cmd.Process.Signal(syscall.SIGUSR1); err != nil {
		t.Fatal(err)
	}
	if st := p.status(); st != 42 {
		t.Errorf("status %d", st)
	}
	p.says("caught")
	p.says("inner")

	p = begin(t, s, "run", "x", "--", "sh", "-c", `echo ready; exec sleep 100`)
	p.says("ready")
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	if st := p.status(); st != exitSignal+int(syscall.SIGTERM) {
		t.Errorf("status %d", st)
	}
	if in := inspect(t, c, "x"); in.Held() {
		t.Errorf("%+v", in)
	}
}

// A signal ends the wait for the lock, and nothing of it is left.
func TestRunSignalWhileWaiting(t *testing.T) {
	s := server(t)
	c := client(t, s)
	h := hold(t, c.FairLock("x"))
	p := begin(t, s, "run", "x", "--kind", "fair", "--", "echo", "ran")
	untilState(t, c, "x", func(in redlatch.Inspection) bool { return in.QueueLength == 1 })
	_ = p.cmd.Process.Signal(syscall.SIGINT)
	if st := p.status(); st != exitSignal+int(syscall.SIGINT) || strings.Contains(p.text(), "ran") {
		t.Errorf("status %d: %s", st, p.text())
	}
	if in := inspect(t, c, "x"); in.QueueLength != 0 {
		t.Errorf("%+v", in)
	}
	unlock(t, h)
}

// A command that is killed: its status says so, the lock is free.
func TestRunCommandKilled(t *testing.T) {
	s := server(t)
	c := client(t, s)
	p := begin(t, s, "run", "x", "--", "sh", "-c", `kill -KILL $$`)
	if st := p.status(); st != exitSignal+int(syscall.SIGKILL) {
		t.Errorf("status %d: %s", st, p.text())
	}
	if in := inspect(t, c, "x"); in.Held() {
		t.Errorf("%+v", in)
	}
}

// stubborn is a command that does not care for TERM, and neither does its child; it
// writes both process ids.
const stubborn = `trap 'echo asked' TERM; sh -c 'trap "" TERM; while :; do sleep 0.05; done' & echo "pids $$ $! ."; while :; do sleep 0.05; done`

// pids waits for the process ids that stubborn writes.
func pids(t *testing.T, p *command) []int {
	t.Helper()
	_, text, _ := strings.Cut(p.says(" .\n"), "pids ")
	var a, b int
	if _, err := fmt.Sscan(text, &a, &b); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			_, _ = syscall.Kill(a, syscall.SIGKILL), syscall.Kill(b, syscall.SIGKILL)
		}
	})
	return []int{a, b}
}

// dead reports whether none of the processes is there; one that is not waited for yet is
// not.
func dead(pids []int) bool {
	for _, pid := range pids {
		stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
		if err == nil && !strings.Contains(string(stat), ") Z") {
			return false
		}
		if err != nil && syscall.Kill(pid, 0) == nil {
			if _, here := os.Stat("/proc/self/stat"); here != nil {
				return false // no /proc: the signal tells
			}
		}
	}
	return true
}

// When the lock is lost all of the command's processes end: TERM, and KILL after the grace.
func TestRunLost(t *testing.T) {
	s := server(t)
	c := client(t, s)
	p := begin(t, s, "run", "x", "--lease-time", "6s", "--grace", "3s", "--", "sh", "-c", stubborn)
	ids := pids(t, p)
	if was, err := c.ForceUnlock(t.Context(), "x"); !was || err != nil {
		t.Fatal(was, err)
	}
	if st := p.status(); st != exitLost {
		t.Errorf("status %d: %s", st, p.text())
	}
	need(t, p.text(), "was lost, ending the command", "asked")
	until(t, "its processes end", func() bool { return dead(ids) }, func() string { return fmt.Sprint(ids) })
}

// A TERM that run gets is passed on, and after the grace what is left of the command is killed: whether the command
// itself has ended or not. Until then nobody else gets the lock.
func TestRunTerminated(t *testing.T) {
	s := server(t)
	c := client(t, s)
	leaves := `sh -c 'trap "" TERM; while :; do sleep 0.05; done' & echo "pids $$ $! ."; wait`
	for script, status := range map[string]int{stubborn: exitSignal + int(syscall.SIGKILL), leaves: exitSignal + int(syscall.SIGTERM)} {
		p := begin(t, s, "run", "x", "--grace", "2s", "--", "sh", "-c", script)
		ids := pids(t, p)
		_ = p.cmd.Process.Signal(syscall.SIGTERM)
		if st := p.status(); st != status {
			t.Errorf("status %d: %s", st, p.text())
		}
		if in := inspect(t, c, "x"); in.Held() || !dead(ids) {
			t.Errorf("the lock is held: %t, its processes have ended: %t", in.Held(), dead(ids))
		}
	}
}

// What is left of the command and has been killed may stay as a zombie, whose parent lives elsewhere and does not wait
// for it, as in a container where run is the first process: run ends all the same, and the lock is free.
func TestRunLeavesAZombie(t *testing.T) {
	s := server(t)
	c := client(t, s)
	const zombie = `trap "" TERM; sh -c 'sleep 300 & echo "pids $$ $! ."; exec setsid sleep 300 >/dev/null 2>&1' & while :; do sleep 0.05; done`
	p := begin(t, s, "run", "x", "--grace", "1s", "--", "sh", "-c", zombie)
	ids := pids(t, p)
	t.Cleanup(func() { _ = syscall.Kill(ids[0], syscall.SIGKILL) })
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	if st := p.status(); st != exitSignal+int(syscall.SIGKILL) {
		t.Errorf("status %d: %s", st, p.text())
	}
	if in := inspect(t, c, "x"); in.Held() {
		t.Error("the lock is held")
	}
}

// A fixed lease that ends is the end of the command, too.
func TestRunFixedLease(t *testing.T) {
	s := server(t)
	began := time.Now()
	p := begin(t, s, "run", "x", "--lease", "500ms", "--", "sleep", "60")
	if st := p.status(); st != exitLost {
		t.Errorf("status %d: %s", st, p.text())
	}
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("after %v", took)
	}
}

// When the server is gone for longer than the lease, the command is ended.
func TestRunServerKilled(t *testing.T) {
	s := server(t)
	p := begin(t, s, "run", "x", "--lease-time", "4s", "--timeout", "1s", "--grace", "300ms", "--", "sh", "-c", stubborn)
	ids := pids(t, p)
	s.Kill(t)
	if st := p.status(); st != exitLost {
		t.Errorf("status %d: %s", st, p.text())
	}
	until(t, "its processes end", func() bool { return dead(ids) }, func() string { return fmt.Sprint(ids) })
	s.Restart(t, testbed.Empty)
}

// However run dies, its command does not outlive it, and the lock is free at the end of its lease.
func TestRunKilled(t *testing.T) {
	s := server(t)
	c := client(t, s)
	p := begin(t, s, "run", "x", "--lease-time", "4s", "--grace", "3s", "--", "sh", "-c", stubborn)
	ids := pids(t, p)
	_ = p.cmd.Process.Kill()
	p.says("asked")
	until(t, "the command ends", func() bool { return dead(ids) }, func() string { return fmt.Sprint(ids) })
	untilState(t, c, "x", func(in redlatch.Inspection) bool { return !in.Held() })
}

// On a terminal the command can read from it, and Ctrl-C is for the command.
func TestRunOnATerminal(t *testing.T) {
	s := server(t)
	cmd := prepare(s, "run", "x", "--", "sh", "-c", `echo ready; read line; echo "got $line"; trap 'echo caught; exit 5' INT; echo again; while :; do sleep 0.05; done`)
	screen, err := pty.Start(cmd)
	if err != nil {
		t.Fatal(err)
	}
	p := &command{t: t, cmd: cmd, ended: make(chan struct{})}
	read := make(chan struct{})
	go func() { // ends with the terminal
		defer close(read)
		buf := make([]byte, 4096)
		for {
			n, err := screen.Read(buf)
			_, _ = p.Write(buf[:n])
			if err != nil {
				return
			}
		}
	}()
	go func() {
		_ = cmd.Wait()
		close(p.ended)
	}()
	p.says("ready")
	fmt.Fprint(screen, "hello\n")
	p.says("got hello")
	p.says("again")
	fmt.Fprint(screen, "\x03")
	if st := p.status(); st != 5 {
		t.Errorf("status %d: %s", st, p.text())
	}
	_ = screen.Close()
	<-read
}
