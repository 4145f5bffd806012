package testbed

import (
	"context"
	"net"
	"os"
	"syscall"
)

// What lets somebody listen on a reserved port: listenReserved, or a server.
const (
	forProxy  = 15 // SO_REUSEPORT, which package syscall does not have everywhere
	forServer = syscall.SO_REUSEADDR
)

// reserve takes a free loopback port for as long as the file is open. Nobody else
// gets the port, whether somebody listens there or not: the socket that keeps it is
// bound and never listens. (Else a client of a server that is down could find
// another test's server there.)
func reserve(option int) (addr string, keeps *os.File, err error) {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return "", nil, os.NewSyscallError("socket", err)
	}
	keeps = os.NewFile(uintptr(fd), "reserved port")
	if err = syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, option, 1); err != nil {
		return "", nil, closed(keeps, "setsockopt", err)
	}
	if err = syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		return "", nil, closed(keeps, "bind", err)
	}
	name, err := syscall.Getsockname(fd)
	if err != nil {
		return "", nil, closed(keeps, "getsockname", err)
	}
	at, ok := name.(*syscall.SockaddrInet4)
	if !ok {
		return "", nil, closed(keeps, "getsockname", syscall.EAFNOSUPPORT)
	}
	return (&net.TCPAddr{IP: at.Addr[:], Port: at.Port}).String(), keeps, nil
}

func closed(f *os.File, call string, err error) error {
	_ = f.Close() // The first error tells more.
	return os.NewSyscallError(call, err)
}

// listenReserved listens on a port that this process has reserved.
func listenReserved(addr string) (net.Listener, error) {
	cfg := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		var failed error
		err := c.Control(func(fd uintptr) {
			failed = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, forProxy, 1) //nolint:gosec // descriptors are small
		})
		if err != nil {
			return err
		}
		return os.NewSyscallError("setsockopt", failed)
	}}
	return cfg.Listen(context.Background(), "tcp", addr)
}
