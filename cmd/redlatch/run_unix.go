//go:build unix

package main

import (
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"golang.org/x/term"
)

// passedOn are the signals that the command gets as well. The first four end a wait for the lock.
var passedOn = []os.Signal{
	syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGWINCH,
}

// heeded are those of them that run listens to. What it was started to ignore, as by nohup, stays ignored.
func heeded() []os.Signal { return slices.DeleteFunc(slices.Clone(passedOn), signal.Ignored) }

func ends(s os.Signal) bool { return slices.Contains(passedOn[:4], s) }

// job is the command with the processes that it started.
type job struct {
	cmd   *exec.Cmd
	group bool // it has a process group of its own
}

func newJob(cmd *exec.Cmd, in *os.File) *job {
	// A process outside the terminal's group may not read from it.
	j := &job{cmd: cmd, group: in == nil || !term.IsTerminal(int(in.Fd()))}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: j.group}
	return j
}

// send signals the command, with all of its group. It may have ended this moment.
func (j *job) send(n syscall.Signal) error {
	target := j.cmd.Process.Pid
	if j.group {
		target = -target
	}
	return syscall.Kill(target, n)
}

func (j *job) pass(s os.Signal) {
	n, _ := s.(syscall.Signal)
	if j.group || !slices.Contains([]os.Signal{syscall.SIGINT, syscall.SIGQUIT, syscall.SIGWINCH}, s) {
		_ = j.send(n) // else the terminal has sent it to the command, too
	}
}

func (j *job) end()  { _ = j.send(syscall.SIGTERM) }
func (j *job) kill() { _ = j.send(syscall.SIGKILL) }

// rest waits for what the command has left of its group, and kills it when it is told to.
func (j *job) rest(kill <-chan time.Time) {
	if !j.group {
		return
	}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for j.send(0) == nil {
		select {
		case <-tick.C:
		case <-kill:
			j.kill()
			return
		}
	}
}

// endedBy is the signal that ended a process, 0 for none.
func endedBy(p *os.ProcessState) int {
	if ws, ok := p.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		return int(ws.Signal())
	}
	return 0
}
