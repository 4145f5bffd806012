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
type counter struct{ atomic.Int64 }

// watch makes all connections of a client pass the counter.
func (c *counter) watch(option *rueidis.ClientOption) {
	dial := option.DialCtxFn // set for unix sockets
	option.DialCtxFn = func(ctx context.Context, addr string, d *net.Dialer, config *tls.Config) (conn net.Conn, err error) {
		switch {
		case dial != nil:
			conn, err = dial(ctx, addr, d, config)
		case config != nil:
			conn, err = (&tls.Dialer{NetDialer: d, Config: config}).DialContext(ctx, "tcp", addr)
		default:
			conn, err = d.DialContext(ctx, "tcp", addr)
		}
		return &countingConn{Conn: conn, sent: c}, err
	}
}

// countingConn follows the requests on their way out. A request is an array of
// strings: "*2\r\n$3\r\nGET\r\n$5\r\nstock\r\n".
type countingConn struct {
	net.Conn
	sent *counter

	mu   sync.Mutex
	line []byte // guarded by mu; the beginning of a line that is not complete yet
	skip int    // guarded by mu; bytes of a string that are still to come
}

func (c *countingConn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.mu.Lock()
	defer c.mu.Unlock()
	for b = b[:n]; len(b) > 0; {
		if skipped := min(c.skip, len(b)); skipped > 0 {
			c.skip -= skipped
			b = b[skipped:]
			continue
		}
		part, rest, complete := bytes.Cut(b, []byte("\n"))
		c.line, b = append(c.line, part...), rest
		if !complete {
			break
		}
		line := string(bytes.TrimSpace(c.line))
		c.line = c.line[:0]
		switch {
		case line == "": // the end of a string
		case line[0] == '*':
			c.sent.Add(1)
		case line[0] == '$':
			c.skip, _ = strconv.Atoi(line[1:]) // what rueidis writes is a number
		}
	}
	return n, err
}
