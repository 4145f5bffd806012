//go:build unix

package work

import (
	"os"
	"syscall"
	"time"
	"unsafe"
)

// processCPU is what this process has used of processors.
func processCPU() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// openBoard maps the file for as long as the process lives.
func openBoard(name string) (*board, error) {
	if name == "" {
		return &board{}, nil
	}
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	mem, err := syscall.Mmap(int(f.Fd()), 0, BoardSize, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	if err != nil {
		return nil, os.NewSyscallError("mmap", err)
	}
	return (*board)(unsafe.Pointer(&mem[0])), nil
}
