//go:build unix

package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strconv"
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
		for dead := 1; dead > 0; { // orphans, if run is the first process of a container
			dead, _ = syscall.Wait4(-j.cmd.Process.Pid, nil, syscall.WNOHANG, nil)
		}
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

// The arguments with which this program is a helper process of run.
const (
	guardCommand = "__guard"
	startCommand = "__start"
)

// guardProcess ends the command when run is killed. It is a process of its own that reads from a pipe what to guard.
// Two processes write to it: the command's, which names itself before it becomes the command, and run, which says at
// the end that there is nothing to guard any more. So the guard knows each command that has begun, also when run is
// killed meanwhile, and reads the end of the pipe only when run is gone and no process is about to become a command.
type guardProcess struct {
	cmd  *exec.Cmd
	pipe *os.File
}

func startGuard(grace time.Duration) (*guardProcess, error) {
	path, err := self()
	if err != nil {
		return nil, err
	}
	in, out, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer in.Close()
	cmd := exec.Command(path, guardCommand, grace.String()) //nolint:noctx // it must outlive this process
	cmd.Env, cmd.Dir, cmd.Stdin = []string{}, "/", in
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // what is sent to our group is not for it
	return &guardProcess{cmd, out}, cmd.Start()
}

// release ends the guard: the command has ended, or never started.
func (g *guardProcess) release() {
	_, _ = fmt.Fprintln(g.pipe, 0)
	_ = g.pipe.Close()
	_ = g.cmd.Wait()
}

// guard is the guard's process: it reads which command it guards, until it reads 0 for none, and ends it when its input
// ends.
func guard(in io.Reader, grace time.Duration) {
	// A service manager sends its signals to every process: the command gets them as well.
	signal.Ignore(syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM)
	target := 0
	for _, err := fmt.Fscanln(in, &target); err == nil && target != 0; {
		_, err = fmt.Fscanln(in, &target)
	}
	if target == 0 || syscall.Kill(target, syscall.SIGTERM) != nil {
		return
	}
	for end := time.Now().Add(grace); time.Now().Before(end); {
		time.Sleep(20 * time.Millisecond)
		if syscall.Kill(target, 0) != nil {
			return
		}
	}
	_ = syscall.Kill(target, syscall.SIGKILL)
}

// start starts the command's process, as this program: it becomes the command when the guard knows of it. It inherits
// the guard's pipe under a number that none of the descriptors has that are meant for the command. What else this
// program starts meanwhile inherits the pipe as well, so that release does not wait for its end.
func (j *job) start(g *guardProcess) error {
	path, err := self()
	if err != nil {
		return err
	}
	pipe, err := syscall.Dup(int(g.pipe.Fd()))
	if err != nil {
		return os.NewSyscallError("dup", err)
	}
	defer syscall.Close(pipe)
	program := j.cmd.Path
	j.cmd.Args = append([]string{"redlatch", startCommand, strconv.Itoa(pipe), strconv.Itoa(os.Getpid()), program}, j.cmd.Args...)
	j.cmd.Path = path
	err = j.cmd.Start()
	if p, ok := errors.AsType[*os.PathError](err); ok {
		p.Path = program // which users know
	}
	return err
}

// become tells the guard of this process and becomes the command: the same process, with the same group, streams,
// environment and descriptors. It returns, with the exit status, only when the guard or run has died meanwhile, or the
// program can't be run.
func become(pipe, run int, program string, command []string) int {
	syscall.CloseOnExec(pipe)
	target := os.Getpid()
	if syscall.Getpgrp() == target {
		target = -target // the command's group
	}
	if _, err := fmt.Fprintln(os.NewFile(uintptr(pipe), "pipe"), target); err != nil {
		fmt.Fprintln(os.Stderr, "redlatch: the guard process of the command has died:", err)
	} else if os.Getppid() == run {
		err = &os.PathError{Op: "fork/exec", Path: program, Err: syscall.Exec(program, command, os.Environ())}
		fmt.Fprintln(os.Stderr, "redlatch:", message(err))
	}
	return exitCantRun
}

// self is this program's path for its helpers. A program that was replaced or removed since, perhaps during a
// long wait for the lock, still is its own helper where the system can do that.
func self() (string, error) {
	path, err := os.Executable()
	const running = "/proc/self/exe"
	if this, serr := os.Stat(running); serr == nil { // on Linux
		if now, _ := os.Stat(path); !os.SameFile(this, now) {
			return running, nil
		}
	}
	return path, err
}

// helper is this program as a helper process of run, if the arguments say so, and its exit status then.
func helper(args []string) (status int, ok bool) {
	switch {
	case len(args) == 3 && args[1] == guardCommand:
		grace, err := time.ParseDuration(args[2])
		if err == nil {
			guard(os.Stdin, grace)
		}
		return status, err == nil
	case len(args) > 5 && args[1] == startCommand:
		pipe, err := strconv.Atoi(args[2])
		run, err2 := strconv.Atoi(args[3])
		if err == nil && err2 == nil {
			return become(pipe, run, args[4], args[5:]), true
		}
	}
	return 0, false
}
