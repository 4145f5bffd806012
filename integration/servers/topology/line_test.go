package topology

import (
	"io"
	"net"
	"sync"
	"testing"
	"time"
)

// line is a slow line to a server for replication, which is no request and reply
// protocol: what the server sends arrives after delay. It returns the port.
func line(t *testing.T, addr string, delay time.Duration) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	var open []net.Conn
	closed := false
	t.Cleanup(func() {
		_ = l.Close()
		mu.Lock()
		closed = true
		for _, c := range open {
			_ = c.Close()
		}
		mu.Unlock()
		wg.Wait()
	})
	keep := func(c net.Conn) bool {
		mu.Lock()
		defer mu.Unlock()
		if closed {
			_ = c.Close()
			return false
		}
		open = append(open, c)
		return true
	}
	wg.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", addr)
			if err != nil {
				_ = client.Close()
				continue
			}
			if !keep(client) || !keep(server) {
				return
			}
			end := func() { _ = client.Close(); _ = server.Close() }
			type chunk struct {
				at   time.Time
				data []byte
			}
			chunks := make(chan chunk, 4096)
			wg.Go(func() { _, _ = io.Copy(server, client); end() })
			wg.Go(func() {
				defer close(chunks)
				for {
					buf := make([]byte, 16<<10)
					n, err := server.Read(buf)
					if err != nil {
						end()
						return
					}
					chunks <- chunk{time.Now().Add(delay), buf[:n]}
				}
			})
			wg.Go(func() {
				for c := range chunks {
					time.Sleep(time.Until(c.at))
					if _, err := client.Write(c.data); err != nil {
						end()
					}
				}
			})
		}
	})
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return port
}
