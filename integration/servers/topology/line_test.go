package topology

import (
	"context"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/redlatch/redlatch/internal/testbed"
)

// line is a slow line to a server for replication, which is no request and reply
// protocol: what the server sends arrives after delay. It returns the port.
func line(t *testing.T, addr string, delay time.Duration) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	testbed.Must(t, err)
	var wg sync.WaitGroup
	context.AfterFunc(t.Context(), func() { _ = l.Close() })
	t.Cleanup(wg.Wait)
	wg.Go(func() { // ends with the test
		for {
			replica, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() { // ends with either side, or the test
				defer func() { _ = replica.Close() }()
				master, err := net.Dial("tcp", addr)
				if err != nil {
					return
				}
				end := func() { _, _ = replica.Close(), master.Close() }
				defer end()
				defer context.AfterFunc(t.Context(), end)()
				wg.Go(func() { _, _ = io.Copy(master, replica); end() })
				buf := make([]byte, 16<<10)
				for {
					n, err := master.Read(buf)
					time.Sleep(delay)
					if _, werr := replica.Write(buf[:n]); err != nil || werr != nil {
						return
					}
				}
			})
		}
	})
	_, port, err := net.SplitHostPort(l.Addr().String())
	testbed.Must(t, err)
	return port
}
