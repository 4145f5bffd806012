package connect

import (
	"crypto/x509"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/integration/bed"
	"github.com/redlatch/redlatch/internal/testbed"
)

func TestMain(m *testing.M) { bed.Main(m) }

// opener connects.
type opener = func() (*redlatch.Client, error)

// opening starts the servers that an opener is for.
type opening = func(t *testing.T) opener

func quiet(c *redlatch.Config) {
	c.Logger = slog.New(slog.DiscardHandler)
	if d := &c.Redis.Dialer; d.Timeout == 0 {
		d.Timeout = dialLimit
	}
}

// dialLimit is longer than anything here may take: what takes as long has waited for it.
const dialLimit = 30 * time.Second

// with opens by options.
func with(opt rueidis.ClientOption) opener {
	return func() (*redlatch.Client, error) {
		cfg := redlatch.Config{Redis: opt}
		quiet(&cfg)
		return redlatch.New(cfg)
	}
}

// at opens by a URL.
func at(url string, change ...func(*redlatch.Config)) opener {
	return func() (*redlatch.Client, error) {
		options := []redlatch.ConfigOption{redlatch.WithConfig(quiet)}
		for _, f := range change {
			options = append(options, redlatch.WithConfig(f))
		}
		return redlatch.Open(url, options...)
	}
}

// to opens by a URL, in which %s is where the server is.
func to(server func(t *testing.T) string, url string, change ...func(*redlatch.Config)) opening {
	return func(t *testing.T) opener { t.Helper(); return at(fmt.Sprintf(url, server(t)), change...) }
}

// by opens by options.
func by(opt func(t *testing.T) rueidis.ClientOption) opening {
	return func(t *testing.T) opener { t.Helper(); return with(opt(t)) }
}

// one opens by options for a single server.
func one(server func(t *testing.T) string, change func(*rueidis.ClientOption)) opening {
	return by(func(t *testing.T) rueidis.ClientOption {
		t.Helper()
		opt := rueidis.ClientOption{InitAddress: []string{server(t)}}
		change(&opt)
		return opt
	})
}

// secured opens by a URL of rediss://, with what a client trusts and shows.
func secured(clientCert bool, change func(*x509.Certificate), trusts func(a *authority, t *testing.T) func(*redlatch.Config)) opening {
	return func(t *testing.T) opener {
		t.Helper()
		ca := secure(t, clientCert, change)
		return at("rediss://"+testbed.Standalone(t).TLSAddr(), trusts(ca, t))
	}
}

func sentinel(s *testbed.SentinelSet) rueidis.ClientOption {
	return rueidis.ClientOption{InitAddress: s.SentinelAddrs(), Sentinel: rueidis.SentinelOption{MasterSet: testbed.MasterName}}
}

func plainAt(t *testing.T) string     { t.Helper(); return testbed.Standalone(t).Addr() }
func protectedAt(t *testing.T) string { t.Helper(); return protected(t).Addr() }
func sentinelAt(t *testing.T) string  { t.Helper(); return testbed.Sentinel(t).SentinelAddrs()[0] }

func tlsAt(clientCert bool) func(t *testing.T) string {
	return func(t *testing.T) string {
		t.Helper()
		secure(t, clientCert, nil)
		return testbed.Standalone(t).TLSAddr()
	}
}

// way is one way to connect.
type way struct {
	open    opener
	servers []*testbed.Server // that hold locks
}

var ways = map[string]func(t *testing.T) way{
	"TLS, options": func(t *testing.T) way {
		ca, s := secure(t, false, nil), testbed.Standalone(t)
		return way{with(rueidis.ClientOption{InitAddress: []string{s.TLSAddr()}, TLSConfig: ca.trusts(t, nil)}), []*testbed.Server{s}}
	},
	"TLS, URL, name in the certificate": func(t *testing.T) way {
		ca, s := secure(t, false, nil), testbed.Standalone(t)
		return way{at("rediss://localhost:"+port(t, s.TLSAddr()), ca.unshown(t)), []*testbed.Server{s}}
	},
	"TLS, client certificate": func(t *testing.T) way {
		ca, s := secure(t, true, nil), testbed.Standalone(t)
		return way{at("rediss://"+s.TLSAddr(), ca.trusting(t, ca)), []*testbed.Server{s}}
	},
	"TLS, Sentinel, client certificate": func(t *testing.T) way {
		ca, s := secure(t, true, nil), testbed.Sentinel(t)
		opt := sentinel(s)
		opt.TLSConfig = ca.trusts(t, ca)
		opt.Sentinel.TLSConfig = opt.TLSConfig
		return way{with(opt), s.Nodes()}
	},
	"TLS, Sentinel, URL": func(t *testing.T) way {
		ca, s := secure(t, false, nil), testbed.Sentinel(t)
		addrs := s.SentinelAddrs()
		return way{at("rediss://"+addrs[0]+"?master_set="+testbed.MasterName+"&addr="+addrs[1]+"&addr="+addrs[2], ca.unshown(t)), s.Nodes()}
	},
	"TLS, Cluster, client certificate": func(t *testing.T) way {
		ca, c := secure(t, true, nil), testbed.Cluster(t)
		return way{with(rueidis.ClientOption{InitAddress: c.Addrs(), TLSConfig: ca.trusts(t, ca)}), c.Nodes()}
	},
	"TLS, Cluster, URL of one node": func(t *testing.T) way {
		ca, c := secure(t, false, nil), testbed.Cluster(t)
		return way{at("rediss://"+c.Addrs()[0], ca.unshown(t)), c.Nodes()}
	},
	"password": func(t *testing.T) way {
		s := protected(t)
		return way{at("redis://:s%20cret@" + s.Addr()), []*testbed.Server{s}}
	},
	"password, RESP2": func(t *testing.T) way {
		s := protected(t)
		return way{with(rueidis.ClientOption{InitAddress: []string{s.Addr()}, Password: "s cret", AlwaysRESP2: true}), []*testbed.Server{s}}
	},
	"ACL user": func(t *testing.T) way {
		s := protected(t)
		return way{at("redis://app:pass@" + s.Addr()), []*testbed.Server{s}}
	},
	"ACL user, Cluster": func(t *testing.T) way {
		c := testbed.Cluster(t)
		for _, s := range c.Nodes() {
			addUser(t, s)
			t.Cleanup(func() { s.Do(t, "ACL", "SETUSER", "default", "on", "nopass") })
			s.Do(t, "ACL", "SETUSER", "default", "on", "resetpass", ">s cret") // the test bed's connection is logged in
		}
		return way{with(rueidis.ClientOption{InitAddress: c.Addrs(), Username: "app", Password: "pass"}), c.Nodes()}
	},
	"Unix socket, URL": func(t *testing.T) way {
		s, path := socket(t)
		return way{at("unix://" + path), []*testbed.Server{s}}
	},
	"Unix socket, options, user": func(t *testing.T) way {
		s, path := socket(t)
		addUser(t, s)
		return way{with(rueidis.ClientOption{InitAddress: []string{path}, Username: "app", Password: "pass"}), []*testbed.Server{s}}
	},
	"IPv6": func(t *testing.T) way {
		s := six(t)
		return way{at("redis://[::1]:" + port(t, s.Addr())), []*testbed.Server{s}}
	},
	"IPv6, TLS": func(t *testing.T) way {
		ca, s := secure(t, false, nil), six(t)
		return way{at("rediss://[::1]:"+port(t, s.TLSAddr()), ca.unshown(t)), []*testbed.Server{s}}
	},
}

func port(t *testing.T, addr string) string {
	t.Helper()
	_, port, err := net.SplitHostPort(addr)
	testbed.Must(t, err)
	return port
}

// addUser makes a user who may do everything with locks.
func addUser(t *testing.T, s *testbed.Server) {
	t.Helper()
	s.SetUser(t, "app", "on", ">pass", "~*", "&*", "+@all")
}

// protected starts a server that wants a password, and has a user.
func protected(t *testing.T) *testbed.Server {
	t.Helper()
	s := testbed.Standalone(t)
	addUser(t, s)
	s.Do(t, "CONFIG", "SET", "requirepass", "s cret") // the test bed's connection is logged in
	t.Cleanup(func() { s.Do(t, "CONFIG", "SET", "requirepass", "") })
	return s
}

// socket starts a server on a Unix socket, the path of which must be short.
func socket(t *testing.T) (*testbed.Server, string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "rl")
	testbed.Must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	path := filepath.Join(dir, "redis.sock")
	return testbed.Standalone(t, "--unixsocket", path), path
}

// six starts a server that listens on ::1 too.
func six(t *testing.T) *testbed.Server {
	t.Helper()
	l, err := net.Listen("tcp", "[::1]:0")
	if err != nil {
		testbed.Skip(t, "this machine has no IPv6 loopback: %v", err)
	}
	_ = l.Close() // Nothing was accepted.
	return testbed.Standalone(t, "--bind", "127.0.0.1", "::1")
}

// Whatever way a client connects, a waiter is woken, and again after all connections were broken:
// what was learnt on the first connection holds on the second too.
func TestEachWayToConnect(t *testing.T) {
	for what, start := range ways {
		t.Run(what, func(t *testing.T) {
			w := start(t)
			first, second := dial(t, w), dial(t, w)
			hold := bed.Lock(t, t.Context(), first.RLock(name))
			waiter := bed.Async(t.Context(), second.RLock(name))
			listening(t, w)
			bed.Unlock(t, hold)
			hold = bed.Hold(t, waiter)

			waiter = bed.Async(t.Context(), first.RLock(name))
			listening(t, w)
			for _, s := range w.servers {
				s.Do(t, "CLIENT", "KILL", "TYPE", "pubsub")
				s.Do(t, "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
			}
			listening(t, w) // again
			bed.Unlock(t, hold)
			hold = bed.Hold(t, waiter)
			if err := hold.Context().Err(); err != nil {
				t.Errorf("the hold has ended: %v", err)
			}
			bed.Unlock(t, hold)
		})
	}
}

const name = "orders:42"

func dial(t *testing.T, w way) *redlatch.Client {
	t.Helper()
	c, err := w.open()
	testbed.Must(t, err)
	t.Cleanup(c.Close)
	return c
}

// listening returns once somebody listens for the lock, on any server.
func listening(t *testing.T, w way) {
	t.Helper()
	bed.Eventually(t, "somebody listens", func() bool {
		for _, s := range w.servers {
			for _, command := range []string{"CHANNELS", "SHARDCHANNELS"} {
				msg, err := s.Try("PUBSUB", command)
				if err != nil {
					continue // older servers have no sharded channels
				}
				if channels, err := msg.AsStrSlice(); err == nil && strings.Contains(strings.Join(channels, " "), name) {
					return true
				}
			}
		}
		return false
	})
}

// A password that a server repeats, since it does not know the command that it was in, is in no
// error, whether the server is like that at once or when the client connects anew.
func TestAServerThatRepeatsThePassword(t *testing.T) {
	s := testbed.Standalone(t)
	s.SetUser(t, "app", "on", `>top"secret`, "~*", "&*", "+@all")
	for what, says := range map[string]string{
		"redis 5":      "ERR unknown command `HELLO`, with args beginning with: `3`, `AUTH`, `app`, `top\\\"secret`, ",
		"redis 7":      "ERR unknown command 'HELLO', with args beginning with: '3' 'AUTH' 'app' 'top\\\"secr",
		"a proxy":      "ERR bad request: HELLO 3 AUTH app top\"secret SETNAME x",
		"a quick one":  "DENIED HELLO top\"secret",
		"a busy one":   "LOADING HELLO 3 AUTH app top\"secret",
		"no more room": "ERR max number of clients reached top\"secret",
	} {
		t.Run(what, func(t *testing.T) {
			proxy := testbed.NewProxy(t, s.Addr())
			open := at("redis://app:"+url.QueryEscape(`top"secret`)+"@"+proxy.Addr(), func(c *redlatch.Config) {
				c.LeaseTime, c.UnlockTimeout = 3*time.Second, 300*time.Millisecond
			})
			c, err := open()
			testbed.Must(t, err)
			defer c.Close()
			proxy.Answer(testbed.Contains(), says).Times(-1)
			proxy.Cut() // the client's to find out
			for range 3 {
				_, tried := c.RLock("x").TryLock(t.Context(), 0, 0)
				_, waited := c.RLock("x").TryLock(t.Context(), 100*time.Millisecond, 0)
				_, state := c.RLock("x").State(t.Context())
				_, look := c.Inspect(t.Context(), "x")
				for _, err := range []error{tried, waited, state, look} {
					hides(t, err, "secr")
				}
			}
			late, err := open()
			if err == nil { // what the server says comes with the first call
				_, err = late.RLock("x").TryLock(t.Context(), 0, 0)
				late.Close()
			}
			hides(t, err, "secr")
		})
	}
}

// hides fails unless there is an error, and nothing that it is made of has the secret.
func hides(t *testing.T, err error, secret string) {
	t.Helper()
	if err == nil || strings.Contains(err.Error(), secret) {
		t.Errorf("%T: %v", err, err)
	}
	switch e := err.(type) { //nolint:errorlint // each link of the chain in turn
	case interface{ Unwrap() error }:
		if inner := e.Unwrap(); inner != nil {
			hides(t, inner, secret)
		}
	case interface{ Unwrap() []error }:
		for _, e := range e.Unwrap() {
			hides(t, e, secret)
		}
	}
}

// A password stays out of errors, which may be logged, also where it came in a URL.
func TestPasswordStaysOutOfErrors(t *testing.T) {
	for _, u := range []string{"redis://app:topsecret@" + protectedAt(t), "redis://app:topsecret@:x:y", "http://app:topsecret@h"} {
		_, err := redlatch.Open(u, redlatch.WithConfig(quiet))
		hides(t, err, "topsecret")
	}
}
