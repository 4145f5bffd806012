package testbed

import (
	"net"
	"strconv"
	"sync"
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

var secured sync.Map // TB: *TLS

// UseTLS has all servers that tb asks for speak TLS at [Server.TLSAddr], and only TLS
// among themselves. The plain port stays open for the test bed. It holds for tb
// itself, not for its subtests.
func UseTLS(tb TB, c TLS) {
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
