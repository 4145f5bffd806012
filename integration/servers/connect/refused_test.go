package connect

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/integration/bed"
	"github.com/redlatch/redlatch/internal/testbed"
)

// refusal is a way to connect that must fail, and what must be said about it.
type refusal struct {
	name   string
	open   func(t *testing.T) func() (*redlatch.Client, error)
	reason redlatch.ConnectReason // "" for ErrUnavailable
	says   []string
	server bool // errors.As finds the server's answer
}

// one makes options for a single server.
func one(addr string, change func(*rueidis.ClientOption)) func() (*redlatch.Client, error) {
	opt := rueidis.ClientOption{InitAddress: []string{addr}}
	if change != nil {
		change(&opt)
	}
	return with(opt)
}

var tlsRefusals = []refusal{
	{"wrong CA", func(t *testing.T) func() (*redlatch.Client, error) {
		testbed.UseTLS(t, newAuthority(t).serve(t, false, nil))
		return at("rediss://"+testbed.Standalone(t).TLSAddr(), newAuthority(t).trusting(t, nil))
	}, redlatch.ConnectTLS, []string{"TLSConfig.RootCAs"}, false},
	{"certificate for another name", func(t *testing.T) func() (*redlatch.Client, error) {
		ca := newAuthority(t)
		testbed.UseTLS(t, ca.serve(t, false, func(c *x509.Certificate) { c.DNSNames, c.IPAddresses = []string{"elsewhere"}, nil }))
		return at("rediss://"+testbed.Standalone(t).TLSAddr(), ca.trusting(t, nil))
	}, redlatch.ConnectTLS, []string{"TLSConfig.ServerName"}, false},
	{"certificate out of date", func(t *testing.T) func() (*redlatch.Client, error) {
		ca := newAuthority(t)
		testbed.UseTLS(t, ca.serve(t, false, func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) }))
		return at("rediss://"+testbed.Standalone(t).TLSAddr(), ca.trusting(t, nil))
	}, redlatch.ConnectTLS, []string{"out of date"}, false},
	{"no client certificate", func(t *testing.T) func() (*redlatch.Client, error) {
		ca := newAuthority(t)
		testbed.UseTLS(t, ca.serve(t, true, nil))
		return at("rediss://"+testbed.Standalone(t).TLSAddr(), ca.trusting(t, nil))
	}, redlatch.ConnectTLS, []string{"TLSConfig.Certificates"}, false},
	{"no client certificate, TLS 1.2", func(t *testing.T) func() (*redlatch.Client, error) {
		ca := newAuthority(t)
		testbed.UseTLS(t, ca.serve(t, true, nil))
		cfg := ca.trusts(t, nil)
		cfg.MaxVersion = tls.VersionTLS12
		return one(testbed.Standalone(t).TLSAddr(), func(o *rueidis.ClientOption) { o.TLSConfig = cfg })
	}, redlatch.ConnectTLS, []string{"TLSConfig.Certificates"}, false},
	{"client certificate of another CA", func(t *testing.T) func() (*redlatch.Client, error) {
		ca := newAuthority(t)
		testbed.UseTLS(t, ca.serve(t, true, nil))
		return at("rediss://"+testbed.Standalone(t).TLSAddr(), ca.trusting(t, newAuthority(t)))
	}, redlatch.ConnectTLS, []string{"TLSConfig.Certificates"}, false},
	{"no client certificate, Cluster", func(t *testing.T) func() (*redlatch.Client, error) {
		ca := newAuthority(t)
		testbed.UseTLS(t, ca.serve(t, true, nil))
		return with(rueidis.ClientOption{InitAddress: testbed.Cluster(t).Addrs(), TLSConfig: ca.trusts(t, nil)})
	}, redlatch.ConnectTLS, []string{"TLSConfig.Certificates"}, false},
	{"rediss to a plain port", func(t *testing.T) func() (*redlatch.Client, error) {
		return at("rediss://" + testbed.Standalone(t).Addr())
	}, redlatch.ConnectTLS, []string{"does not speak TLS", "redis://"}, false},
	{"rediss to a plain port that wants a password", func(t *testing.T) func() (*redlatch.Client, error) {
		return at("rediss://:s%20cret@" + protected(t).Addr())
	}, redlatch.ConnectTLS, []string{"does not speak TLS", "redis://"}, false},
	{"redis to a TLS port", func(t *testing.T) func() (*redlatch.Client, error) {
		testbed.UseTLS(t, newAuthority(t).serve(t, false, nil))
		return at("redis://" + testbed.Standalone(t).TLSAddr())
	}, redlatch.ConnectTLS, []string{"speaks TLS", "rediss://"}, false},
	{"redis to a TLS port that wants a client certificate", func(t *testing.T) func() (*redlatch.Client, error) {
		testbed.UseTLS(t, newAuthority(t).serve(t, true, nil))
		return at("redis://" + testbed.Standalone(t).TLSAddr())
	}, redlatch.ConnectTLS, []string{"speaks TLS", "rediss://"}, false},
	{"redis to TLS sentinels", func(t *testing.T) func() (*redlatch.Client, error) {
		testbed.UseTLS(t, newAuthority(t).serve(t, false, nil))
		return at("redis://" + testbed.Sentinel(t).SentinelAddrs()[0] + "?master_set=" + testbed.MasterName)
	}, redlatch.ConnectTLS, []string{"speaks TLS", "Sentinel.TLSConfig"}, false},
	{"Sentinel over TLS, wrong CA for the master", func(t *testing.T) func() (*redlatch.Client, error) {
		ca := newAuthority(t)
		testbed.UseTLS(t, ca.serve(t, false, nil))
		return with(rueidis.ClientOption{
			InitAddress: testbed.Sentinel(t).SentinelAddrs(), TLSConfig: newAuthority(t).trusts(t, nil),
			Sentinel: rueidis.SentinelOption{MasterSet: testbed.MasterName, TLSConfig: ca.trusts(t, nil)},
		})
	}, redlatch.ConnectTLS, []string{"TLSConfig.RootCAs"}, false},
}

var loginRefusals = []refusal{
	{"wrong password", func(t *testing.T) func() (*redlatch.Client, error) {
		return at("redis://:wrong@" + protected(t).Addr())
	}, redlatch.ConnectLogin, []string{"WRONGPASS", "Username and Password"}, true},
	{"wrong password, RESP2", func(t *testing.T) func() (*redlatch.Client, error) {
		return at("redis://:wrong@" + protected(t).Addr() + "?protocol=2")
	}, redlatch.ConnectLogin, []string{"WRONGPASS", "Username and Password"}, true},
	{"unknown user", func(t *testing.T) func() (*redlatch.Client, error) {
		return at("redis://nobody:pass@" + protected(t).Addr())
	}, redlatch.ConnectLogin, []string{"WRONGPASS"}, true},
	{"no password", func(t *testing.T) func() (*redlatch.Client, error) {
		return at("redis://" + protected(t).Addr())
	}, redlatch.ConnectLogin, []string{"wants a password", "NOAUTH"}, true},
	{"password where there is none, RESP2", func(t *testing.T) func() (*redlatch.Client, error) {
		return at("redis://:pass@" + testbed.Standalone(t).Addr() + "?protocol=2")
	}, redlatch.ConnectLogin, []string{"leave Password empty"}, true},
	{"a quorum's member with a wrong password", func(t *testing.T) func() (*redlatch.Client, error) {
		return one(protected(t).Addr(), func(o *rueidis.ClientOption) { o.ForceSingleClient, o.Password = true, "wrong" })
	}, redlatch.ConnectLogin, []string{"WRONGPASS"}, true},
	{"wrong password for the master, Sentinel", func(t *testing.T) func() (*redlatch.Client, error) {
		s := testbed.Sentinel(t)
		return with(rueidis.ClientOption{
			InitAddress: s.SentinelAddrs(), Username: "app", Password: "wrong",
			Sentinel: rueidis.SentinelOption{MasterSet: testbed.MasterName},
		})
	}, redlatch.ConnectLogin, []string{"WRONGPASS", "those in Sentinel"}, true},
	{"user without CLUSTER, Cluster", func(t *testing.T) func() (*redlatch.Client, error) {
		c := testbed.Cluster(t)
		for _, s := range c.Nodes() {
			addUser(t, s)
			s.Do(t, "ACL", "SETUSER", "app", "-cluster")
		}
		return with(rueidis.ClientOption{InitAddress: c.Addrs(), Username: "app", Password: "pass"})
	}, redlatch.ConnectPermission, []string{"docs/ACL.md", "NOPERM"}, true},
}

var otherRefusals = []refusal{
	{"no such database", func(t *testing.T) func() (*redlatch.Client, error) {
		return at("redis://" + testbed.Standalone(t).Addr() + "/99")
	}, redlatch.ConnectTopology, []string{"SelectDB"}, true},
	{"a sentinel taken for a server", func(t *testing.T) func() (*redlatch.Client, error) {
		return at("redis://" + testbed.Sentinel(t).SentinelAddrs()[0])
	}, redlatch.ConnectTopology, []string{"set Sentinel.MasterSet"}, false},
	{"a server taken for a sentinel", func(t *testing.T) func() (*redlatch.Client, error) {
		return at("redis://" + testbed.Standalone(t).Addr() + "?master_set=main")
	}, redlatch.ConnectTopology, []string{"not a sentinel"}, true},
	{"a cluster's node taken for a single server", func(t *testing.T) func() (*redlatch.Client, error) {
		return one(testbed.Cluster(t).Addrs()[0], func(o *rueidis.ClientOption) { o.ForceSingleClient = true })
	}, redlatch.ConnectTopology, []string{"node of a cluster", "ForceSingleClient"}, false},
	{"one node of a cluster, user without CLUSTER", func(t *testing.T) func() (*redlatch.Client, error) {
		s := testbed.Cluster(t).Nodes()[0]
		addUser(t, s)
		s.Do(t, "ACL", "SETUSER", "app", "-cluster")
		return at("redis://app:pass@" + s.Addr())
	}, redlatch.ConnectTopology, []string{"CLUSTER SLOTS", "docs/ACL.md"}, false},
	{"unknown master", func(t *testing.T) func() (*redlatch.Client, error) {
		return at("redis://" + testbed.Sentinel(t).SentinelAddrs()[0] + "?master_set=nobody")
	}, redlatch.ConnectTopology, []string{"no master named nobody"}, true},
	{"several servers that are no cluster", func(t *testing.T) func() (*redlatch.Client, error) {
		return with(rueidis.ClientOption{InitAddress: []string{testbed.Standalone(t).Addr(), testbed.Standalone(t).Addr()}})
	}, redlatch.ConnectTopology, []string{"not a cluster", "a Client each"}, true},
	{"Redis 5.0.14", func(t *testing.T) func() (*redlatch.Client, error) {
		return at("redis://" + pretend(t, "5.0.14", 5))
	}, redlatch.ConnectVersion, []string{"redis 5.0.14", "needs Redis 6.0.6"}, false},
	{"Redis 6.0.5", func(t *testing.T) func() (*redlatch.Client, error) {
		return at("redis://" + pretend(t, "6.0.5", 6))
	}, redlatch.ConnectVersion, []string{"redis 6.0.5", "needs Redis 6.0.6"}, false},
	{"nobody there", func(t *testing.T) func() (*redlatch.Client, error) {
		return at("redis://"+nobody(t), strict)
	}, "", []string{"server unavailable", "refused"}, false},
	{"no such socket", func(t *testing.T) func() (*redlatch.Client, error) {
		return at("unix://"+filepath.Join(t.TempDir(), "none.sock"), strict)
	}, "", []string{"server unavailable", "none.sock"}, false},
	{"a frozen server", func(t *testing.T) func() (*redlatch.Client, error) {
		s := testbed.Standalone(t)
		s.Freeze(t)
		t.Cleanup(func() { s.Thaw(t) })
		return one(s.Addr(), func(o *rueidis.ClientOption) { o.Dialer.Timeout = 500 * time.Millisecond })
	}, "", []string{"server unavailable"}, false},
	{"a frozen server, TLS", func(t *testing.T) func() (*redlatch.Client, error) {
		ca := newAuthority(t)
		testbed.UseTLS(t, ca.serve(t, false, nil))
		s := testbed.Standalone(t)
		s.Freeze(t)
		t.Cleanup(func() { s.Thaw(t) })
		return one(s.TLSAddr(), func(o *rueidis.ClientOption) { o.Dialer.Timeout, o.TLSConfig = time.Second, ca.trusts(t, nil) })
	}, "", []string{"server unavailable"}, false},
	{"no place for a connection", func(t *testing.T) func() (*redlatch.Client, error) {
		s := testbed.Standalone(t)
		s.Do(t, "CONFIG", "SET", "maxclients", "1") // the test bed's own
		t.Cleanup(func() { s.Do(t, "CONFIG", "SET", "maxclients", "100") })
		return at("redis://"+s.Addr(), strict)
	}, "", []string{"server unavailable", "max number of clients"}, false},
	{"protected mode", func(t *testing.T) func() (*redlatch.Client, error) {
		return at("redis://" + greets(t, "-DENIED Redis is running in protected mode because protected mode is enabled and no password is set for the default user.\r\n"))
	}, redlatch.ConnectPermission, []string{"its own machine only", "DENIED"}, true},
}

// strict has Open say that its server is not there.
func strict(c *redlatch.Config) { redlatch.MustConnect()(c) }

// nobody is an address at which nobody listens.
func nobody(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = l.Close() // Nothing was accepted.
	return l.Addr().String()
}

// TestRefusals: what only a change can mend is said at once, with what to change, and
// is not taken for an outage.
func TestRefusals(t *testing.T) {
	for _, group := range [][]refusal{tlsRefusals, loginRefusals, otherRefusals} {
		for _, tc := range group {
			t.Run(tc.name, func(t *testing.T) {
				open := tc.open(t)
				begin := time.Now()
				c, err := open()
				took := time.Since(begin)
				if err == nil {
					c.Close()
					t.Fatal("connected")
				}
				t.Logf("after %v: %v", took, err)
				if took > dialLimit/2 { // one node of a cluster may be slow on a busy machine
					t.Errorf("after %v", took)
				}
				check(t, tc, err)
			})
		}
	}
}

func check(t *testing.T, tc refusal, err error) {
	t.Helper()
	var refused *redlatch.ConnectError
	if got := errors.Is(err, redlatch.ErrUnavailable); got != (tc.reason == "") {
		t.Errorf("ErrUnavailable: %t", got)
	}
	if errors.As(err, &refused) {
		if refused.Reason != tc.reason {
			t.Errorf("reason %q, want %q", refused.Reason, tc.reason)
		}
		if refused.Node == "" || !strings.Contains(err.Error(), refused.Node) {
			t.Errorf("node %q", refused.Node)
		}
	} else if tc.reason != "" {
		t.Errorf("%T", err)
	}
	var answer *redlatch.ServerError
	if got := errors.As(err, &answer); got != tc.server {
		t.Errorf("ServerError: %t", got)
	}
	for _, say := range tc.says {
		if !strings.Contains(err.Error(), say) {
			t.Errorf("not said: %s", say)
		}
	}
	for e := err; e != nil; e = errors.Unwrap(e) {
		if _, own := e.(interface{ ErrorType() string }); own && strings.ContainsAny(e.Error(), "\r\n") || strings.Contains(e.Error(), `lock ""`) {
			t.Errorf("%T: %q", e, e)
		}
	}
}

// A server of the oldest version that is said to work is taken, and so is each newer one.
func TestTheOldestServerIsTaken(t *testing.T) {
	for _, version := range []string{"6.0.6", "6.2.0", "7.0.0-rc1", "10.0.1"} {
		t.Run(version, func(t *testing.T) {
			c, err := at("redis://" + pretend(t, version, 6))()
			if err != nil {
				t.Fatal(err)
			}
			c.Close()
		})
	}
}

// A standalone server may keep its version to itself; what it lacks its answers will say.
func TestAServerThatKeepsItsVersionToItself(t *testing.T) {
	c, err := at("redis://" + pretend(t, "", 6))()
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
}

// A cluster behind a proxy is taken for the single server that it is to everybody.
func TestAClusterBehindAProxyIsTaken(t *testing.T) {
	c, err := at("redis://" + proxied(t))()
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
}

// TestAnAddressOfAServerThatIsDown: a cluster is found as long as one of its addresses answers.
func TestAnAddressOfAServerThatIsDown(t *testing.T) {
	opt := rueidis.ClientOption{InitAddress: testbed.Cluster(t).Addrs()[:1]}
	for i := range 30 { // any of them may be asked
		opt.InitAddress = append(opt.InitAddress, fmt.Sprintf("127.0.0.%d:1", 2+i)) // nobody listens there
	}
	for range 4 {
		c, err := with(opt)()
		if err != nil {
			t.Fatal(err)
		}
		c.Close()
	}
}

// A client of a cluster that knows no node yet asks the servers that are up: the client library
// gives one out if an address refuses at the wrong moment. It asks an address at random then, and
// what was asked of the server that is down is asked of the others.
func TestAClientThatKnowsNoNodeYet(t *testing.T) {
	cluster := testbed.Cluster(t)
	c, err := redlatch.New(redlatch.Config{
		Redis: rueidis.ClientOption{InitAddress: cluster.Addrs()},
		ClientBuilder: func(opt rueidis.ClientOption) (rueidis.Client, error) {
			client, err := rueidis.NewClient(opt)
			return &newcomer{Client: client}, err
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	bed.Unlock(t, lock(t, c))
}

// newcomer knows no node of its cluster before its first command that has a key.
type newcomer struct {
	rueidis.Client
	knows atomic.Bool
}

// Do implements rueidis.Client.
func (n *newcomer) Do(ctx context.Context, cmd rueidis.Completed) rueidis.RedisResult {
	if cmd.Slot() < testbed.Slots {
		n.knows.Store(true)
	} else if !n.knows.Load() {
		gone, cancel := context.WithCancel(ctx)
		cancel()
		ctx = gone
	}
	return n.Client.Do(ctx, cmd)
}

// Nodes implements rueidis.Client.
func (n *newcomer) Nodes() map[string]rueidis.Client {
	if !n.knows.Load() {
		return nil
	}
	return n.Client.Nodes()
}

// After a refusal no connection stays open, and none is made later.
func TestNothingIsLeftAfterARefusal(t *testing.T) {
	s := protected(t)
	for _, url := range []string{"redis://:wrong@" + s.Addr(), "redis://" + s.Addr(), "redis://:s%20cret@" + s.Addr() + "/99", "rediss://" + s.Addr()} {
		if c, err := at(url)(); err == nil {
			c.Close()
			t.Errorf("%s: connected", url)
		}
	}
	before := s.Info(t, "stats")["total_connections_received"]
	time.Sleep(1500 * time.Millisecond) // the client library's own look at the cluster comes after a second
	if after := s.Info(t, "stats")["total_connections_received"]; after != before {
		t.Errorf("connections received: %s, later %s", before, after)
	}
	for _, line := range strings.Split(s.Text(t, "CLIENT", "LIST"), "\n") {
		if line != "" && !strings.Contains(line, "name=redlatch-testbed") {
			t.Errorf("left: %s", line)
		}
	}
}

// A password that is changed later is told to the next call, at once: no retry helps.
func TestAPasswordThatIsChangedLater(t *testing.T) {
	s := protected(t)
	c, err := at("redis://app:pass@" + s.Addr())()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	bed.Unlock(t, lock(t, c))
	s.Do(t, "ACL", "SETUSER", "app", "resetpass", ">other")
	s.Do(t, "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
	// What was under way as the connection ended may have been lost: that is transient.
	for end := time.Now().Add(bed.Patience); ; {
		_, err = c.RLock(name).TryLock(t.Context(), 0, 0)
		var answer *redlatch.ServerError
		if errors.As(err, &answer) {
			if answer.ErrorType() != "wrongpass" || errors.Is(err, redlatch.ErrUnavailable) {
				t.Errorf("%s: %v", answer.ErrorType(), err)
			}
			return
		}
		if err == nil || time.Now().After(end) {
			t.Fatalf("%v", err)
		}
	}
}
