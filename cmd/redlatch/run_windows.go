package main

import (
	"os"
	"os/exec"
	"time"
)

// passedOn are the signals that the program knows here.
var passedOn = []os.Signal{os.Interrupt}

func heeded() []os.Signal { return passedOn }

func ends(os.Signal) bool { return true }

// job is the command.
type job struct{ cmd *exec.Cmd }

func newJob(cmd *exec.Cmd, _ *os.File) *job { return &job{cmd} }

func (j *job) start(*guardProcess) error { return j.cmd.Start() }

func (j *job) pass(os.Signal) {} // the console sends Ctrl-C to the command, too

// There is no asking: it is ended.
func (j *job) end()  { _ = j.cmd.Process.Kill() }
func (j *job) kill() { _ = j.cmd.Process.Kill() }

func (j *job) rest(<-chan time.Time) {}

func endedBy(*os.ProcessState) int { return 0 }

// guardProcess does nothing here: a command outlives a run that is killed.
type guardProcess struct{}

func startGuard(time.Duration) (*guardProcess, error) { return &guardProcess{}, nil }

func (*guardProcess) release() {}

// helper is this program as a helper process of run, of which there is none here.
func helper([]string) (status int, ok bool) { return 0, false }
