package testbed

import (
	"errors"
	"os"
	"os/exec"
)

var errSignal = errors.New("not possible on Windows")

// Windows has neither stop signals nor a parent-death signal: freezing fails
// with an error there, and stopping kills.
func dieWithParent(*exec.Cmd)     {}
func freeze(*os.Process) error    { return errSignal }
func thaw(*os.Process) error      { return errSignal }
func terminate(*os.Process) error { return errSignal }
func frozen(int) error            { return errSignal }
