// Basic shows the three ways to take a lock: go run ./examples/basic.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/examples/internal/demoserver"
)

func main() {
	if err := demoserver.Run(context.Background(), "basic", run); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, server *demoserver.Server) error {
	client, err := redlatch.Open(server.URL) // in your copy: "redis://127.0.0.1:6379"
	if err != nil {
		return err
	}
	defer client.Close()
	// A value without state: make it where you need it, in as many processes as you like.
	lock := client.RLock(server.Tag + ":orders:42")

	// Lock waits as long as ctx allows. The lock is renewed until Unlock; if this process
	// dies, it is free after the lease (30 s, unless Config.LeaseTime says otherwise).
	hold, err := lock.Lock(ctx)
	if err != nil {
		return err
	}
	fmt.Println("Lock:    inside")

	// Do locks, works and unlocks in one call, even after a panic. With the hold's context
	// it re-enters the lock that is held already. That context ends when the lock is lost.
	err = lock.Do(hold.Context(), func(ctx context.Context) error {
		fmt.Println("Do:      inside once more, without waiting for ourselves")
		return try(redlatch.NewOwner(ctx), lock)
	})
	// Don't drop the error of Unlock: it tells when the lock was lost on the way.
	return errors.Join(err, hold.Unlock(ctx))
}

// try waits for a limited time only, here while another owner holds the lock.
func try(ctx context.Context, lock redlatch.Locker) error {
	const wait, lease = 100 * time.Millisecond, 10 * time.Second // a lease of 0 would be a renewed one
	hold, err := lock.TryLock(ctx, wait, lease)
	var busy *redlatch.NotAcquiredError
	if errors.As(err, &busy) {
		fmt.Println("TryLock: gave up after 100ms:", busy)
		return nil
	} else if err != nil {
		return err
	}
	return errors.Join(errors.New("two owners were inside at once"), hold.Unlock(ctx))
}
