//go:build unix

package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/testbed"
)

// children are the processes that a process has started and that are there.
func children(pid int) []string {
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	var found []string
	for _, f := range files {
		b, _ := os.ReadFile(f)
		found = append(found, strings.Fields(string(b))...)
	}
	return found
}

// A run that is killed while it starts its command leaves nothing behind, at whichever moment that is.
func TestRunKilledAtTheStart(t *testing.T) {
	t.Parallel()
	if len(children(os.Getppid())) == 0 {
		t.Skip("this system does not tell of a process's children")
	}
	s := server(t)
	c := client(t, s)
	var names []string
	// attempt kills run at some time after its second child is there, the first being the guard. A negative
	// time stands for: when the command has begun. It returns the time.
	attempt := func(after time.Duration) time.Duration {
		name := "x" + strconv.Itoa(len(names))
		names = append(names, name)
		r, w, err := os.Pipe() // it ends with the last process that can write to it
		testbed.Must(t, err)
		defer r.Close()
		cmd := prepare(s, "run", name, "--lease-time", "4s", "--grace", "1s", "--", "sh", "-c", "echo begun; exec sleep 100")
		cmd.Stdout = w
		testbed.Must(t, cmd.Start())
		defer func() { _ = cmd.Process.Kill() }()
		_ = w.Close()
		var ids []string
		for end := time.Now().Add(patience); len(ids) < 2; ids = children(cmd.Process.Pid) {
			if len(ids) == 0 {
				time.Sleep(time.Millisecond) // then without a pause: the moments at the start count
			}
			if time.Now().After(end) {
				t.Fatal("it starts no command")
			}
		}
		began := time.Now()
		if after < 0 {
			_, _ = io.ReadFull(r, make([]byte, len("begun\n")))
			after = time.Since(began)
		} else {
			time.Sleep(after)
		}
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		_ = r.SetReadDeadline(time.Now().Add(patience))
		if _, err := io.Copy(io.Discard, r); err != nil { // it ends by itself, later
			t.Fatalf("killed %v after it started the process of its command: the command lives on: %v", after, err)
		}
		return after
	}
	span := attempt(-1)
	const atOnce, spread = 12, 12
	for range atOnce {
		attempt(0)
	}
	for i := range spread {
		attempt(span * time.Duration(i) / (spread * 3 / 4)) // some are after it has begun
	}
	for _, name := range names {
		untilState(t, c, name, func(in redlatch.Inspection) bool { return !in.Held() })
	}
}

// A command of which the guard can't be told does not begin.
func TestRunGuardDied(t *testing.T) {
	r, w, err := os.Pipe()
	testbed.Must(t, err)
	_ = r.Close()
	defer w.Close()
	var out bytes.Buffer
	j := newJob(&exec.Cmd{Path: "/bin/sh", Args: []string{"sh", "-c", "echo begun"}, Stdout: &out, Stderr: &out}, nil)
	testbed.Must(t, j.start(&guardProcess{pipe: w}))
	if st, err := exitStatus(j.cmd, j.cmd.Wait()); st != exitCantRun || err != nil {
		t.Errorf("status %d, %v", st, err)
	}
	need(t, out.String(), "the guard process of the command has died")
	lacks(t, out.String(), "begun")
}

// The guard ends when it is told to, though a process that was started meanwhile has its pipe as well.
func TestRunGuardReleased(t *testing.T) {
	g, err := startGuard(time.Second)
	testbed.Must(t, err)
	other, err := syscall.Dup(int(g.pipe.Fd()))
	testbed.Must(t, err)
	defer syscall.Close(other)
	released := make(chan struct{})
	go func() { // ends with the guard, at the latest when the pipe is closed
		g.release()
		close(released)
	}()
	select {
	case <-released:
	case <-time.After(patience):
		t.Fatal("it does not end")
	}
}

// executable makes a file that may be run.
func executable(t *testing.T, text string) string {
	t.Helper()
	path := fileOf(t, text)
	testbed.Must(t, os.Chmod(path, 0o700)) //nolint:gosec // it is to be executable
	return path
}

// A command that can't be run is reported as such, under its own name, and the lock is free.
func TestRunRefused(t *testing.T) {
	s := server(t)
	c := client(t, s)
	odd := executable(t, "no program\n")
	call(t, s, "run", "x", "--", odd).fails(exitCantRun, "redlatch: fork/exec "+odd+": "+syscall.ENOEXEC.Error()+"\n")
	// It vanishes while run waits for the lock.
	h := hold(t, c.RLock("x"))
	p := begin(t, s, "run", "x", "--", odd)
	untilState(t, c, "x", func(in redlatch.Inspection) bool { return in.Processes == 1 })
	testbed.Must(t, os.Remove(odd))
	unlock(t, h)
	p.ends(exitCantRun, "redlatch: fork/exec "+odd+": "+syscall.ENOENT.Error()+"\n")
	isHeld(t, c, "x", false)
}

// The command has the state of a process that was started without run: the descriptors that are meant for it, the
// signals that it is to ignore, the limits.
func TestRunInheritance(t *testing.T) {
	if _, err := os.Stat("/proc/self/fd"); err != nil {
		t.Skip("this system does not tell of a process's state")
	}
	s := server(t)
	path := fileOf(t, "what is in it\n")
	state := `ls -l /proc/self/fd | sed "s/.* \([0-9]* -> \)/\1/; s/proc.*//"; grep -E "^Sig(Blk|Ign)" /proc/self/status; ulimit -n; umask; pwd; cat <&3`
	self, err := os.Executable()
	testbed.Must(t, err)
	for _, ignored := range []string{"", "HUP", "HUP INT"} {
		t.Run("ignoring "+ignored, func(t *testing.T) {
			t.Parallel()
			run := func(args ...string) string {
				t.Helper()
				meant, err := os.Open(path)
				testbed.Must(t, err)
				defer meant.Close()
				script := `ulimit -S -n 200; umask 27; exec "$@"`
				if ignored != "" {
					script = `trap "" ` + ignored + "; " + script
				}
				cmd := as(s, exec.Command("sh", append([]string{"-c", script, "sh"}, args...)...))
				var out bytes.Buffer
				cmd.Stdout, cmd.Stderr = &out, &out
				cmd.Dir = t.TempDir()
				cmd.ExtraFiles = []*os.File{meant, nil, meant} // 3 and 5
				if err := cmd.Run(); err != nil {
					t.Fatalf("%v: %v\n%s", args, err, out.String())
				}
				text := strings.ReplaceAll(out.String(), cmd.Dir, "DIR")
				return regexp.MustCompile(`pipe:\S+`).ReplaceAllString(text, "pipe") // pipes have numbers, which differ
			}
			plain := run("sh", "-c", state)
			under := run(self, "run", "x"+ignored, "--", "sh", "-c", state)
			if plain != under {
				t.Errorf("%s\nand without run:\n%s", under, plain)
			}
			need(t, under, "what is in it")
		})
	}
}

// What nohup has ignored ends neither run nor its command.
func TestRunIgnoresWhatItWasToIgnore(t *testing.T) {
	t.Parallel()
	s := server(t)
	self, err := os.Executable()
	testbed.Must(t, err)
	p := beginProcess(t, as(s, exec.Command("sh", "-c", `trap "" HUP; exec "$@"`, "sh", self, "run", "x", "--", "sh", "-c",
		`echo ready; read line; echo "got $line"`)))
	p.says("ready")
	p.signal(syscall.SIGHUP)
	fmt.Fprintln(p.in, "a line")
	p.ends(exitOK, "got a line")
}

// A program that was removed, as by an update, while run waited for the lock still starts the command.
func TestRunOfAProgramThatWasRemoved(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("this system starts no program without a file")
	}
	s := server(t)
	c := client(t, s)
	self, err := os.Executable()
	testbed.Must(t, err)
	program, err := os.ReadFile(self)
	testbed.Must(t, err)
	old := executable(t, string(program))
	h := hold(t, c.RLock("x"))
	p := beginProcess(t, as(s, exec.Command(old, "run", "x", "--", "echo", "ran")))
	untilState(t, c, "x", func(in redlatch.Inspection) bool { return in.Processes == 1 })
	testbed.Must(t, os.Rename(executable(t, "#!/bin/sh\necho other\n"), old))
	unlock(t, h)
	p.ends(exitOK)
	testbed.Equal(t, p.text(), "ran\n")
}
