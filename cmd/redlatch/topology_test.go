//go:build unix

package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/testbed"
)

// everywhere uses the commands on a deployment that is found by a URL.
func everywhere(t *testing.T, c *redlatch.Client, doctor string, flags ...string) {
	t.Helper()
	run := func(args ...string) outcome { return call(t, nil, append(flags, args...)...) }
	var holds []redlatch.Hold
	for i := range 8 {
		holds = append(holds, hold(t, c.RLock(fmt.Sprintf("k%d", i))))
	}
	list := decoded[[]redlatch.Inspection](t, run("ls", "k*", "-o", "json").ends(exitOK).out)
	if len(list) != 8 || list[0].Holders[0].Client != c.Name() {
		t.Errorf("ls: %+v", list)
	}
	several := hold(t, redlatch.MultiLock(c.RLock("m1"), c.RLock("m2"), c.RLock("m3"))) // on several nodes of a cluster
	if rows := run("ls", "m*", "--by", "owner").rows(); len(rows) != 1 || !strings.HasSuffix(rows[0], " 3 0 m1, m2, m3") {
		t.Errorf("ls --by owner: %q", rows)
	}
	unlock(t, several)
	run("show", "k3").ends(exitOK, c.Name())
	run("run", "job", "--kind", "fair", "--", "true").ends(exitOK)
	run("unlock", "k0", "--owner", c.Name(), "--yes").ends(exitOK)
	run("doctor", "--need", "reentrant,fair,read-write,operators").ends(exitOK, doctor)
	for _, h := range holds[1:] {
		unlock(t, h)
	}
	taken(t, holds[0])
}

// It runs alone, as TestSentinel does: nodes that get no time take each other for dead.
func TestCluster(t *testing.T) {
	cl := testbed.Cluster(t)
	addrs := cl.Addrs()
	url := "redis://" + addrs[0] + "?addr=" + addrs[1]
	c := client(t, nil, named("shop/1"), func(c *redlatch.Config) { c.Redis.InitAddress = addrs })
	everywhere(t, c, "Cluster of 3 masters, 16384 of 16384 slots", "--url", url)
	eachRight(t, "cluster", cl.Nodes(), url)
	call(t, nil, "top", "--listen", "--url", url).fails(exitUsage)
}

func TestSentinel(t *testing.T) {
	se := testbed.Sentinel(t)
	addrs := se.SentinelAddrs()
	url := "redis://" + addrs[0] + "?addr=" + addrs[1] + "&master_set=" + testbed.MasterName
	c := client(t, nil, named("shop/1"), func(c *redlatch.Config) {
		c.Redis.InitAddress, c.Redis.Sentinel.MasterSet = addrs, testbed.MasterName
	})
	everywhere(t, c, "topology: Sentinel", "--url", url)
	eachRight(t, "sentinel", append(se.Replicas(), se.Master()), url)
}

// certificate makes the files of one, which is its own authority, and of its key.
func certificate(t *testing.T) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	testbed.Must(t, err)
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, private.Public(), private)
	testbed.Must(t, err)
	secret, err := x509.MarshalECPrivateKey(private)
	testbed.Must(t, err)
	return fileOf(t, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))),
		fileOf(t, string(pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: secret})))
}

func TestTLS(t *testing.T) {
	t.Parallel()
	cert, key := certificate(t)
	testbed.UseTLS(t, testbed.TLS{Cert: cert, Key: key, CA: cert, ClientCert: true})
	s := testbed.Standalone(t)
	url := "rediss://" + s.TLSAddr()
	everywhere(t, client(t, s, named("shop/1")), "0 problem(s)", "--url", url, "--tls-ca", cert, "--tls-cert", cert, "--tls-key", key)
	// A certificate that nobody knows, none, and TLS flags without TLS.
	call(t, nil, "show", "x", "--url", url, "--tls-cert", cert, "--tls-key", key).fails(exitError, "certificate")
	call(t, nil, "show", "x", "--url", url, "--tls-ca", cert).fails(exitError, "certificate")
	call(t, nil, "show", "x", "--url", "redis://"+s.TLSAddr(), "--tls-ca", cert).fails(exitUsage)
}
