package redlatch_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/testbed"
)

// redisURL is the private server of the examples.
var redisURL string

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	server, err := testbed.Start(ctx)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() {
		if err := server.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}()
	redisURL = "redis://" + server.Addr()
	return m.Run()
}

// open is redlatch.Open on the examples' server.
func open() *redlatch.Client {
	client, err := redlatch.Open(redisURL)
	if err != nil {
		panic(err)
	}
	return client
}

// Parameters that would be ignored are refused by name, with what to use instead.
func TestOpenRefusesParameters(t *testing.T) {
	for _, tc := range []struct{ query, parameter, says string }{
		{"pool_size=10", "pool_size", "one connection per node"},
		{"read_timeout=3s", "read_timeout", "write_timeout"},
		{"db=0&POOL_SIZE=7", "pool_size", "one connection per node"}, // parameters are spelled in lower case
		{"conn_max_lifetime=1h", "conn_max_lifetime", "may have run"},
		{"max_retries=3", "max_retries", "repeats commands itself"},
		{"client_cache=1", "client_cache", "cache"},
		{"protocol=4", "protocol", "2 and 3"},
		{"skip_verify=true", "skip_verify", "rediss://"},
		{"dial_timeout=5", "dial_timeout", "500ms"},
		{"write_timeout=long", "write_timeout", "500ms"},
		{"db=one", "db", "number"},
		{"addr=", "addr", "host:port"},
		{"addr=other", "addr", "host:port"},
		{"db=1&db=2", "db", "more than once"},
		{"sentinelMasterId=main", "sentinelmasterid", "master_set"},
		{"password=hunter2", "password", "in front of the host"},
	} {
		client, err := redlatch.Open("redis://user:secret@127.0.0.1:1/?" + tc.query)
		var refused *redlatch.InvalidOptionError
		if client != nil || !errors.Is(err, redlatch.ErrInvalidOption) || !errors.As(err, &refused) {
			t.Errorf("%s: %v", tc.query, err)
			continue
		}
		if !strings.Contains(refused.Option, `"`+tc.parameter+`"`) || !strings.Contains(refused.Reason, tc.says) {
			t.Errorf("%s: %v", tc.query, err)
		}
		if msg := err.Error(); strings.Contains(msg, "secret") || strings.Contains(msg, "hunter2") || strings.Contains(msg, "\n") {
			t.Errorf("%s: the message shows too much: %s", tc.query, msg)
		}
	}
}

// What is no URL of a server is refused, as is one in which somebody forgot to encode a password's characters; and no error
// shows a part of it: what follows an unescaped "?" may be the rest of the password.
func TestOpenRefusesURLs(t *testing.T) {
	for _, text := range []string{
		"", "127.0.0.1:6379", "http://127.0.0.1:6379", "redis://user:hunter2@:bad:port", "redis://user:hunter2@h:6379/notadb",
		"redis://user:1234?hunter2@127.0.0.1:1/0", "redis://:1234?hunter2@127.0.0.1:1", "redis://1234?client_name=hunter2@127.0.0.1:1",
		"redis://:1234#hunter2@127.0.0.1:1", "redis://:12/hunter2@127.0.0.1:1", "redis://:ab?hunter2@127.0.0.1:1", "redis://:1%hunter2@127.0.0.1:1",
		"redis://127.0.0.1:1?hunter2=1", "redis://127.0.0.1:1?db=hunter2", "redis://127.0.0.1:1/hunter2", "redis://127.0.0.1:1?addr=hunter2",
		"redis://127.0.0.1:1?a;hunter2", "hunter2://127.0.0.1:1", "redis://[hunter2", "rediss://127.0.0.1:1?skip_verify=maybe",
	} {
		client, err := redlatch.Open(text)
		if client != nil || !errors.Is(err, redlatch.ErrInvalidOption) {
			t.Errorf("Open(%q): %v", text, err)
		}
		for e := err; e != nil; e = errors.Unwrap(e) {
			if strings.Contains(e.Error(), "hunter2") || strings.Contains(e.Error(), "1234") {
				t.Errorf("%s: %T: %v", text, e, e)
			}
		}
	}
	_, err := redlatch.Open("redis://127.0.0.1:1?flavour=sweet")
	if !errors.Is(err, redlatch.ErrInvalidOption) || !strings.Contains(err.Error(), "Config.Redis") {
		t.Errorf("an unknown parameter: %v", err)
	}
	// Options of the URL and of the call are checked alike.
	_, err = redlatch.Open("redis://127.0.0.1:1", redlatch.WithLeaseTime(time.Millisecond), nil)
	if !errors.Is(err, redlatch.ErrInvalidOption) {
		t.Errorf("Open with a bad option: %v", err)
	}
}

// Those that act are accepted.
func TestOpenTakesParameters(t *testing.T) {
	client, err := redlatch.Open(redisURL + "/3?dial_timeout=2s&write_timeout=2s&client_name=shop&protocol=2&max_retries=0&client_cache=0")
	testbed.Must(t, err)
	defer client.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := client.RLock("x").Do(ctx, func(context.Context) error { return nil }); err != nil {
		t.Error(err)
	}
	// Nobody listens there, but the parameters are fine.
	for _, scheme := range []string{"rediss", "valkeys"} {
		if _, err := redlatch.Open(scheme+"://127.0.0.1:1?skip_verify&dial_timeout=200ms", redlatch.MustConnect()); !errors.Is(err, redlatch.ErrUnavailable) {
			t.Errorf("skip_verify with %s: %v", scheme, err)
		}
	}
}

// Options that would break a promise are refused before anything is dialled.
func TestNewRefusesOptions(t *testing.T) {
	dialled := func(context.Context, string, *net.Dialer, *tls.Config) (net.Conn, error) {
		t.Error("dialled in spite of a bad option")
		return nil, errors.New("no")
	}
	for name, change := range map[string]func(*redlatch.Config){
		"Redis.InitAddress":               func(c *redlatch.Config) { c.Redis.InitAddress = nil },
		"Redis.ConnLifetime":              func(c *redlatch.Config) { c.Redis.ConnLifetime = time.Hour },
		"Redis.SendToReplicas":            func(c *redlatch.Config) { c.Redis.SendToReplicas = func(rueidis.Completed) bool { return true } },
		"Redis.ReplicaOnly":               func(c *redlatch.Config) { c.Redis.ReplicaOnly = true },
		"Redis.Standalone.EnableRedirect": func(c *redlatch.Config) { c.Redis.Standalone.EnableRedirect = true },
		"Redis.DisableAutoPipelining":     func(c *redlatch.Config) { c.Redis.DisableAutoPipelining = true },
		"Redis.PipelineMultiplex":         func(c *redlatch.Config) { c.Redis.PipelineMultiplex = 2 },
		"Redis.ClientTrackingOptions":     func(c *redlatch.Config) { c.Redis.ClientTrackingOptions = []string{"BCAST"} },
		"Redis.BlockingPoolSize":          func(c *redlatch.Config) { c.Redis.BlockingPoolSize = 1 },
		"Redis.RingScaleEachConn":         func(c *redlatch.Config) { c.Redis.RingScaleEachConn = 9 },
		"Redis.ConnWriteTimeout":          func(c *redlatch.Config) { c.Redis.ConnWriteTimeout = 11 * time.Second },
		"Redis.Dialer.KeepAlive":          func(c *redlatch.Config) { c.Redis.Dialer.KeepAlive = 11 * time.Second },
		"LeaseTime":                       func(c *redlatch.Config) { c.LeaseTime = time.Millisecond },
		"UnlockTimeout":                   func(c *redlatch.Config) { c.UnlockTimeout = -1 },
		"FenceTTL":                        func(c *redlatch.Config) { c.FenceTTL = time.Second },
		"ReplicaAcks":                     func(c *redlatch.Config) { c.ReplicaAcks = -1 },
		"ReplicaAckTimeout":               func(c *redlatch.Config) { c.ReplicaAckTimeout = time.Microsecond },
		"ReplicaAckTimeout (long)":        func(c *redlatch.Config) { c.ReplicaAcks, c.ReplicaAckTimeout = 1, 11*time.Second },
		"LeaseTime (negative)":            func(c *redlatch.Config) { c.LeaseTime = -time.Second },
		"Redis.Dialer.KeepAlive (off)":    func(c *redlatch.Config) { c.Redis.Dialer.KeepAlive = -1 },
		"Redis.ConnWriteTimeout (off)":    func(c *redlatch.Config) { c.Redis.ConnWriteTimeout = -1 },
		"Redis.SendToReplicas (address)":  func(c *redlatch.Config) { c.Redis.Standalone.ReplicaAddress = []string{"127.0.0.1:1"} },

		"Redis.Sentinel.Dialer.KeepAlive": func(c *redlatch.Config) { c.Redis.Sentinel.Dialer.KeepAlive = -1 },
	} {
		cfg := redlatch.Config{Redis: rueidis.ClientOption{InitAddress: []string{"127.0.0.1:1"}, DialCtxFn: dialled}}
		change(&cfg)
		client, err := redlatch.New(cfg)
		var refused *redlatch.InvalidOptionError
		if client != nil || !errors.Is(err, redlatch.ErrInvalidOption) || !errors.As(err, &refused) {
			t.Errorf("%s: %v", name, err)
			continue
		}
		option, _, _ := strings.Cut(name, " ")
		if refused.Option != option || refused.Reason == "" {
			t.Errorf("%s: refused as %q, because %q", name, refused.Option, refused.Reason)
		}
	}
}

// wrapped is a client in another's clothes.
type wrapped struct{ rueidis.Client }

// Who can't reach the server says so: New, an Open that must connect, the first call otherwise. A builder that wraps a
// client wraps nothing where rueidis.NewClient returns none, beside its error: that is an error like any other, and no
// panic. One that builds nothing without an error is refused.
func TestNobodyAnswers(t *testing.T) {
	wrap := func(c *redlatch.Config) {
		c.ClientBuilder = func(opt rueidis.ClientOption) (rueidis.Client, error) {
			client, err := rueidis.NewClient(opt)
			return wrapped{client}, err
		}
	}
	nothing := func(c *redlatch.Config) {
		c.ClientBuilder = func(rueidis.ClientOption) (rueidis.Client, error) { return nil, nil }
	}
	const url = "redis://127.0.0.1:1"
	for what, tc := range map[string]struct {
		change func(*redlatch.Config)
		want   error
	}{
		"a client":         {func(*redlatch.Config) {}, redlatch.ErrUnavailable},
		"a wrapped client": {wrap, redlatch.ErrUnavailable},
		"no client":        {nothing, redlatch.ErrInvalidOption},
	} {
		cfg := redlatch.Config{Redis: rueidis.ClientOption{InitAddress: []string{"127.0.0.1:1"}}}
		tc.change(&cfg)
		c, err := redlatch.New(cfg)
		if c != nil || !errors.Is(err, tc.want) {
			t.Errorf("New with %s: %v", what, err)
		}
		c, err = redlatch.Open(url, redlatch.WithConfig(tc.change), redlatch.MustConnect())
		if c != nil || !errors.Is(err, tc.want) {
			t.Errorf("Open with %s: %v", what, err)
		}
		if c, err = redlatch.Open(url, redlatch.WithConfig(tc.change)); err == nil { // it comes later
			_, err = c.RLock("a").TryLock(t.Context(), 0, 0)
			c.Close()
		}
		if !errors.Is(err, tc.want) {
			t.Errorf("the first call with %s: %v", what, err)
		}
	}
}

// What is left zero fits the lease that is asked for.
func TestDefaultsFitTheLease(t *testing.T) {
	s := testbed.Standalone(t)
	for _, options := range [][]redlatch.ConfigOption{
		{redlatch.WithLeaseTime(time.Second), redlatch.WithReplicaAcks(1, 0)},
		{redlatch.WithLeaseTime(48 * time.Hour)},
	} {
		c, err := redlatch.Open("redis://"+s.Addr(), options...)
		if err != nil {
			t.Error(err)
			continue
		}
		c.Close()
	}
}
