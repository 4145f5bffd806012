//go:build unix && !linux

package testbed

import (
	"fmt"
	"os/exec"
	"strconv"
	"strings"
)

// dieWithParent: only Linux can tie a child's life to its parent's. Elsewhere
// a server outlives a test process that is killed before it cleans up.
func dieWithParent(*exec.Cmd) {}

// frozen returns nil when the process is stopped by a signal.
func frozen(pid int) error {
	out, err := exec.Command("ps", "-o", "state=", "-p", strconv.Itoa(pid)).Output()
	if err != nil {
		return fmt.Errorf("ps: %w", err)
	}
	if state := strings.TrimSpace(string(out)); !strings.HasPrefix(state, "T") {
		return fmt.Errorf("process %d is in state %s", pid, state)
	}
	return nil
}
