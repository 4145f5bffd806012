package redlatchtest

import (
	"errors"
	"io"
	"net"
	"sync"
	"syscall"
)

// network is what lies between clients and the server: connections in memory, which can
// be cut, refused and held up. It is safe for concurrent use.
type network struct {
	tick func() // moves the server's clock; called without mu

	mu     sync.Mutex
	moved  *sync.Cond         // signalled when anything below or in a link changes
	links  map[*link]struct{} // guarded by mu
	down   bool               // guarded by mu: dials are refused
	frozen bool               // guarded by mu: the server reads nothing
	ended  bool               // guarded by mu
}

func newNetwork(tick func()) *network {
	n := &network{tick: tick, links: map[*link]struct{}{}}
	n.moved = sync.NewCond(&n.mu)
	return n
}

// refused is what a client sees of a server that does not run.
func refused() error {
	return &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
}

// dial connects a client to serve.
func (n *network) dial(serve func(net.Conn)) (net.Conn, error) {
	client, server := net.Pipe()
	if err := n.join(server, serve); err != nil {
		_ = client.Close()
		return nil, err
	}
	return client, nil
}

// join puts the server's end of a connection into the network.
func (n *network) join(server net.Conn, serve func(net.Conn)) error {
	n.mu.Lock()
	if n.down || n.ended {
		n.mu.Unlock()
		_ = server.Close()
		return refused()
	}
	l := &link{Conn: server, network: n}
	n.links[l] = struct{}{}
	n.mu.Unlock()
	go l.pump() // ends with the connection
	serve(l)
	return nil
}

// set changes the state of the network; cut also ends its connections.
func (n *network) set(change func(), cut bool) {
	n.mu.Lock()
	change()
	var all []*link
	if cut {
		for l := range n.links {
			all = append(all, l)
		}
	}
	n.moved.Broadcast()
	n.mu.Unlock()
	for _, l := range all {
		_ = l.Close()
	}
}

// link is the server's end of a connection. What the client sends is taken at once, as
// a kernel would, and read by the server when the network lets it.
type link struct {
	net.Conn
	network *network

	buf []byte // guarded by network.mu
	err error  // guarded by network.mu
}

// pump takes what the client sends until the connection ends.
func (l *link) pump() {
	chunk := make([]byte, 4096)
	for {
		n, err := l.Conn.Read(chunk)
		l.network.mu.Lock()
		l.buf = append(l.buf, chunk[:n]...)
		if err != nil {
			l.err = err
		}
		l.network.moved.Broadcast()
		l.network.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// Read gives the server what the client has sent. What it runs next it runs at this
// moment of its clock, or a later one.
func (l *link) Read(p []byte) (int, error) {
	size, err := l.take(p)
	if size > 0 {
		l.network.tick()
	}
	return size, err
}

// take waits for what the client has sent.
func (l *link) take(p []byte) (int, error) {
	n := l.network
	n.mu.Lock()
	defer n.mu.Unlock()
	for {
		switch {
		case n.ended, l.err != nil && !errors.Is(l.err, io.EOF):
			return 0, net.ErrClosed
		case n.frozen:
		case len(l.buf) > 0:
			size := copy(p, l.buf)
			l.buf = l.buf[size:]
			return size, nil
		case l.err != nil:
			return 0, l.err
		}
		n.moved.Wait()
	}
}

// Close ends the connection.
func (l *link) Close() error {
	l.network.mu.Lock()
	delete(l.network.links, l)
	if l.err == nil {
		l.err = net.ErrClosed
	}
	l.network.moved.Broadcast()
	l.network.mu.Unlock()
	return l.Conn.Close()
}
