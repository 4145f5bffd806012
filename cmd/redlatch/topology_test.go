//go:build unix

package main

import (
	"fmt"
	"strings"
	"testing"

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
	unlock(t, holds[1:]...)
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

func TestTLS(t *testing.T) {
	t.Parallel()
	a := testbed.NewAuthority(t)
	cert, key := a.Issue(t, nil)
	testbed.UseTLS(t, testbed.TLS{Cert: cert, Key: key, CA: a.File, ClientCert: true})
	s := testbed.Standalone(t)
	url := "rediss://" + s.TLSAddr()
	everywhere(t, client(t, s, named("shop/1")), "0 problem(s)", "--url", url, "--tls-ca", a.File, "--tls-cert", cert, "--tls-key", key)
	// A certificate that nobody knows, none, and TLS flags without TLS.
	call(t, nil, "show", "x", "--url", url, "--tls-cert", cert, "--tls-key", key).fails(exitError, "certificate")
	call(t, nil, "show", "x", "--url", url, "--tls-ca", a.File).fails(exitError, "certificate")
	call(t, nil, "show", "x", "--url", "redis://"+s.TLSAddr(), "--tls-ca", a.File).fails(exitUsage)
}
