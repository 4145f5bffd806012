//go:build unix

package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"syscall"
)

// startCommand is the argument with which this program waits to become the command of run.
const startCommand = "__start"

// start starts the command, which begins only when the guard knows of it. Until then its process is this
// program, at the other end of a socket: there it waits for the word, and the end of the socket without the
// word ends it. So a run that dies before the guard knows has begun nothing, and what the guard's pipe has
// taken is read even when run has died.
func (j *job) start(g *guardProcess) error {
	program, args := j.cmd.Path, j.cmd.Args
	failed := func(err error) error { return &os.PathError{Op: "fork/exec", Path: program, Err: err} }
	path, err := self()
	if err != nil {
		return err
	}
	ours, theirs, err := socket()
	if err != nil {
		return err
	}
	defer ours.Close()
	j.cmd.Path, j.cmd.Args = path, append([]string{"redlatch", startCommand, strconv.Itoa(theirs), program}, args...)
	err = j.cmd.Start()
	_ = syscall.Close(theirs)
	if err != nil {
		var p *os.PathError
		if errors.As(err, &p) {
			return failed(p.Err) // of what users know
		}
		return err
	}
	if err := g.watch(j); err != nil {
		_ = ours.Close()
		_ = j.cmd.Wait()
		return fmt.Errorf("the guard process of the command has died: %w", err)
	}
	_, _ = ours.Write([]byte{1})   // one that a signal has ended takes no word: Wait tells
	refusal, _ := io.ReadAll(ours) // nothing: the socket was closed as it became the command
	if len(refusal) == 0 {
		return nil
	}
	_ = j.cmd.Wait()
	n, err := strconv.Atoi(string(refusal))
	if err != nil {
		return err
	}
	return failed(syscall.Errno(n))
}

// become waits for run's word and becomes the command: the same process, with the same group, streams,
// environment and descriptors. The arguments are the socket, the program's path and the command. It returns only
// when there was no word or the program can't be run, and then the exit status.
func become(args []string) int {
	if len(args) < 3 {
		return exitUsage
	}
	fd, err := strconv.Atoi(args[0])
	if err != nil {
		return exitUsage
	}
	syscall.CloseOnExec(fd)
	// Other signals end it, or are ignored, as they would be in the command; this one would write a trace.
	quit := make(chan os.Signal, 1)
	signal.Notify(quit, syscall.SIGQUIT)
	go func() { // ends with the process, or as it becomes the command
		<-quit
		os.Exit(exitSignal + int(syscall.SIGQUIT))
	}()
	run := os.NewFile(uintptr(fd), "run")
	if n, _ := run.Read(make([]byte, 1)); n == 0 {
		return exitError
	}
	err = syscall.Exec(args[1], args[2:], os.Environ())
	errno := syscall.EINVAL
	_ = errors.As(err, &errno)
	_, _ = fmt.Fprintf(run, "%d", errno)
	return exitCantRun
}

// socket is a connection to a process that is started next. That process inherits the descriptor theirs under the
// same number, which therefore is none of those that the command inherits. Nothing else may start a process meanwhile.
func socket() (ours *os.File, theirs int, err error) {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err != nil {
		return nil, 0, os.NewSyscallError("socketpair", err)
	}
	syscall.CloseOnExec(fds[0])
	return os.NewFile(uintptr(fds[0]), "command"), fds[1], nil
}

// self is this program's path for its helpers. A program that was replaced or removed since, perhaps during a
// long wait for the lock, still is its own helper where the system can do that.
func self() (string, error) {
	path, err := os.Executable()
	const running = "/proc/self/exe"
	if runtime.GOOS == "linux" {
		if this, err := os.Stat(running); err == nil {
			if now, _ := os.Stat(path); !os.SameFile(this, now) {
				return running, nil
			}
		}
	}
	return path, err
}

// helper is this program as a helper process of run, if the arguments say so, and its exit status then.
func helper(args []string) (status int, ok bool) {
	switch {
	case len(args) < 2:
	case args[1] == guardCommand:
		guard(os.Stdin)
		return exitOK, true
	case args[1] == startCommand:
		return become(args[2:]), true
	}
	return 0, false
}
