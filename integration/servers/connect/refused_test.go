package connect

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
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
	open   opening
	reason redlatch.ConnectReason // "" for ErrUnavailable
	says   []string
	server bool // errors.As finds the server's answer
}

func (a *authority) another(t *testing.T) func(*redlatch.Config) {
	t.Helper()
	return newAuthority(t).trusting(t, nil)
}

func (a *authority) shownAnothers(t *testing.T) func(*redlatch.Config) {
	t.Helper()
	return a.trusting(t, newAuthority(t))
}

func (a *authority) oldTLS(t *testing.T) func(*redlatch.Config) {
	t.Helper()
	trust := a.trusting(t, nil)
	return func(c *redlatch.Config) { trust(c); c.Redis.TLSConfig.MaxVersion = tls.VersionTLS12 }
}

// tlsRefusals need a client with other TLS settings, or none.
var tlsRefusals = []refusal{
	{"wrong CA", secured(false, nil, (*authority).another), redlatch.ConnectTLS, []string{"TLSConfig.RootCAs"}, false},
	{"certificate for another name", secured(false, func(c *x509.Certificate) {
		c.DNSNames, c.IPAddresses = []string{"elsewhere"}, nil
	}, (*authority).unshown), redlatch.ConnectTLS, []string{"TLSConfig.ServerName"}, false},
	{"certificate out of date", secured(false, func(c *x509.Certificate) {
		c.NotAfter = time.Now().Add(-time.Minute)
	}, (*authority).unshown), redlatch.ConnectTLS, []string{"out of date"}, false},
	{"no client certificate", secured(true, nil, (*authority).unshown), redlatch.ConnectTLS, []string{"TLSConfig.Certificates"}, false},
	{"no client certificate, TLS 1.2", secured(true, nil, (*authority).oldTLS), redlatch.ConnectTLS, []string{"TLSConfig.Certificates"}, false},
	{
		"client certificate of another CA", secured(true, nil, (*authority).shownAnothers),
		redlatch.ConnectTLS, []string{"TLSConfig.Certificates"}, false,
	},
	{"no client certificate, Cluster", by(func(t *testing.T) rueidis.ClientOption {
		ca := secure(t, true, nil)
		return rueidis.ClientOption{InitAddress: testbed.Cluster(t).Addrs(), TLSConfig: ca.trusts(t, nil)}
	}), redlatch.ConnectTLS, []string{"TLSConfig.Certificates"}, false},
	{"rediss to a plain port", to(plainAt, "rediss://%s"), redlatch.ConnectTLS, []string{"does not speak TLS", "redis://"}, false},
	{
		"rediss to a plain port that wants a password", to(protectedAt, "rediss://:s%%20cret@%s"),
		redlatch.ConnectTLS, []string{"does not speak TLS", "redis://"}, false,
	},
	{"redis to a TLS port", to(tlsAt(false), "redis://%s"), redlatch.ConnectTLS, []string{"speaks TLS", "rediss://"}, false},
	{
		"redis to a TLS port that wants a client certificate", to(tlsAt(true), "redis://%s"),
		redlatch.ConnectTLS, []string{"speaks TLS", "rediss://"}, false,
	},
	{"redis to TLS sentinels", func(t *testing.T) opener {
		secure(t, false, nil)
		return to(sentinelAt, "redis://%s?master_set="+testbed.MasterName)(t)
	}, redlatch.ConnectTLS, []string{"speaks TLS", "Sentinel.TLSConfig"}, false},
	{"Sentinel over TLS, wrong CA for the master", by(func(t *testing.T) rueidis.ClientOption {
		ca := secure(t, false, nil)
		opt := sentinel(testbed.Sentinel(t))
		opt.TLSConfig, opt.Sentinel.TLSConfig = newAuthority(t).trusts(t, nil), ca.trusts(t, nil)
		return opt
	}), redlatch.ConnectTLS, []string{"TLSConfig.RootCAs"}, false},
}

var loginRefusals = []refusal{
	{"wrong password", to(protectedAt, "redis://:wrong@%s"), redlatch.ConnectLogin, []string{"WRONGPASS", "Username and Password"}, true},
	{
		"wrong password, RESP2", to(protectedAt, "redis://:wrong@%s?protocol=2"),
		redlatch.ConnectLogin, []string{"WRONGPASS", "Username and Password"}, true,
	},
	{"unknown user", to(protectedAt, "redis://nobody:pass@%s"), redlatch.ConnectLogin, []string{"WRONGPASS"}, true},
	{"no password", to(protectedAt, "redis://%s"), redlatch.ConnectLogin, []string{"wants a password", "NOAUTH"}, true},
	{
		"password where there is none, RESP2", to(plainAt, "redis://:pass@%s?protocol=2"),
		redlatch.ConnectLogin, []string{"leave Password empty"}, true,
	},
	{"a quorum's member with a wrong password", one(protectedAt, func(o *rueidis.ClientOption) {
		o.ForceSingleClient, o.Password = true, "wrong"
	}), redlatch.ConnectLogin, []string{"WRONGPASS"}, true},
	{"wrong password for the master, Sentinel", by(func(t *testing.T) rueidis.ClientOption {
		opt := sentinel(testbed.Sentinel(t))
		opt.Username, opt.Password = "app", "wrong"
		return opt
	}), redlatch.ConnectLogin, []string{"WRONGPASS", "those in Sentinel"}, true},
	{"user without CLUSTER, Cluster", by(func(t *testing.T) rueidis.ClientOption {
		return rueidis.ClientOption{InitAddress: withoutCluster(t), Username: "app", Password: "pass"}
	}), redlatch.ConnectPermission, []string{"docs/ACL.md", "NOPERM"}, true},
}

// withoutCluster are the nodes of a cluster whose user may not ask about it.
func withoutCluster(t *testing.T) []string {
	t.Helper()
	c := testbed.Cluster(t)
	for _, s := range c.Nodes() {
		addUser(t, s)
		s.Do(t, "ACL", "SETUSER", "app", "-cluster")
	}
	return c.Addrs()
}

var otherRefusals = []refusal{
	{"no such database", to(plainAt, "redis://%s/99"), redlatch.ConnectTopology, []string{"SelectDB"}, true},
	{"a sentinel taken for a server", to(sentinelAt, "redis://%s"), redlatch.ConnectTopology, []string{"set Sentinel.MasterSet"}, false},
	{"a server taken for a sentinel", to(plainAt, "redis://%s?master_set=main"), redlatch.ConnectTopology, []string{"not a sentinel"}, true},
	{"a cluster's node taken for a single server", one(func(t *testing.T) string {
		return testbed.Cluster(t).Addrs()[0]
	}, func(o *rueidis.ClientOption) { o.ForceSingleClient = true }), redlatch.ConnectTopology, []string{"node of a cluster", "ForceSingleClient"}, false},
	{"one node of a cluster, user without CLUSTER", to(func(t *testing.T) string {
		return withoutCluster(t)[0]
	}, "redis://app:pass@%s"), redlatch.ConnectTopology, []string{"CLUSTER SLOTS", "docs/ACL.md"}, false},
	{"unknown master", to(sentinelAt, "redis://%s?master_set=nobody"), redlatch.ConnectTopology, []string{"no master named nobody"}, true},
	{"several servers that are no cluster", by(func(t *testing.T) rueidis.ClientOption {
		return rueidis.ClientOption{InitAddress: []string{plainAt(t), plainAt(t)}}
	}), redlatch.ConnectTopology, []string{"not a cluster", "a Client each"}, true},
	{"Redis 5.0.14", to(pretend("5.0.14", 5), "redis://%s"), redlatch.ConnectVersion, []string{"redis 5.0.14", "needs Redis 6.0.6"}, false},
	{"Redis 6.0.5", to(pretend("6.0.5", 6), "redis://%s"), redlatch.ConnectVersion, []string{"redis 6.0.5", "needs Redis 6.0.6"}, false},
	{"nobody there", to(nobodyAt, "redis://%s", strict), "", []string{"server unavailable", "refused"}, false},
	{"no such socket", func(t *testing.T) opener {
		return at("unix://"+t.TempDir()+"/none.sock", strict)
	}, "", []string{"server unavailable", "none.sock"}, false},
	{"a frozen server", one(func(t *testing.T) string {
		return frozen(t).Addr()
	}, func(o *rueidis.ClientOption) { o.Dialer.Timeout = 500 * time.Millisecond }), "", []string{"server unavailable"}, false},
	{"a frozen server, TLS", by(func(t *testing.T) rueidis.ClientOption {
		ca := secure(t, false, nil)
		return rueidis.ClientOption{
			InitAddress: []string{frozen(t).TLSAddr()}, TLSConfig: ca.trusts(t, nil), Dialer: net.Dialer{Timeout: time.Second},
		}
	}), "", []string{"server unavailable"}, false},
	{"no place for a connection", to(func(t *testing.T) string {
		s := testbed.Standalone(t)
		s.Do(t, "CONFIG", "SET", "maxclients", "1") // the test bed's own
		t.Cleanup(func() { s.Do(t, "CONFIG", "SET", "maxclients", "100") })
		return s.Addr()
	}, "redis://%s", strict), "", []string{"server unavailable", "max number of clients"}, false},
	{"protected mode", to(
		greets("-DENIED Redis is running in protected mode because protected mode is enabled and no password is set for the default user.\r\n"),
		"redis://%s"), redlatch.ConnectPermission, []string{"its own machine only", "DENIED"}, true},
}

// strict has Open say that its server is not there.
func strict(c *redlatch.Config) { redlatch.MustConnect()(c) }

// nobodyAt is an address at which nobody listens.
func nobodyAt(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	testbed.Must(t, err)
	_ = l.Close() // Nothing was accepted.
	return l.Addr().String()
}

func frozen(t *testing.T) *testbed.Server {
	t.Helper()
	s := testbed.Standalone(t)
	s.Freeze(t)
	t.Cleanup(func() { s.Thaw(t) })
	return s
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
	testbed.Equal(t, errors.Is(err, redlatch.ErrUnavailable), (tc.reason == ""), "ErrUnavailable")
	refused, is := errors.AsType[*redlatch.ConnectError](err)
	if !is && tc.reason != "" || is && (refused.Reason != tc.reason || refused.Node == "" || !strings.Contains(err.Error(), refused.Node)) {
		t.Errorf("%T: %+v, want the reason %q", err, refused, tc.reason)
	}
	if _, got := errors.AsType[*redlatch.ServerError](err); got != tc.server {
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

// What can be worked with is taken: the oldest version that is said to work, and each newer one; a server that keeps
// its version to itself, since what it lacks its answers will say; a cluster behind a proxy, for the single server that
// it is to everybody; and a cluster as long as one of its addresses answers.
func TestWhatIsTaken(t *testing.T) {
	for what, open := range map[string]opening{
		"6.0.6":                    to(pretend("6.0.6", 6), "redis://%s"),
		"6.2.0":                    to(pretend("6.2.0", 6), "redis://%s"),
		"7.0.0-rc1":                to(pretend("7.0.0-rc1", 6), "redis://%s"),
		"10.0.1":                   to(pretend("10.0.1", 6), "redis://%s"),
		"a secret version":         to(pretend("", 6), "redis://%s"),
		"a cluster behind a proxy": to(answers(proxied), "redis://%s"),
		"one address of a cluster": by(func(t *testing.T) rueidis.ClientOption {
			opt := rueidis.ClientOption{InitAddress: testbed.Cluster(t).Addrs()[:1]}
			for i := range 30 { // any of them may be asked
				opt.InitAddress = append(opt.InitAddress, fmt.Sprintf("127.0.0.%d:1", 2+i)) // nobody listens there
			}
			return opt
		}),
	} {
		t.Run(what, func(t *testing.T) {
			o := open(t)
			for range 4 {
				c, err := o()
				testbed.Must(t, err)
				c.Close()
			}
		})
	}
}

// A client of a cluster that knows no node yet asks the servers that are up: the client library
// gives one out if an address refuses at the wrong moment. It asks an address at random then, and
// what was asked of the server that is down is asked of the others.
func TestAClientThatKnowsNoNodeYet(t *testing.T) {
	c, err := redlatch.New(redlatch.Config{
		Redis: rueidis.ClientOption{InitAddress: testbed.Cluster(t).Addrs()},
		ClientBuilder: func(opt rueidis.ClientOption) (rueidis.Client, error) {
			client, err := rueidis.NewClient(opt)
			return &newcomer{Client: client}, err
		},
	})
	testbed.Must(t, err)
	defer c.Close()
	bed.Unlock(t, bed.Lock(t, t.Context(), c.RLock(name)))
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
	testbed.Equal(t, s.Info(t, "stats")["total_connections_received"], before, "connections received, later")
	for line := range strings.Lines(s.Text(t, "CLIENT", "LIST")) {
		if !strings.Contains(line, "name=redlatch-testbed") {
			t.Errorf("left: %s", line)
		}
	}
}

// A password that is changed later is told to the next call, at once: no retry helps.
func TestAPasswordThatIsChangedLater(t *testing.T) {
	s := protected(t)
	c, err := at("redis://app:pass@" + s.Addr())()
	testbed.Must(t, err)
	defer c.Close()
	bed.Unlock(t, bed.Lock(t, t.Context(), c.RLock(name)))
	s.Do(t, "ACL", "SETUSER", "app", "resetpass", ">other")
	s.Do(t, "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
	// What was under way as the connection ended may have been lost: that is transient.
	bed.Eventually(t, "the answer", func() bool {
		h, err := c.RLock(name).TryLock(t.Context(), 0, 0)
		if err == nil {
			t.Fatalf("the connection goes on: %v", h)
		}
		answer, is := errors.AsType[*redlatch.ServerError](err)
		if is && (answer.ErrorType() != "wrongpass" || errors.Is(err, redlatch.ErrUnavailable)) {
			t.Errorf("%s: %v", answer.ErrorType(), err)
		}
		return is
	})
}
