//go:build unix

package work

import (
	"syscall"
	"time"
)

// processCPU is what this process has used of processors.
func processCPU() cpu {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return cpu{}
	}
	return cpu{time.Duration(u.Utime.Nano()), time.Duration(u.Stime.Nano()), int64(u.Nvcsw)} //nolint:unconvert // 32 bits elsewhere
}
