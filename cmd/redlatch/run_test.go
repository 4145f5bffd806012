//go:build unix

package main

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/testbed"
)

// The command runs under the lock, with what it needs in its environment; its status
// and its output are run's, and the lock is free afterwards.
func TestRun(t *testing.T) {
	s, c := beside(t)
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
		p.ends(7, "got a line")
		isHeld(t, c, name, false)
	}
}

// The command gets no token but its own: one of a run around it is another lock's. --hide-url keeps the server's
// address, and the password in it, from the command.
func TestRunEnvironment(t *testing.T) {
	t.Parallel()
	s := server(t)
	environment := func(args ...string) string {
		cmd := prepare(s, append(append([]string{"run", "x"}, args...), "--", "sh", "-c", `echo "token=${REDLATCH_TOKEN-none} url=${REDIS_URL-none} home=$HOME."`)...)
		cmd.Env = append(cmd.Env, "REDLATCH_TOKEN=41", "HOME=/here")
		p := beginProcess(t, cmd)
		p.ends(exitOK)
		return p.text()
	}
	need(t, environment(), "token=none ", "url=redis://"+s.Addr(), "home=/here.")
	need(t, environment("--hide-url"), "url=none ", "home=/here.")
	need(t, environment("--fenced", "--kind", "read"), "token=none ") // there was no writer
	lacks(t, environment("--fenced"), "token=none", "token=41 ")
}

func TestRunBusy(t *testing.T) {
	s, c := beside(t)
	h := hold(t, c.RLock("x"))
	for _, args := range [][]string{{"--wait", "0"}, {"-n"}} {
		call(t, s, slices.Concat([]string{"run", "x"}, args, []string{"--", "echo", "ran"})...).fails(exitBusy, "not acquired", c.ID())
	}
	// Where the user has given the status, it says all. The wait is long enough for an answer, which names the holder.
	call(t, s, "run", "x", "--wait", "3s", "--conflict-exit-code", "9", "--", "echo", "ran").ends(9).warns()
	call(t, s, "run", "x", "-n", "-E", "0", "--", "echo", "ran").ends(0).warns()
	// Who waits without end gets it.
	p := begin(t, s, "run", "x", "--", "echo", "ran")
	untilState(t, c, "x", func(in redlatch.Inspection) bool { return in.Processes == 1 })
	unlock(t, h)
	p.ends(exitOK, "ran")
}

func TestRunWrongCommands(t *testing.T) {
	t.Parallel()
	s := server(t)
	for _, tc := range []struct {
		status int
		args   []string
	}{
		{exitNotFound, []string{"run", "x", "--", "no-such-command-here"}},
		{exitNotFound, []string{"run", "x", "--", "/no/such/command"}},
		{exitCantRun, []string{"run", "x", "--", fileOf(t, "x")}},
		{exitUsage, []string{"run", "x"}},
		{exitUsage, []string{"run", "--", "true"}},
		{exitUsage, []string{"run", "x", "--kind", "odd", "--", "true"}},
		{exitUsage, []string{"run", "x", "--wait", "-1s", "--", "true"}},
		{exitUsage, []string{"run", "x", "--odd", "--", "true"}},
		{exitUsage, []string{"odd"}},
		{exitUsage, []string{"run", "x", "--lease-time", "1ms", "--", "true"}},
		{exitOK, []string{"run", "x", "true"}},
		{exitUsage, []string{"run", "x", "--url", "redis://127.0.0.1:1", "--", "true"}}, // two deployments
	} {
		if got := call(t, s, tc.args...).ends(tc.status); (got.errs == "") != (tc.status == exitOK) {
			t.Errorf("%v: %q", tc.args, got.errs)
		}
	}
	call(t, nil, "run", "x", "--url", "redis://127.0.0.1:1", "--", "true").fails(exitUnavailable)
}

// Signals reach every process of the command.
func TestRunPassesSignalsOn(t *testing.T) {
	t.Parallel()
	s := server(t)
	p := begin(t, s, "run", "x", "--", "sh", "-c", `trap 'echo caught; exit 42' USR1; sh -c 'trap "echo inner; exit" USR1; echo ready; while :; do sleep 0.05; done' & while :; do sleep 0.05; done`)
	p.says("ready")
	p.signal(syscall.SIGUSR1)
	p.ends(42)
	p.says("caught")
	p.says("inner")
}

// The command's end is run's, and the lock is free: whoever ends it, and however.
func TestRunCommandKilled(t *testing.T) {
	s, c := beside(t)
	for _, tc := range []struct {
		script string
		sent   os.Signal
		status int
	}{
		{`echo ready; exec sleep 100`, syscall.SIGTERM, exitSignal + int(syscall.SIGTERM)},
		{`echo ready; exec sleep 100`, syscall.SIGINT, exitSignal + int(syscall.SIGINT)},
		{`echo ready; kill -KILL $$`, nil, exitSignal + int(syscall.SIGKILL)},
	} {
		p := begin(t, s, "run", "x", "--", "sh", "-c", tc.script)
		if p.says("ready"); tc.sent != nil {
			p.signal(tc.sent)
		}
		p.ends(tc.status)
		isHeld(t, c, "x", false)
	}
}

// A signal ends the wait for the lock, and nothing of it is left.
func TestRunSignalWhileWaiting(t *testing.T) {
	s, c := beside(t)
	h := hold(t, c.FairLock("x"))
	p := begin(t, s, "run", "x", "--kind", "fair", "--", "echo", "ran")
	untilQueued(t, c, "x", 1)
	p.signal(syscall.SIGINT)
	p.ends(exitSignal + int(syscall.SIGINT))
	lacks(t, p.text(), "ran")
	testbed.Equal(t, inspect(t, c, "x").QueueLength, 0, "left in the queue")
	unlock(t, h)
}

// stubborn is a command that does not care for TERM, and neither does its child; it
// writes both process ids.
const stubborn = `trap 'echo asked' TERM; sh -c 'trap "" TERM; while :; do sleep 0.05; done' & echo "pids $$ $! ."; while :; do sleep 0.05; done`

// pids waits for the process ids that stubborn writes.
func pids(t *testing.T, p *command) []int {
	t.Helper()
	_, text, _ := strings.Cut(p.says(" .\n"), "pids ")
	var a, b int
	_, err := fmt.Sscan(text, &a, &b)
	testbed.Must(t, err)
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

// untilDead waits for the end of processes that run has killed, or is to.
func untilDead(t *testing.T, pids []int) {
	t.Helper()
	until(t, "its processes end", func() bool { return dead(pids) }, func() string { return fmt.Sprint(pids) })
}

// When the lock is lost all of the command's processes end, with TERM, and with KILL after the grace: if somebody takes it
// away, if a fixed lease ends, and if the server is gone for longer than the lease.
func TestRunLost(t *testing.T) {
	for _, tc := range []struct {
		flags string
		lose  func(t *testing.T, s *testbed.Server)
	}{
		{"--lease-time=6s", func(t *testing.T, s *testbed.Server) {
			t.Helper()
			call(t, s, "unlock", "x", "--any-owner", "--yes").ends(exitOK)
		}},
		{"--lease=3s", func(*testing.T, *testbed.Server) {}},
		{"--lease-time=4s --timeout=1s", func(t *testing.T, s *testbed.Server) { t.Helper(); s.Kill(t) }},
	} {
		t.Run(tc.flags, func(t *testing.T) {
			s, c := beside(t)
			p := begin(t, s, slices.Concat([]string{"run", "x", "--grace", "3s"}, strings.Fields(tc.flags), []string{"--", "sh", "-c", stubborn})...)
			ids := pids(t, p)
			isHeld(t, c, "x", true)
			tc.lose(t, s)
			p.ends(exitLost, "was lost, ending the command", "asked")
			untilDead(t, ids)
		})
	}
}

// A TERM that run gets is passed on, and after the grace what is left of the command is killed: whether the command
// itself has ended or not. Until then nobody else gets the lock.
func TestRunTerminated(t *testing.T) {
	s, c := beside(t)
	leaves := `sh -c 'trap "" TERM; while :; do sleep 0.05; done' & echo "pids $$ $! ."; wait`
	for script, status := range map[string]int{stubborn: exitSignal + int(syscall.SIGKILL), leaves: exitSignal + int(syscall.SIGTERM)} {
		p := begin(t, s, "run", "x", "--grace", "2s", "--", "sh", "-c", script)
		ids := pids(t, p)
		p.signal(syscall.SIGTERM)
		p.ends(status)
		isHeld(t, c, "x", false)
		testbed.Equal(t, dead(ids), true, "whether its processes are dead")
	}
}

// What is left of the command and has been killed may stay as a zombie, whose parent lives elsewhere and does not wait
// for it, as in a container where run is the first process: run ends all the same, and the lock is free.
func TestRunLeavesAZombie(t *testing.T) {
	s, c := beside(t)
	const zombie = `trap "" TERM; sh -c 'sleep 300 & echo "pids $$ $! ."; exec setsid sleep 300 >/dev/null 2>&1' & while :; do sleep 0.05; done`
	p := begin(t, s, "run", "x", "--grace", "1s", "--", "sh", "-c", zombie)
	ids := pids(t, p)
	t.Cleanup(func() { _ = syscall.Kill(ids[0], syscall.SIGKILL) })
	p.signal(syscall.SIGTERM)
	p.ends(exitSignal + int(syscall.SIGKILL))
	isHeld(t, c, "x", false)
}

// However run dies, its command does not outlive it, and the lock is free at the end of its lease.
func TestRunKilled(t *testing.T) {
	s, c := beside(t)
	p := begin(t, s, "run", "x", "--lease-time", "4s", "--grace", "3s", "--", "sh", "-c", stubborn)
	ids := pids(t, p)
	p.signal(os.Kill)
	p.says("asked")
	untilDead(t, ids)
	untilState(t, c, "x", func(in redlatch.Inspection) bool { return !in.Held() })
}

// On a terminal the command can read from it, and Ctrl-C is for the command.
func TestRunOnATerminal(t *testing.T) {
	t.Parallel()
	p := onTerminal(t, server(t), 80, 24, "run", "x", "--", "sh", "-c",
		`echo ready; read line; echo "got $line"; trap 'echo caught; exit 5' INT; echo again; while :; do sleep 0.05; done`)
	p.says("ready")
	p.press("hello\n")
	p.says("got hello")
	p.says("again")
	p.press("\x03")
	p.ends(5)
}
