package testbed

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"time"
)

// Authority is a CA made for one test. What it signs is valid for an hour.
type Authority struct {
	Cert *x509.Certificate
	File string // of Cert
	key  *ecdsa.PrivateKey
}

// NewAuthority makes one.
func NewAuthority(tb TB) *Authority {
	tb.Helper()
	a := &Authority{key: newKey(tb)}
	template := certificate(tb, "redlatch test CA")
	template.IsCA, template.BasicConstraintsValid, template.KeyUsage = true, true, x509.KeyUsageCertSign
	raw, err := x509.CreateCertificate(rand.Reader, template, template, &a.key.PublicKey, a.key)
	Must(tb, err)
	a.Cert, err = x509.ParseCertificate(raw)
	Must(tb, err)
	a.File = writePEM(tb, "CERTIFICATE", raw)
	return a
}

// Issue signs a certificate for this machine's loopback addresses, for servers and clients, and changes it before as
// change says, if that is not nil. It returns the files of the certificate and its key, which go with the test.
func (a *Authority) Issue(tb TB, change func(*x509.Certificate)) (cert, key string) {
	tb.Helper()
	private, template := newKey(tb), certificate(tb, "redlatch test")
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	template.DNSNames, template.IPAddresses = []string{"localhost"}, []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback}
	if change != nil {
		change(template)
	}
	raw, err := x509.CreateCertificate(rand.Reader, template, a.Cert, &private.PublicKey, a.key)
	Must(tb, err)
	pkcs8, err := x509.MarshalPKCS8PrivateKey(private)
	Must(tb, err)
	return writePEM(tb, "CERTIFICATE", raw), writePEM(tb, "PRIVATE KEY", pkcs8)
}

func certificate(tb TB, name string) *x509.Certificate {
	tb.Helper()
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	Must(tb, err)
	return &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
}

func newKey(tb TB) *ecdsa.PrivateKey {
	tb.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	Must(tb, err)
	return key
}

func writePEM(tb TB, kind string, raw []byte) (file string) {
	tb.Helper()
	f, err := os.CreateTemp("", "redlatch-*.pem")
	Must(tb, err)
	tb.Cleanup(func() { _ = os.Remove(f.Name()) })
	Must(tb, pem.Encode(f, &pem.Block{Type: kind, Bytes: raw}))
	Must(tb, f.Close())
	return f.Name()
}
