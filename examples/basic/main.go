// Basic shows the three ways to take a lock.
//
//	REDIS_URL=redis://127.0.0.1:6379 go run ./examples/basic
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/redlatch/redlatch"
)

func main() {
	if err := run(context.Background(), cmp.Or(os.Getenv("REDIS_URL"), "redis://127.0.0.1:6379")); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, url string) error {
	client, err := redlatch.Open(url, redlatch.WithPrefix("example:"), redlatch.MustConnect())
	if err != nil {
		return err
	}
	defer client.Close()
	// A value without state: make it where you need it, in as many processes as you like.
	lock := client.RLock("orders:42")

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
