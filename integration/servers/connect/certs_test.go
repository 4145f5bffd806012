package connect

import (
	"crypto/tls"
	"crypto/x509"
	"testing"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/testbed"
)

// authority makes settings of clients of those that trust it.
type authority struct{ *testbed.Authority }

func newAuthority(t *testing.T) *authority { t.Helper(); return &authority{testbed.NewAuthority(t)} }

// secure has the test's servers speak TLS, with certificates of a new CA.
func secure(t *testing.T, clientCert bool, change func(*x509.Certificate)) *authority {
	t.Helper()
	a := newAuthority(t)
	cert, key := a.Issue(t, change)
	testbed.UseTLS(t, testbed.TLS{Cert: cert, Key: key, CA: a.File, ClientCert: clientCert})
	return a
}

// trusts makes a client's TLS settings: it trusts this CA, and shows a certificate of
// shows if that is not nil.
func (a *authority) trusts(t *testing.T, shows *authority) *tls.Config {
	t.Helper()
	cfg := &tls.Config{RootCAs: x509.NewCertPool(), MinVersion: tls.VersionTLS12}
	cfg.RootCAs.AddCert(a.Cert)
	if shows != nil {
		pair, err := tls.LoadX509KeyPair(shows.Issue(t, nil))
		testbed.Must(t, err)
		cfg.Certificates = []tls.Certificate{pair}
	}
	return cfg
}

// trusting puts a CA, and a certificate of it, into what a URL of rediss:// has made.
func (a *authority) trusting(t *testing.T, shows *authority) func(*redlatch.Config) {
	t.Helper()
	cfg := a.trusts(t, shows)
	return func(c *redlatch.Config) {
		c.Redis.TLSConfig.RootCAs, c.Redis.TLSConfig.Certificates = cfg.RootCAs, cfg.Certificates
	}
}

// unshown is trusting without a certificate.
func (a *authority) unshown(t *testing.T) func(*redlatch.Config) {
	t.Helper()
	return a.trusting(t, nil)
}
