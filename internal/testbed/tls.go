package testbed

import (
	"context"
	"net"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"time"
)

// TLS says how servers speak TLS: with clients and among themselves.
type TLS struct {
	Cert, Key, CA string // files; CA signs the certificates that the server accepts
	ClientCert    bool   // clients need a certificate
}

func (c *TLS) args(port int) []string {
	auth := "no"
	if c.ClientCert {
		auth = "yes"
	}
	return []string{
		"--tls-port", strconv.Itoa(port), "--tls-cert-file", c.Cert, "--tls-key-file", c.Key, "--tls-ca-cert-file", c.CA,
		"--tls-auth-clients", auth, "--tls-replication", "yes", "--tls-cluster", "yes",
	}
}

var withTLS sync.Map // program: bool

// speaksTLS asks a server program, by settings with which it can't start, whether it
// knows those of TLS.
func speaksTLS(tb TB) bool {
	tb.Helper()
	program, err := programFor(tb)
	if err != nil {
		tb.Fatalf("%v", err)
	}
	if known, ok := withTLS.Load(program); ok {
		return known.(bool)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, "--port", "0", "--tls-port", "0", "--save", "")
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	if err == nil || ctx.Err() != nil {
		tb.Fatalf("testbed: %s started without a port: %v\n%s", program, err, out)
	}
	known := !strings.Contains(string(out), "CONFIG FILE ERROR")
	withTLS.Store(program, known)
	return known
}

var secured sync.Map // TB: *TLS

// UseTLS has all servers that tb asks for speak TLS at [Server.TLSAddr], and only TLS
// among themselves. The plain port stays open for the test bed. It holds for tb
// itself, not for its subtests.
//
// It skips the test if the server was built without TLS.
func UseTLS(tb TB, c TLS) {
	tb.Helper()
	if !speaksTLS(tb) {
		Skip(tb, "on %s: it was built without TLS", ServerVersion(tb))
	}
	secured.Store(tb, &c)
	tb.Cleanup(func() { secured.Delete(tb) })
}

func tlsFor(tb TB) *TLS {
	if c, ok := secured.Load(tb); ok {
		return c.(*TLS)
	}
	return nil
}

// TLSAddr returns host:port where the server speaks TLS; see [UseTLS].
func (s *Server) TLSAddr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.tlsPort)) }

// peerPort is the port at which other servers, and clients, are to find this one.
func (s *Server) peerPort() int {
	if s.tls != nil {
		return s.tlsPort
	}
	return s.port
}

func (s *Server) peerAddr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.peerPort())) }
