package redlatch_test

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/testbed"
)

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

func TestOpenRefusesURLs(t *testing.T) {
	for _, url := range []string{"", "127.0.0.1:6379", "http://127.0.0.1:6379", "redis://user:secret@:bad:port", "redis://user:secret@h:6379/notadb"} {
		client, err := redlatch.Open(url)
		if client != nil || !errors.Is(err, redlatch.ErrInvalidOption) {
			t.Errorf("Open(%q): %v", url, err)
		}
		if err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("the error shows the password: %v", err)
		}
	}
	// Options of the URL and of the call are checked alike.
	_, err := redlatch.Open("redis://127.0.0.1:1", redlatch.WithLeaseTime(time.Millisecond), nil)
	if !errors.Is(err, redlatch.ErrInvalidOption) {
		t.Errorf("Open with a bad option: %v", err)
	}
}

func TestNewSaysWhenNobodyAnswers(t *testing.T) {
	_, err := redlatch.Open("redis://127.0.0.1:1", redlatch.MustConnect())
	if !errors.Is(err, redlatch.ErrUnavailable) {
		t.Errorf("Open: %v", err)
	}
	_, err = redlatch.New(redlatch.Config{Redis: rueidis.ClientOption{InitAddress: []string{"127.0.0.1:1"}}})
	if !errors.Is(err, redlatch.ErrUnavailable) {
		t.Errorf("New: %v", err)
	}
	_, err = redlatch.New(redlatch.Config{
		Redis:         rueidis.ClientOption{InitAddress: []string{"127.0.0.1:1"}},
		ClientBuilder: func(rueidis.ClientOption) (rueidis.Client, error) { return nil, nil },
	})
	if !errors.Is(err, redlatch.ErrInvalidOption) {
		t.Errorf("a builder that builds nothing: %v", err)
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
