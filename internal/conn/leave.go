package conn

import (
	"bytes"
	"crypto/tls"
	"errors"
	"net"
	"slices"
	"sync/atomic"

	"github.com/redis/rueidis"
)

// leaving is a connection that ends when the server refuses everything for the moment and an
// UNSUBSCRIBE has been sent on it.
//
// The client library sends a PING behind each UNSUBSCRIBE and tells their answers apart by
// what they say. It takes such a refusal for the wrong one of the two, and panics over that or
// the next answer in a goroutine of its own, where nobody can recover. An error of the
// connection it can live with: the subscriptions are made anew on another one.
// https://github.com/redis/rueidis/pull/691, https://github.com/redis/rueidis/issues/718
//
// It also notes that it ends, and is closed with the client.
type leaving struct {
	net.Conn
	of   *dialler
	sent atomic.Bool // an UNSUBSCRIBE
	said replies     // the reader's
}

// refusals are those that PING gets although UNSUBSCRIBE may not, or both: the server can't
// save, runs a script that does not end, or is a replica without its master's data.
var refusals = [][]byte{[]byte("MISCONF "), []byte("BUSY "), []byte("MASTERDOWN ")}

var errRefusesAll = errors.New("the server refuses everything for the moment")

// leave makes the connections of a dial function end so.
func (o *dialler) leave(c net.Conn, err error) (net.Conn, error) {
	if err != nil || c == nil {
		return c, err
	}
	if o.delay {
		inner := c
		if tc, ok := c.(*tls.Conn); ok {
			inner = tc.NetConn()
		}
		if tc, ok := inner.(*net.TCPConn); ok {
			_ = tc.SetNoDelay(false) // What it saves is all that is lost.
		}
	}
	l := &leaving{Conn: c, of: o}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		_ = c.Close() // Nobody has used it.
		return nil, rueidis.ErrClosing
	}
	if o.conns == nil {
		o.conns = map[*leaving]struct{}{}
	}
	o.conns[l] = struct{}{}
	return l, nil
}

// close follows the Close of the client library, which forgets a connection that is being made
// meanwhile: it would stay open for ever, and send what waits for it.
func (o *dialler) close() {
	o.mu.Lock()
	left := o.conns
	o.conns, o.closed = nil, true
	o.mu.Unlock()
	for c := range left {
		_ = c.Conn.Close() // It is of no use any more.
	}
}

// Close implements net.Conn.
func (c *leaving) Close() error {
	c.of.mu.Lock()
	delete(c.of.conns, c)
	c.of.mu.Unlock()
	return c.Conn.Close()
}

// Write implements net.Conn.
func (c *leaving) Write(b []byte) (int, error) {
	// The command comes first in what is written, or behind a PING or two.
	if !c.sent.Load() && bytes.Contains(b[:min(len(b), 64)], []byte("UNSUBSCRIBE\r\n")) {
		c.sent.Store(true)
	}
	return c.Conn.Write(b)
}

// Read implements net.Conn.
func (c *leaving) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if err != nil {
		c.of.broke.Now()
	}
	// Where a reply begins is only known to who has followed all of them.
	if c.said.read(b[:n], c.refused) {
		c.of.broke.Now()
		return 0, errRefusesAll
	}
	return n, err
}

// refused reports whether an error refuses everything, after an UNSUBSCRIBE.
func (c *leaving) refused(line []byte) bool {
	return c.sent.Load() && slices.ContainsFunc(refusals, func(r []byte) bool { return bytes.HasPrefix(line, r) })
}
