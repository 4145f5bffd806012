package testbed

import (
	"io"
	"net"
	"strings"
	"sync"
	"time"
)

// Match tells whether a request is the one that a [Trap] waits for. It is
// called with the request's words and must not keep them.
type Match func(args []string) bool

// Contains matches a request in whose words all the parts occur: a command's
// name, a script's sha, a key.
func Contains(parts ...string) Match {
	return func(args []string) bool {
		for _, part := range parts {
			found := false
			for _, arg := range args {
				found = found || strings.Contains(arg, part)
			}
			if !found {
				return false
			}
		}
		return true
	}
}

// Trap waits for one request (or n; see Times) that passes a [Proxy]. It is
// safe for concurrent use.
type Trap struct {
	proxy     *Proxy
	match     Match
	onRequest bool // else it acts on the request's reply
	cut       bool // else it stalls, or only copies
	stall     bool
	answer    []byte // else the server answers

	hits     chan struct{}
	released chan struct{}
	once     sync.Once

	mu   sync.Mutex
	left int      // guarded by mu; negative: no limit
	kept [][]byte // guarded by mu; the requests that were caught
}

// DropRequest cuts the connection instead of passing the request on: the
// server never sees it. [Trap.Deliver] sends it later, as a network that held
// a packet back.
func (p *Proxy) DropRequest(m Match) *Trap {
	return p.set(&Trap{match: m, onRequest: true, cut: true})
}

// DropReply passes the request on and cuts the connection instead of
// delivering the reply, once that has come: the server did it, the client
// can't know.
func (p *Proxy) DropReply(m Match) *Trap { return p.set(&Trap{match: m, cut: true}) }

// StallRequest holds the request, and all behind it on its connection, until
// [Trap.Release]. Wait returns while it is held.
func (p *Proxy) StallRequest(m Match) *Trap {
	return p.set(&Trap{match: m, onRequest: true, stall: true})
}

// StallReply passes the request on and holds its reply, and all behind it on
// its connection, until [Trap.Release]. Wait returns when the reply has come.
func (p *Proxy) StallReply(m Match) *Trap { return p.set(&Trap{match: m, stall: true}) }

// Answer answers the request with an error, such as "LOADING the dataset", in the
// server's stead: the server never sees it. It is not for subscriptions, which
// have a connection of their own on which nothing else may be asked.
func (p *Proxy) Answer(m Match, message string) *Trap {
	return p.set(&Trap{match: m, answer: []byte("-" + message + "\r\n")})
}

// CopyRequest changes nothing but keeps a copy, which [Trap.Deliver] sends
// again later: a late duplicate. Wait returns before the request is passed on.
func (p *Proxy) CopyRequest(m Match) *Trap { return p.set(&Trap{match: m, onRequest: true}) }

func (p *Proxy) set(t *Trap) *Trap {
	t.proxy, t.left = p, 1
	t.hits, t.released = make(chan struct{}, 4096), make(chan struct{})
	p.mu.Lock()
	defer p.mu.Unlock()
	p.traps = append(p.traps, t)
	return t
}

// spring returns the first trap that takes this request.
func (p *Proxy) spring(args []string) *Trap {
	p.mu.Lock()
	traps := append([]*Trap(nil), p.traps...)
	p.mu.Unlock()
	for _, t := range traps {
		if t.match(args) && t.take() {
			return t
		}
	}
	return nil
}

// take uses up one of the trap's times.
func (t *Trap) take() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.left == 0 {
		return false
	}
	if t.left > 0 {
		t.left--
	}
	return true
}

// caught does what the trap is for; false cuts the link. It runs on the link's
// goroutine and holds no lock while it stalls.
func (t *Trap) caught(l *link, frame []byte, d Direction) bool {
	t.mu.Lock()
	t.kept = append(t.kept, frame)
	t.mu.Unlock()
	if t.cut {
		// Closed before it is told, so that whoever waits finds it closed.
		l.close()
	}
	select {
	case t.hits <- struct{}{}:
	default: // nobody counts that far
	}
	if t.stall {
		select {
		case <-t.released:
		case <-l.done:
			return false
		}
		return l.pass(d)
	}
	return !t.cut
}

// Times makes the trap work for n requests, all of them when n is negative; a
// new trap works for one. It returns the trap.
func (t *Trap) Times(n int) *Trap {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.left = n
	return t
}

// Hits returns a channel that receives once per request (or reply) caught.
func (t *Trap) Hits() <-chan struct{} { return t.hits }

// Wait returns once the trap has caught something, each call for one catch,
// and ends the test when nothing comes.
func (t *Trap) Wait(tb TB) {
	tb.Helper()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-t.hits:
	case <-timer.C:
		tb.Fatalf("testbed: the trap of the %s caught nothing", t.proxy)
	}
}

// Release ends the trap: what it holds goes on, nothing more is caught.
func (t *Trap) Release() {
	t.Times(0)
	t.once.Do(func() { close(t.released) })
}

// Deliver sends the oldest request that was caught and not yet delivered to
// the server, on a new connection, and returns the reply as it stands on the
// wire (RESP 2). The connection begins without a login or a database.
func (t *Trap) Deliver(tb TB) string {
	tb.Helper()
	t.mu.Lock()
	if len(t.kept) == 0 {
		t.mu.Unlock()
		tb.Fatalf("testbed: the trap of the %s has nothing to deliver", t.proxy)
		return ""
	}
	frame := t.kept[0]
	t.kept = t.kept[1:]
	t.mu.Unlock()
	reply, err := exchange(t.proxy.upstream, frame, patience)
	if err != nil {
		tb.Fatalf("testbed: deliver a request of the %s: %v", t.proxy, err)
	}
	return string(reply)
}

// DeliverAll sends all requests that were caught and not yet delivered, as Deliver does,
// and returns how many there were.
func (t *Trap) DeliverAll(tb TB) int {
	tb.Helper()
	n := 0
	for ; ; n++ {
		t.mu.Lock()
		left := len(t.kept)
		t.mu.Unlock()
		if left == 0 {
			return n
		}
		t.Deliver(tb)
	}
}

// exchange sends one request on a connection of its own.
func exchange(addr string, frame []byte, within time.Duration) ([]byte, error) {
	conn, err := net.DialTimeout("tcp", addr, within)
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }() // The reply is all that counts.
	if err := conn.SetDeadline(time.Now().Add(within)); err != nil {
		return nil, err
	}
	if _, err := conn.Write(frame); err != nil {
		return nil, err
	}
	reply, err := newFrameReader(conn).next()
	if tcp, ok := conn.(*net.TCPConn); ok && err == nil && tcp.CloseWrite() == nil {
		// The server closes when it has forgotten the connection: CLIENT LIST has it no more.
		_, _ = io.Copy(io.Discard, conn) // The reply is there already.
	}
	return reply, err
}
