package main

import (
	"context"
	"crypto/tls"
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/testbed"
)

// TestRun sells exactly what there is.
func TestRun(t *testing.T) {
	options := &redis.Options{Addr: testbed.Standalone(t).Addr()}
	testbed.Must(t, run(t.Context(), options, 30, 12))
	data := redis.NewClient(options)
	defer func() { _ = data.Close() }()
	if left, err := data.Get(t.Context(), "stock:42").Int(); err != nil || left != 0 {
		t.Errorf("%d left, %v", left, err)
	}
}

// TestBothReachTheSameKeys: with each way to log in, and over a socket, go-redis
// sees the key of a lock that was taken with the converted options.
func TestBothReachTheSameKeys(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "redis.sock")
	server := testbed.Standalone(t, "--unixsocket", socket)
	for _, user := range []string{"app", "default"} {
		server.Do(t, "ACL", "SETUSER", user, "on", "~*", "&*", "+@all", ">secret-of-"+user)
	}
	for name, o := range map[string]*redis.Options{
		"password":    {Addr: server.Addr(), Password: "secret-of-default"},
		"user and db": {Addr: server.Addr(), Username: "app", Password: "secret-of-app", DB: 3, Protocol: 2, ClientName: "shop"},
		"provider":    {Addr: server.Addr(), CredentialsProvider: func() (string, string) { return "app", "secret-of-app" }},
		"unix socket": {Network: "unix", Addr: socket, Username: "app", Password: "secret-of-app", DB: 1},
	} {
		t.Run(name, func(t *testing.T) {
			config, err := lockConfig(o)
			testbed.Must(t, err)
			locks, err := redlatch.New(config)
			testbed.Must(t, err)
			defer locks.Close()
			hold, err := locks.RLock("reached").Lock(t.Context())
			testbed.Must(t, err)
			data := redis.NewClient(o)
			defer func() { _ = data.Close() }()
			if n, err := data.Exists(t.Context(), "reached").Result(); err != nil || n != 1 {
				t.Errorf("go-redis does not see the lock's key: %d, %v", n, err)
			}
			testbed.Must(t, hold.Unlock(t.Context()))
		})
	}
}

// TestWhatIsConverted: and what is refused.
func TestWhatIsConverted(t *testing.T) {
	secure := &tls.Config{ServerName: "redis.example.com", MinVersion: tls.VersionTLS12}
	config, err := lockConfig(&redis.Options{TLSConfig: secure, DialTimeout: 3 * time.Second})
	if o := config.Redis; err != nil || o.InitAddress[0] != "localhost:6379" || o.TLSConfig != secure || o.Dialer.Timeout != 3*time.Second {
		t.Errorf("%+v, %v", o, err)
	}
	for name, o := range map[string]*redis.Options{
		"a dialer":   {Dialer: func(context.Context, string, string) (net.Conn, error) { return nil, nil }},
		"a provider": {CredentialsProviderContext: func(context.Context) (string, string, error) { return "", "", nil }},
	} {
		if _, err := lockConfig(o); err == nil {
			t.Errorf("%s was dropped without a word", name)
		}
	}
}
