package redlatch_test

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log"
	"os"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch"
)

// What a program does about an error of connecting: wait and try again only when the
// server can't be reached, and tell a person what to change otherwise.
func ExampleConnectError() {
	url := strings.Replace(redisURL, "redis://", "redis://nobody:secret@", 1)
	client, err := redlatch.Open(url, redlatch.MustConnect())
	var refused *redlatch.ConnectError
	switch {
	case err == nil:
		defer client.Close()
	case errors.As(err, &refused):
		fmt.Println(refused.Reason)
		fmt.Println(refused.Advice)
	case errors.Is(err, redlatch.ErrUnavailable):
		fmt.Println("later")
	}
	// Output:
	// login
	// user name or password is wrong, or the user is disabled: change Username and Password
}

// A URL, and options for the rest. What the URL says and redlatch can't do is refused, not
// ignored.
func ExampleOpen() {
	client, err := redlatch.Open(redisURL+"?dial_timeout=2s", // "redis://127.0.0.1:6379?dial_timeout=2s"
		redlatch.WithName("shop/replica-3"),
		redlatch.WithPrefix("shop:"),
		redlatch.WithLeaseTime(20*time.Second),
	)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer client.Close()
	fmt.Println(client.Name())

	_, err = redlatch.Open(redisURL + "?pool_size=100")
	fmt.Println(errors.Is(err, redlatch.ErrInvalidOption))
	// Output:
	// shop/replica-3
	// true
}

// TLS with a certificate authority of your own, and a certificate that tells the server who
// this is. With a public authority the URL alone is enough.
func ExampleOpen_tls() {
	authority, err := os.ReadFile("/etc/redis/ca.pem")
	if err != nil {
		log.Fatal(err)
	}
	own, err := tls.LoadX509KeyPair("/etc/shop/client.pem", "/etc/shop/client.key")
	if err != nil {
		log.Fatal(err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(authority) {
		log.Fatal("no certificate in ca.pem")
	}

	client, err := redlatch.Open("rediss://app:secret@redis.example.com:6379", redlatch.WithConfig(func(c *redlatch.Config) {
		c.Redis.TLSConfig.RootCAs = roots // Open has set TLSConfig, with the URL's host as ServerName
		c.Redis.TLSConfig.Certificates = []tls.Certificate{own}
	}))
	var refused *redlatch.ConnectError
	if errors.As(err, &refused) && refused.Reason == redlatch.ConnectTLS {
		log.Fatal(refused.Advice) // a certificate is refused, or one side speaks no TLS
	}
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
}

// The Sentinels know where the master is, now and after a failover. Name two of them or more.
func ExampleOpen_sentinel() {
	client, err := redlatch.Open("redis://app:secret@sentinel-1:26379?master_set=main&addr=sentinel-2:26379")
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
}

// Sentinel with TLS, where the Sentinels have a user and a password of their own.
func ExampleNew_sentinel() {
	encrypted := &tls.Config{MinVersion: tls.VersionTLS12}
	client, err := redlatch.New(redlatch.Config{Redis: rueidis.ClientOption{
		// For the master.
		Username:  "app",
		Password:  os.Getenv("REDIS_PASSWORD"),
		TLSConfig: encrypted,
		// For the Sentinels.
		InitAddress: []string{"sentinel-1:26379", "sentinel-2:26379"},
		Sentinel: rueidis.SentinelOption{
			MasterSet: "main",
			Username:  "locks",
			Password:  os.Getenv("SENTINEL_PASSWORD"),
			TLSConfig: encrypted,
		},
	}})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
}
