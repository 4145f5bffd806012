package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"net"
	"slices"
	"sync/atomic"
)

// pushHeads begin the pub/sub messages of RESP3; what confirms a subscription begins otherwise.
var pushHeads = [][]byte{
	[]byte(">3\r\n$7\r\nmessage\r\n"),
	[]byte(">3\r\n$8\r\nsmessage\r\n"),
	[]byte(">4\r\n$8\r\npmessage\r\n"),
}

// longestHead is the length of the longest of them.
var longestHead = func() (n int) {
	for _, h := range pushHeads {
		n = max(n, len(h))
	}
	return n
}()

// countingDialer makes connections that count the messages that come over them.
func countingDialer(count *atomic.Uint64) func(context.Context, string, *net.Dialer, *tls.Config) (net.Conn, error) {
	return func(ctx context.Context, addr string, dialer *net.Dialer, _ *tls.Config) (net.Conn, error) {
		conn, err := dialer.DialContext(ctx, "tcp", addr)
		if err != nil {
			return nil, err
		}
		return &countingConn{Conn: conn, count: count}, nil
	}
}

// countingConn is read by one goroutine at a time, as any connection.
type countingConn struct {
	net.Conn
	count *atomic.Uint64
	tail  []byte // the end of what was read, shorter than a head: one may be cut in two
}

func (c *countingConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.look(p[:n])
	return n, err
}

func (c *countingConn) look(p []byte) {
	data := slices.Concat(c.tail, p)
	for _, head := range pushHeads {
		// What lies whole in the tail was counted before.
		c.count.Add(uint64(bytes.Count(data, head) - bytes.Count(c.tail, head)))
	}
	c.tail = append(c.tail[:0], data[max(0, len(data)-longestHead+1):]...)
}
