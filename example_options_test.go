package redlatch_test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

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
