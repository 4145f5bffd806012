package conn

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"
)

// dialler makes the connections of one client, by itself or with the dial function
// that the options bring. It is safe for concurrent use.
type dialler struct {
	own   bool // the options bring no dial function
	known *secrets
	delay bool // small writes wait for others: the client library knows its own connections only

	broke   Instant       // a connection ended, whether a command was under way or not
	dialled chan struct{} // cap 1: a connection was made

	// opening is set until Open has returned: a port that turns out not to speak TLS is
	// then looked at, so that the error can say so at once. Later there is only silence
	// to be dealt with, and no second connection is made for it.
	opening atomic.Bool
	later   atomic.Bool // nobody is dialled: a client is made that is to connect later

	mu     sync.Mutex
	addr   string                // guarded by mu: what was dialled last while opening
	cfg    *tls.Config           // guarded by mu: and how
	conns  map[*tracked]struct{} // guarded by mu: those that are open
	closed bool                  // guarded by mu: nobody dials any more
}

// follow puts a dialler into the options.
func follow(opt *rueidis.ClientOption) *dialler {
	o := &dialler{
		known: secretsOf(opt), own: opt.DialFn == nil && opt.DialCtxFn == nil, delay: opt.DisableTCPNoDelay, dialled: make(chan struct{}, 1),
	}
	o.opening.Store(true)
	dial := opt.DialCtxFn
	if plain := opt.DialFn; dial == nil && plain != nil {
		dial = func(_ context.Context, addr string, d *net.Dialer, cfg *tls.Config) (net.Conn, error) {
			return plain(addr, d, cfg)
		}
	} else if dial == nil {
		dial = o.dial
	}
	opt.DialCtxFn = func(ctx context.Context, addr string, d *net.Dialer, cfg *tls.Config) (net.Conn, error) {
		if o.later.Load() {
			return nil, errLater
		}
		o.note(addr, cfg)
		c, err := o.track(dial(ctx, addr, d, cfg))
		select {
		case o.dialled <- struct{}{}:
		default:
		}
		return c, err
	}
	return o
}

func (o *dialler) note(addr string, cfg *tls.Config) {
	if !o.opening.Load() {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.addr, o.cfg = addr, cfg
}

// last is what was dialled last while opening; addr is "" if nothing was.
func (o *dialler) last() (addr string, cfg *tls.Config) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.addr, o.cfg
}

// handshakeSilence is how long a TLS handshake takes before the port is asked whether
// it speaks TLS at all. (A Redis port that doesn't takes the handshake for the
// beginning of a command and waits for its end.)
const handshakeSilence = 250 * time.Millisecond

// errPlain says that a port to which TLS was spoken answers without it.
var errPlain = errors.New("the port answers without TLS")

// network is that of an address: a path is a Unix socket.
func network(addr string) string {
	if strings.HasPrefix(addr, "/") {
		return "unix"
	}
	return "tcp"
}

// dial connects and makes a later Close discard what was written but not yet
// sent. Otherwise the kernel would go on sending it after a partition heals, and
// a command given up long ago would run.
func (o *dialler) dial(ctx context.Context, addr string, d *net.Dialer, cfg *tls.Config) (net.Conn, error) {
	c, err := d.DialContext(ctx, network(addr), addr)
	if err != nil {
		return nil, err
	}
	if tc, ok := c.(*net.TCPConn); ok {
		if err := tc.SetLinger(0); err != nil {
			_ = c.Close()
			return nil, err
		}
	}
	if cfg == nil {
		return c, nil
	}
	if d.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, d.Timeout)
		defer cancel()
	}
	tc := tls.Client(c, named(cfg, addr))
	if err := o.handshake(ctx, tc, addr, d); err != nil {
		_ = c.Close()
		return nil, &net.OpError{Op: "dial", Net: network(addr), Addr: c.RemoteAddr(), Err: err}
	}
	return tc, nil
}

// named completes a configuration with the name that the certificate must have.
func named(cfg *tls.Config, addr string) *tls.Config {
	if cfg.ServerName != "" {
		return cfg
	}
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		host = addr
	}
	cfg = cfg.Clone()
	cfg.ServerName = host
	return cfg
}

func (o *dialler) handshake(ctx context.Context, tc *tls.Conn, addr string, d *net.Dialer) error {
	if !o.opening.Load() {
		return tc.HandshakeContext(ctx)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	var look sync.WaitGroup
	look.Go(func() { // ends with the handshake
		select {
		case <-ctx.Done():
		case <-time.After(handshakeSilence):
			if answersPlain(ctx, addr, d) {
				cancel(errPlain)
			}
		}
	})
	err := tc.HandshakeContext(ctx)
	cancel(err) // the first cause counts
	look.Wait()
	if err != nil && errors.Is(context.Cause(ctx), errPlain) {
		return errPlain
	}
	return err
}

// probe makes a connection of its own, for one question, and ends it.
func probe(ctx context.Context, addr string, d *net.Dialer, ask func(c net.Conn) error) error {
	c, err := d.DialContext(ctx, network(addr), addr)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }() // The answer is all that is wanted.
	defer context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })()
	return ask(c)
}

// answersPlain reports whether a server answers at addr without TLS. It sends no
// secret: any answer will do, a refusal too.
func answersPlain(ctx context.Context, addr string, d *net.Dialer) bool {
	var b [1]byte
	_ = probe(ctx, addr, d, func(c net.Conn) error { // Without an answer b is 0.
		_, _ = c.Write([]byte("PING\r\n"))
		_, err := c.Read(b[:])
		return err
	})
	return b[0] == '+' || b[0] == '-'
}

// answersTLS reports whether a server speaks TLS at addr, whatever its certificate.
func answersTLS(ctx context.Context, addr string, d *net.Dialer) bool {
	err := probe(ctx, addr, d, func(c net.Conn) error {
		//nolint:gosec // Nothing is sent: the question is only which protocol the port speaks.
		return tls.Client(c, &tls.Config{InsecureSkipVerify: true}).HandshakeContext(ctx)
	})
	return err == nil || isAlert(err)
}

// alertOf connects as dial does and returns why that, or the first answer, fails. With TLS 1.3 the alert by which
// a server refuses the client's certificate comes that late, and may be lost if something is written meanwhile.
func alertOf(ctx context.Context, addr string, d *net.Dialer, cfg *tls.Config) error {
	return probe(ctx, addr, d, func(c net.Conn) error {
		var b [1]byte
		_, err := tls.Client(c, named(cfg, addr)).Read(b[:]) // makes the handshake; the server doesn't speak first
		return err
	})
}

// isAlert reports whether err is a TLS alert that the other side has sent.
func isAlert(err error) bool {
	for ; err != nil; err = errors.Unwrap(err) {
		if op, ok := err.(*net.OpError); ok && op.Op == "remote error" { //nolint:errorlint // the outer one says "dial"
			return true
		}
	}
	return false
}

// greeting is what a server says before it is asked, and before it closes: that it has
// no place, or that it serves its own machine only. "" if it says nothing.
func greeting(ctx context.Context, addr string, d *net.Dialer, cfg *tls.Config) string {
	var line string
	err := probe(ctx, addr, d, func(c net.Conn) (err error) {
		if cfg != nil {
			c = tls.Client(c, named(cfg, addr))
		}
		line, err = bufio.NewReader(io.LimitReader(c, 4096)).ReadString('\n')
		return err
	})
	if err != nil || line[0] != '-' {
		return ""
	}
	return strings.TrimPrefix(strings.TrimSpace(line[1:]), "ERR ")
}
