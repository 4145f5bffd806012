//go:build !linux

package testbed

import (
	"net"
	"os"
)

const forProxy, forServer = 0, 0

// reserve finds a free loopback port. Nothing keeps others from it while nobody
// listens there.
func reserve(int) (addr string, keeps *os.File, err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	return l.Addr().String(), nil, l.Close()
}

// listenReserved listens on a port that reserve found.
func listenReserved(addr string) (net.Listener, error) { return net.Listen("tcp", addr) }
