package connect

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/testbed"
)

// authority is a CA made for one test.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	file string
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{key: newKey(t)}
	template := certificate(t, "redlatch test CA")
	template.IsCA, template.BasicConstraintsValid, template.KeyUsage = true, true, x509.KeyUsageCertSign
	raw, err := x509.CreateCertificate(rand.Reader, template, template, &a.key.PublicKey, a.key)
	testbed.Must(t, err)
	if a.cert, err = x509.ParseCertificate(raw); err != nil {
		t.Fatal(err)
	}
	a.file = write(t, "CERTIFICATE", raw)
	return a
}

// certificate is valid for an hour.
func certificate(t *testing.T, name string) *x509.Certificate {
	t.Helper()
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	testbed.Must(t, err)
	return &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
}

// issue signs a certificate for this machine's loopback addresses, and changes it
// before as change says. It returns the files of the certificate and its key.
func (a *authority) issue(t *testing.T, change func(*x509.Certificate)) (cert, key string) {
	t.Helper()
	private, template := newKey(t), certificate(t, "redlatch test")
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	template.DNSNames, template.IPAddresses = []string{"localhost"}, []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback}
	if change != nil {
		change(template)
	}
	raw, err := x509.CreateCertificate(rand.Reader, template, a.cert, &private.PublicKey, a.key)
	testbed.Must(t, err)
	pkcs8, err := x509.MarshalPKCS8PrivateKey(private)
	testbed.Must(t, err)
	return write(t, "CERTIFICATE", raw), write(t, "PRIVATE KEY", pkcs8)
}

// secure has the test's servers speak TLS, with certificates of a new CA.
func secure(t *testing.T, clientCert bool, change func(*x509.Certificate)) *authority {
	t.Helper()
	a := newAuthority(t)
	cert, key := a.issue(t, change)
	testbed.UseTLS(t, testbed.TLS{Cert: cert, Key: key, CA: a.file, ClientCert: clientCert})
	return a
}

// trusts makes a client's TLS settings: it trusts this CA, and shows a certificate of
// shows if that is not nil.
func (a *authority) trusts(t *testing.T, shows *authority) *tls.Config {
	t.Helper()
	cfg := &tls.Config{RootCAs: x509.NewCertPool(), MinVersion: tls.VersionTLS12}
	cfg.RootCAs.AddCert(a.cert)
	if shows != nil {
		pair, err := tls.LoadX509KeyPair(shows.issue(t, nil))
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

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	testbed.Must(t, err)
	return key
}

func write(t *testing.T, kind string, raw []byte) (file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "a.pem")
	testbed.Must(t, os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: raw}), 0o600))
	return file
}
