package testbed

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"time"
)

// upstreamLimit bounds a proxy's connecting to its server. A loopback server refuses at
// once or accepts; only a machine that is busy needs longer than a moment.
const upstreamLimit = 10 * time.Second

// Direction names one way through a [Proxy].
type Direction int

// The ways through a proxy.
const (
	Requests Direction = iota // from the client to the server
	Replies                   // from the server to the client, messages included
)

// Proxy stands between clients and a server, passes on whole requests and
// replies, and makes the faults that a network makes, at the moment that a
// test chooses. It is safe for concurrent use.
type Proxy struct {
	addr  string
	keeps *os.File       // keeps the port while connections are refused; nil where it can't
	wg    sync.WaitGroup // every goroutine of the proxy

	mu       sync.Mutex
	upstream string             // guarded by mu
	listener net.Listener       // guarded by mu; nil while new connections are refused
	links    map[*link]struct{} // guarded by mu
	traps    []*Trap            // guarded by mu
	gates    [2]chan struct{}   // guarded by mu; closed by Resume; nil when open
	delays   [2]time.Duration   // guarded by mu
	closed   bool               // guarded by mu
	accepted int                // guarded by mu
}

// NewProxy starts a proxy in front of the server at addr, on a free loopback
// port, for the time of the test.
func NewProxy(tb TB, addr string) *Proxy {
	tb.Helper()
	at, keeps, err := reserve(forProxy)
	if err != nil {
		tb.Fatalf("testbed: proxy: %v", err)
	}
	l, err := listenReserved(at)
	if err != nil {
		tb.Fatalf("testbed: proxy: %v", err)
	}
	p := &Proxy{addr: at, upstream: addr, keeps: keeps, listener: l, links: map[*link]struct{}{}}
	p.wg.Add(1)
	go p.accept(l) // until the listener is closed
	tb.Cleanup(p.close)
	return p
}

// Addr returns the address that clients connect to.
func (p *Proxy) Addr() string { return p.addr }

// Upstream returns the address of the server behind.
func (p *Proxy) Upstream() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.upstream
}

// Lead makes new connections lead to the server at addr, as a name or a virtual IP does after a
// failover. Those that exist stay where they are.
func (p *Proxy) Lead(addr string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.upstream = addr
}

// Connections returns how many connections live now and how many were ever
// accepted.
func (p *Proxy) Connections() (live, accepted int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.links), p.accepted
}

// Cut closes every connection; new ones are still accepted.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		l.close()
	}
}

// Refuse makes new connections fail with "connection refused". Those that
// exist go on; add Cut for an outage. The port stays the proxy's.
func (p *Proxy) Refuse() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.listener != nil {
		_ = p.listener.Close() // It fails only when closed already.
		p.listener = nil
	}
}

// Admit accepts new connections again after Refuse.
func (p *Proxy) Admit(tb TB) {
	tb.Helper()
	// The port may serve as the local end of somebody's connection for a moment.
	eventually(tb, "accept connections again", func() error {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.listener != nil || p.closed {
			return nil
		}
		l, err := listenReserved(p.addr)
		if err != nil {
			return err
		}
		p.listener = l
		p.wg.Add(1)
		go p.accept(l) // until the listener is closed
		return nil
	})
}

// Pause holds everything that goes in this direction until Resume, as a
// network that swallows packets does: no connection is closed, new ones are
// still made.
func (p *Proxy) Pause(d Direction) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.gates[d] == nil {
		p.gates[d] = make(chan struct{})
	}
}

// Resume lets what was held in this direction go on.
func (p *Proxy) Resume(d Direction) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.gates[d] != nil {
		close(p.gates[d])
		p.gates[d] = nil
	}
}

// Delay makes everything in this direction arrive later by that much, without
// changing its order or its rate. 0 ends it.
func (p *Proxy) Delay(d Direction, by time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delays[d] = by
}

// Dialer returns a dial function for rueidis.ClientOption.DialCtxFn that takes
// connections for the servers behind the proxies through them, and all others
// straight: for a Cluster or Sentinel, whose nodes name their own addresses.
func Dialer(proxies ...*Proxy) func(context.Context, string, *net.Dialer, *tls.Config) (net.Conn, error) {
	through := make(map[string]string, len(proxies))
	for _, p := range proxies {
		through[p.Upstream()] = p.addr
	}
	return func(ctx context.Context, addr string, dialer *net.Dialer, config *tls.Config) (net.Conn, error) {
		if proxied, ok := through[addr]; ok {
			addr = proxied
		}
		if config != nil {
			return (&tls.Dialer{NetDialer: dialer, Config: config}).DialContext(ctx, "tcp", addr)
		}
		return dialer.DialContext(ctx, "tcp", addr)
	}
}

func (p *Proxy) close() {
	p.Refuse()
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.Cut()
	p.wg.Wait()
	if p.keeps != nil {
		_ = p.keeps.Close() // Nothing was written.
	}
}

func (p *Proxy) accept(listener net.Listener) {
	defer p.wg.Done()
	for {
		client, err := listener.Accept()
		if err != nil {
			return
		}
		p.wg.Add(1)
		go p.connect(client) // until the server answered or refused
	}
}

func (p *Proxy) connect(client net.Conn) {
	defer p.wg.Done()
	server, err := net.DialTimeout("tcp", p.Upstream(), upstreamLimit)
	if err != nil {
		_ = client.Close() // The client learns it from the closed connection.
		return
	}
	l := &link{proxy: p, client: client, server: server, done: make(chan struct{})}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		l.close()
		return
	}
	p.links[l] = struct{}{}
	p.accepted++
	// All four end when the link is closed, and each closes it when it ends.
	p.wg.Add(4)
	for d, conns := range [2][2]net.Conn{Requests: {client, server}, Replies: {server, client}} {
		queue := make(chan parcel, 4096)
		go l.read(Direction(d), conns[0], queue)
		go l.write(Direction(d), conns[1], queue)
	}
}

// link is one client's connection and its counterpart to the server.
type link struct {
	proxy          *Proxy
	client, server net.Conn
	done           chan struct{} // closed with the link
	once           sync.Once

	mu      sync.Mutex
	pending []*pending // guarded by mu; the requests that wait for a reply, in order
	resp3   bool       // guarded by mu; messages come as pushes
}

// parcel is a frame on its way.
type parcel struct {
	frame []byte
	due   time.Time
}

func (l *link) close() {
	l.once.Do(func() {
		close(l.done)
		// Errors would say that the other side was faster.
		_ = l.client.Close()
		_ = l.server.Close()
	})
}

func (l *link) forget() {
	l.close()
	l.proxy.mu.Lock()
	delete(l.proxy.links, l)
	l.proxy.mu.Unlock()
}

func (l *link) read(d Direction, from net.Conn, queue chan<- parcel) {
	defer l.proxy.wg.Done()
	defer close(queue) // what was read before the end is still delivered
	reader := newFrameReader(from)
	for {
		frame, err := reader.next()
		if err != nil {
			return
		}
		l.proxy.mu.Lock()
		due := time.Now().Add(l.proxy.delays[d])
		l.proxy.mu.Unlock()
		select {
		case queue <- parcel{frame, due}:
		case <-l.done:
			return
		}
	}
}

func (l *link) write(d Direction, to net.Conn, queue <-chan parcel) {
	defer l.proxy.wg.Done()
	defer l.forget()
	for item := range queue {
		if !l.sleep(time.Until(item.due)) || !l.pass(d) {
			return
		}
		deliver := l.request
		if d == Replies {
			deliver = l.reply
		}
		frame, ok := deliver(item.frame, d)
		if !ok {
			return
		}
		if _, err := to.Write(frame); err != nil {
			return
		}
	}
}

// sleep returns false when the link was closed meanwhile.
func (l *link) sleep(d time.Duration) bool {
	if d <= 0 {
		return true
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-l.done:
		return false
	}
}

// pass waits until the direction is open; false when the link was closed.
func (l *link) pass(d Direction) bool {
	for {
		l.proxy.mu.Lock()
		gate := l.proxy.gates[d]
		l.proxy.mu.Unlock()
		if gate == nil {
			return true
		}
		select {
		case <-gate:
		case <-l.done:
			return false
		}
	}
}

// request notes what reply is due and springs the traps. It returns what the server
// is to see; false cuts the link.
func (l *link) request(frame []byte, d Direction) ([]byte, bool) {
	args := arguments(frame)
	trap := l.proxy.spring(args)
	if trap != nil && trap.onRequest && !trap.caught(l, frame, d) {
		return nil, false
	}
	next := &pending{trap: trap, frame: frame}
	if len(args) > 0 {
		switch name := strings.ToLower(args[0]); {
		case name == "hello" && len(args) > 1:
			l.mu.Lock()
			l.resp3 = args[1] == "3"
			l.mu.Unlock()
		case strings.HasSuffix(name, "subscribe"):
			next.confirms, next.left = name, len(args)-1
		}
	}
	if trap != nil && trap.answer != nil {
		frame = request("PING") // whose reply takes the answer's place in the order of replies
		next.confirms = ""
	}
	l.mu.Lock()
	l.pending = append(l.pending, next)
	l.mu.Unlock()
	return frame, true
}

// reply finds the request that the frame answers and springs its trap. It returns
// what the client is to see; false cuts the link.
func (l *link) reply(frame []byte, d Direction) ([]byte, bool) {
	answered := l.answered(frame)
	if answered == nil || answered.trap == nil || answered.trap.onRequest {
		return frame, true
	}
	trap := answered.trap
	if trap.answer != nil {
		frame = trap.answer
	}
	return frame, trap.caught(l, answered.frame, d)
}

// pending is a request whose reply has not come.
type pending struct {
	trap  *Trap
	frame []byte
	// A subscription is answered by one confirmation per channel, or by an
	// error; without arguments, by an unknown number of confirmations.
	confirms string
	left     int
}

// answered takes the request that a frame answers from the queue; nil when the
// frame is a message, or one of several confirmations.
func (l *link) answered(frame []byte) *pending {
	l.mu.Lock()
	defer l.mu.Unlock()
	kind := ""
	if frame[0] == '>' || frame[0] == '*' && !l.resp3 {
		if args := arguments(frame); len(args) > 0 {
			kind = args[0]
		}
	}
	confirmation := strings.HasSuffix(kind, "subscribe")
	message := frame[0] == '>' || kind == "message" || kind == "pmessage" || kind == "smessage"
	for len(l.pending) > 0 {
		head := l.pending[0]
		// Without arguments left is 0 at first: how many confirmations come is
		// unknown, so only what comes after them ends the request.
		open := head.confirms != "" && head.left <= 0
		switch {
		case confirmation && kind == head.confirms:
			if head.left--; head.left != 0 {
				return nil
			}
		case confirmation && open, !message && open:
			l.pending = l.pending[1:]
			continue // this answers the next one
		case message || confirmation:
			return nil
		case head.confirms != "" && frame[0] != '-':
			l.pending = l.pending[1:]
			continue // not seen from a server; don't lose count for it
		}
		l.pending = l.pending[1:]
		return head
	}
	return nil
}

func (p *Proxy) String() string { return fmt.Sprintf("proxy %s -> %s", p.addr, p.Upstream()) }
