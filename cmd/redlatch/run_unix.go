//go:build unix

package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"golang.org/x/term"
)

// passedOn are the signals that the command gets as well.
var passedOn = []os.Signal{
	syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGWINCH,
}

// heeded are those of them that run listens to. What it was started to ignore, as by nohup, stays ignored.
func heeded() []os.Signal {
	return slices.DeleteFunc(slices.Clone(passedOn), signal.Ignored)
}

// ends reports whether a signal ends a wait for the lock.
func ends(s os.Signal) bool {
	return s == syscall.SIGHUP || s == syscall.SIGINT || s == syscall.SIGQUIT || s == syscall.SIGTERM
}

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

// target is what kill(2) takes.
func (j *job) target() int {
	if j.group {
		return -j.cmd.Process.Pid
	}
	return j.cmd.Process.Pid
}

func (j *job) pass(s os.Signal) {
	n, ok := s.(syscall.Signal)
	if !ok {
		return
	}
	if !j.group && (n == syscall.SIGINT || n == syscall.SIGQUIT || n == syscall.SIGWINCH) {
		return // the terminal has sent it to the command, too
	}
	_ = syscall.Kill(j.target(), n) // it may have ended this moment
}

func (j *job) end()  { _ = syscall.Kill(j.target(), syscall.SIGTERM) }
func (j *job) kill() { _ = syscall.Kill(j.target(), syscall.SIGKILL) }

// rest waits for what the command has left of its group, and kills it when it is told to.
func (j *job) rest(kill <-chan time.Time) {
	if !j.group {
		return
	}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for syscall.Kill(j.target(), 0) == nil {
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

// guardCommand is the argument with which this program is its own guard.
const guardCommand = "__guard"

// guardProcess ends the command when this process is killed. It is a process of its own,
// which sees that by the end of its input.
type guardProcess struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	// grace is how long the command has after TERM
	grace time.Duration
}

func startGuard(grace time.Duration) (*guardProcess, error) {
	path, err := self()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(path, guardCommand) //nolint:noctx // it must outlive this process
	cmd.Env = []string{}
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // what is sent to our group is not for it
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return &guardProcess{cmd, in, grace}, nil
}

// watch tells the guard of the command, which has not begun yet. It fails when the guard has died.
func (g *guardProcess) watch(j *job) error {
	_, err := fmt.Fprintf(g.in, "watch %d %d\n", j.target(), g.grace.Milliseconds())
	return err
}

// release ends the guard: the command has ended, or never started.
func (g *guardProcess) release() {
	_, _ = io.WriteString(g.in, "done\n")
	_ = g.in.Close()
	_ = g.cmd.Wait()
}

// guard is the guard's process: it reads which command it guards, and ends it when its input
// ends without a word.
func guard(in io.Reader) {
	// A service manager sends its signals to every process: the command gets them as well.
	signal.Ignore(syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM)
	var target int
	var graceMs int64
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		if lines.Text() == "done" {
			return
		}
		if _, err := fmt.Sscanf(lines.Text(), "watch %d %d", &target, &graceMs); err != nil {
			return
		}
	}
	if target == 0 {
		return
	}
	if syscall.Kill(target, syscall.SIGTERM) != nil {
		return
	}
	for end := time.Now().Add(time.Duration(graceMs) * time.Millisecond); time.Now().Before(end); {
		time.Sleep(20 * time.Millisecond)
		if syscall.Kill(target, 0) != nil {
			return
		}
	}
	_ = syscall.Kill(target, syscall.SIGKILL)
}
