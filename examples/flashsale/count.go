package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"net"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/redis/rueidis"
)

// counter counts the commands that this process sends to Redis, at the one
// place that all of them pass: the connection. INFO commandstats would tell
// less: it also counts what a Lua script calls inside the server, counts what
// strangers send to a shared server, and the embedded server has none.
type counter struct {
	sent atomic.Int64
}

// watch makes all connections of a client pass the counter.
func (c *counter) watch(option *rueidis.ClientOption) {
	dial := option.DialCtxFn // set for unix sockets
	option.DialCtxFn = func(ctx context.Context, addr string, d *net.Dialer, config *tls.Config) (net.Conn, error) {
		var conn net.Conn
		var err error
		switch {
		case dial != nil:
			conn, err = dial(ctx, addr, d, config)
		case config != nil:
			conn, err = (&tls.Dialer{NetDialer: d, Config: config}).DialContext(ctx, "tcp", addr)
		default:
			conn, err = d.DialContext(ctx, "tcp", addr)
		}
		if err != nil {
			return nil, err
		}
		return &countingConn{Conn: conn, counter: c}, nil
	}
}

// countingConn follows the requests on their way out. A request is an array of
// strings: "*2\r\n$3\r\nGET\r\n$5\r\nstock\r\n".
type countingConn struct {
	net.Conn
	counter *counter

	mu   sync.Mutex
	line []byte // guarded by mu; the beginning of a line that is not complete yet
	skip int    // guarded by mu; bytes of a string that are still to come
}

func (c *countingConn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.mu.Lock()
	c.follow(b[:n])
	c.mu.Unlock()
	return n, err
}

// follow needs c.mu.
func (c *countingConn) follow(b []byte) {
	for len(b) > 0 {
		if c.skip > 0 {
			n := min(c.skip, len(b))
			c.skip -= n
			b = b[n:]
			continue
		}
		end := bytes.IndexByte(b, '\n')
		if end < 0 {
			c.line = append(c.line, b...)
			return
		}
		c.line = append(c.line, b[:end]...)
		b = b[end+1:]
		line := bytes.TrimSuffix(c.line, []byte("\r"))
		if len(line) > 0 {
			switch line[0] {
			case '*':
				c.counter.sent.Add(1)
			case '$':
				if length, err := strconv.Atoi(string(line[1:])); err == nil {
					c.skip = length + len("\r\n")
				}
			}
		}
		c.line = c.line[:0]
	}
}
