package conn

import (
	"crypto/tls"
	"net"

	"github.com/redis/rueidis"
)

// tracked is a connection of ours: it notes that it ends, is closed with the client, and ends where
// the client library would panic.
type tracked struct {
	net.Conn
	of    *dialler
	unsub unsubscribed
}

// track makes the connections of a dial function so.
func (o *dialler) track(c net.Conn, err error) (net.Conn, error) {
	if err != nil || c == nil {
		return c, err
	}
	if tc, ok := bare(c).(*net.TCPConn); ok && o.delay {
		_ = tc.SetNoDelay(false) // What it saves is all that is lost.
	}
	l := &tracked{Conn: c, of: o}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		_ = c.Close() // Nobody has used it.
		return nil, rueidis.ErrClosing
	}
	if o.conns == nil {
		o.conns = map[*tracked]struct{}{}
	}
	o.conns[l] = struct{}{}
	return l, nil
}

// bare is the connection without TLS.
func bare(c net.Conn) net.Conn {
	if tc, ok := c.(*tls.Conn); ok {
		return tc.NetConn()
	}
	return c
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
func (c *tracked) Close() error {
	c.of.mu.Lock()
	delete(c.of.conns, c)
	c.of.mu.Unlock()
	return c.Conn.Close()
}

// Write implements net.Conn.
func (c *tracked) Write(b []byte) (int, error) {
	c.unsub.wrote(b)
	return c.Conn.Write(b)
}

// Read implements net.Conn.
func (c *tracked) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if err != nil {
		c.of.broke.Now()
	}
	if why := c.unsub.refused(b[:n]); why != nil {
		c.of.broke.Now()
		return 0, why
	}
	return n, err
}
