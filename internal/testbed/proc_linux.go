package testbed

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"syscall"
)

// dieWithParent has the kernel kill the process when this one dies.
func dieWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}

// frozen returns nil when the process is stopped by a signal.
func frozen(pid int) error {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return err
	}
	// The state follows the command's name, which is in parentheses.
	_, rest, ok := bytes.Cut(stat[bytes.LastIndexByte(stat, ')')+1:], []byte(" "))
	if !ok || len(rest) == 0 {
		return fmt.Errorf("process %d: no state in %q", pid, stat)
	}
	if rest[0] != 'T' {
		return fmt.Errorf("process %d is in state %c", pid, rest[0])
	}
	return nil
}
