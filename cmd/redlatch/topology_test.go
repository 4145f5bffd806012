//go:build unix

package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/testbed"
)

// everywhere uses the commands on a deployment that is found by a URL.
func everywhere(t *testing.T, c *redlatch.Client, doctor string, flags ...string) {
	t.Helper()
	run := func(args ...string) (int, string, string) { return callWith(t, "", nil, append(flags, args...)...) }
	var holds []redlatch.Hold
	for i := range 8 {
		holds = append(holds, hold(t, c.RLock(fmt.Sprintf("k%d", i))))
	}
	st, out, errs := run("ls", "k*", "-o", "json")
	var list []redlatch.Inspection
	if err := json.Unmarshal([]byte(out), &list); err != nil || st != 0 || len(list) != 8 || list[0].Holders[0].Client != c.Name() {
		t.Errorf("ls: %d, %d locks %s", st, len(list), errs)
	}
	if st, out, errs := run("show", "k3"); st != 0 || !strings.Contains(out, c.Name()) {
		t.Errorf("show: %d %s%s", st, out, errs)
	}
	if st, out, errs := run("run", "job", "--kind", "fair", "--", "true"); st != 0 {
		t.Errorf("run: %d %s%s", st, out, errs)
	}
	if st, _, errs := run("unlock", "k0", "--owner", c.Name(), "--yes"); st != 0 {
		t.Errorf("unlock: %d %s", st, errs)
	}
	if st, out, errs := run("doctor", "--need", "reentrant,fair,read-write,operators"); st != 0 || !strings.Contains(out, doctor) {
		t.Errorf("doctor: %d\n%s%s", st, out, errs)
	}
	for _, h := range holds[1:] {
		unlock(t, h)
	}
	_ = holds[0].Unlock(t.Context())
}

func TestCluster(t *testing.T) {
	cl := testbed.Cluster(t)
	addrs := cl.Addrs()
	cfg := redlatch.Config{Name: "shop/1"}
	cfg.Redis.InitAddress = addrs
	c, err := redlatch.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	everywhere(t, c, "Cluster of 3 masters, 16384 of 16384 slots", "--url", "redis://"+addrs[0]+"?addr="+addrs[1])
	eachRight(t, "cluster", cl.Nodes(), "redis://"+addrs[0]+"?addr="+addrs[1])
	if st, _, errs := callWith(t, "", nil, "top", "--listen", "--url", "redis://"+addrs[0]); st != exitUsage {
		t.Errorf("%d %s", st, errs)
	}
}

func TestSentinel(t *testing.T) {
	se := testbed.Sentinel(t)
	addrs := se.SentinelAddrs()
	cfg := redlatch.Config{Name: "shop/1", Redis: rueidis.ClientOption{InitAddress: addrs, Sentinel: rueidis.SentinelOption{MasterSet: testbed.MasterName}}}
	c, err := redlatch.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	url := "redis://" + addrs[0] + "?addr=" + addrs[1] + "&master_set=" + testbed.MasterName
	everywhere(t, c, "topology: Sentinel", "--url", url)
	eachRight(t, "sentinel", append(se.Replicas(), se.Master()), url)
}

func TestTLS(t *testing.T) {
	dir := t.TempDir()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	write := func(name, typ string, der []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: typ, Bytes: der}), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	cert, keyFile := write("cert.pem", "CERTIFICATE", der), write("key.pem", "EC PRIVATE KEY", private)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(ln.Addr().String())
	_ = ln.Close()
	s := testbed.Standalone(t, "--tls-port", port, "--tls-cert-file", cert, "--tls-key-file", keyFile, "--tls-ca-cert-file", cert)
	c := client(t, s, named("shop/1"))
	url := "rediss://127.0.0.1:" + port
	everywhere(t, c, "0 problem(s)", "--url", url, "--tls-ca", cert, "--tls-cert", cert, "--tls-key", keyFile)
	if st, _, errs := callWith(t, "", nil, "show", "x", "--url", url, "--tls-cert", cert, "--tls-key", keyFile); st == 0 || st == exitUsage || !strings.Contains(errs, "certificate") {
		t.Errorf("a certificate that nobody knows: %d %s", st, errs)
	}
	if st, _, errs := callWith(t, "", nil, "show", "x", "--url", "redis://127.0.0.1:"+port, "--tls-ca", cert); st != exitUsage {
		t.Errorf("TLS flags without TLS: %d %s", st, errs)
	}
}
