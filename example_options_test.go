package redlatch_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log"
	"os"
	"regexp"
	"strings"
	"time"

	"github.com/redis/rueidis"
	"go.opentelemetry.io/otel"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/testbed"
)

// A waiter whose machine stands still is passed over: it delays those behind it in the queue
// by no more than the skip time.
func ExampleWithSkipAfter() {
	ctx := context.Background()
	client := open()
	defer client.Close()
	printer := client.FairLock("printer:2", redlatch.WithSkipAfter(500*time.Millisecond))
	hold, err := printer.Lock(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}

	var bed testbed.Program // has a network that can break
	defer bed.Close()
	network := testbed.NewProxy(&bed, strings.TrimPrefix(redisURL, "redis://"))
	another, err := redlatch.Open("redis://" + network.Addr()) // in another process
	if err != nil {
		fmt.Println(err)
		return
	}
	defer another.Close()
	frozen, cancel := context.WithCancel(ctx)
	defer cancel()
	gone := make(chan error, 1)
	go func() { // ends with frozen
		_, err := another.FairLock("printer:2", redlatch.WithSkipAfter(500*time.Millisecond)).Lock(frozen)
		gone <- err
	}()
	for { // until it is the first in the queue
		if state, err := printer.State(ctx); err != nil || state.QueueLength == 1 {
			break
		}
	}
	network.Pause(testbed.Requests) // no heartbeats any more
	network.Pause(testbed.Replies)

	fmt.Println(hold.Unlock(ctx)) // the frozen waiter's turn, and then the next one's
	const wait, watchdog = time.Minute, 0
	next, err := printer.TryLock(ctx, wait, watchdog)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("passed over")
	fmt.Println(next.Unlock(ctx))

	cancel()
	network.Resume(testbed.Requests)
	network.Resume(testbed.Replies)
	fmt.Println(errors.Is(<-gone, redlatch.ErrNotAcquired))
	// Output:
	// <nil>
	// passed over
	// <nil>
	// true
}

// A lock counts only once a replica has it. This server has no replica.
func ExampleWithReplicaAcks() {
	client, err := redlatch.Open(redisURL, redlatch.WithReplicaAcks(1, 100*time.Millisecond))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer client.Close()

	_, err = client.RLock("invoice:7").Lock(context.Background())
	var few *redlatch.ReplicaAcksError
	if errors.As(err, &few) { // the lock is free again: the acquisition was undone
		fmt.Printf("%d of %d replicas\n", few.Got, few.Want)
	}
	// Output: 0 of 1 replicas
}

// Spans and metrics go to the program's OpenTelemetry providers. With LockName the metrics tell
// apart groups of locks, not single ones: order:42 and order:43 are both order:*.
func ExampleTelemetry() {
	digits := regexp.MustCompile(`[0-9]+`)
	telemetry := redlatch.Telemetry{
		LockName:     func(name string) string { return digits.ReplaceAllString(name, "*") },
		RenewalSpans: true, // while the renewals are what you look for
	}
	client, err := redlatch.Open(redisURL, redlatch.WithConfig(func(c *redlatch.Config) {
		c.TracerProvider = otel.GetTracerProvider() // the default, as is the next line
		c.MeterProvider = otel.GetMeterProvider()
		c.Telemetry = telemetry
	}))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer client.Close()

	err = client.RLock("order:42").Do(context.Background(), func(context.Context) error { return nil })
	fmt.Println(err, telemetry.LockName("order:42"))
	// Output: <nil> order:*
}

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

// Who holds a lock, on which machine, and how many wait: without knowing its kind.
func ExampleClient_Inspect() {
	client, err := redlatch.Open(redisURL, redlatch.WithName("worker/1"))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer client.Close()
	ctx := context.Background()
	hold, err := client.ReadWriteLock("prices").WriteLock().Lock(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	in, err := client.Inspect(ctx, "prices")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(in.Kind, in.Mode, in.Holders[0].Client, in.QueueLength)
	if err := hold.Unlock(ctx); err != nil {
		fmt.Println(err)
		return
	}
	// Output: read-write write worker/1 0
}

// All locks whose names begin with "orders:".
func ExampleClient_Locks() {
	client := open()
	defer client.Close()
	ctx := context.Background()
	hold, err := client.RLock("orders:42").Lock(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	for in, err := range client.Locks(ctx, "orders:*") {
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(in.Name, in.Kind, in.HolderCount)
	}
	if err := hold.Unlock(ctx); err != nil {
		fmt.Println(err)
		return
	}
	// Output: orders:42 reentrant 1
}

// An owner in an error, a log line or an Inspection, in parts: which process it is, and what
// the program called the owner.
func ExampleParseOwner() {
	client := open()
	defer client.Close()
	ctx := redlatch.WithOwner(context.Background(), "job-17")
	hold, err := client.RLock("batch:7").Lock(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	in, err := client.Inspect(ctx, "batch:7")
	if err != nil {
		fmt.Println(err)
		return
	}
	if owner, ok := redlatch.ParseOwner(in.Holders[0].Owner); ok {
		fmt.Println(owner.Client == client.ID(), owner.Explicit, owner.Java())
	}
	if err := hold.Unlock(ctx); err != nil {
		fmt.Println(err)
	}

	thread, _ := redlatch.ParseOwner("343714c0-5d1f-4c0a-9b6e-2f6c1d2a9e11:57") // from Redisson
	fmt.Println(thread.Owner, thread.Java())
	// Output:
	// true job-17 false
	// 57 true
}

// A holder that is gone is evicted; whoever took the lock meanwhile is not.
func ExampleClient_ForceUnlock() {
	client := open()
	defer client.Close()
	ctx := context.Background()
	hold, err := client.RLock("report").Lock(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	in, err := client.Inspect(ctx, "report")
	if err != nil {
		fmt.Println(err)
		return
	}
	gone := in.Holders[0].Owner

	_, err = client.ForceUnlock(ctx, "report", redlatch.IfOwner("somebody else"))
	fmt.Println(errors.Is(err, redlatch.ErrOtherOwner))
	freed, err := client.ForceUnlock(ctx, "report", redlatch.IfOwner(gone))
	fmt.Println(freed, err)
	fmt.Println(errors.Is(hold.Unlock(ctx), redlatch.ErrLeaseLost))
	// Output:
	// true
	// true <nil>
	// true
}

// Who took a lock away, and why, stays on the server for those who ask later.
func ExampleRecorded() {
	client := open()
	defer client.Close()
	ctx := context.Background()
	hold, err := client.RLock("nightly").Lock(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	_, err = client.ForceUnlock(ctx, "nightly",
		redlatch.IfOwner(hold.Owner().String()), redlatch.Recorded("ann", "its machine is gone"))
	if err != nil {
		fmt.Println(err)
	}
	evictions, err := client.Evictions(ctx, "nightly", 10)
	if err != nil {
		fmt.Println(err)
	}
	for _, e := range evictions {
		fmt.Println(e.By, "evicted", len(e.Evicted), "holder:", e.Reason)
	}
	// Output: ann evicted 1 holder: its machine is gone
}
