package main

import (
	"os/exec"
	"syscall"
)

// dieWithParent lets the kernel kill the process should this one die without stopping it.
func dieWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
