// Basic shows the three ways to take a lock:
//
//	go run ./examples/basic
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
	if err := run(context.Background()); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context) (err error) {
	server, err := demoserver.Start(ctx, "basic", demoserver.Auto)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.Stop()) }()
	fmt.Println("Redis:", server.About)

	client, err := redlatch.Open(server.URL)
	if err != nil {
		return err
	}
	defer client.Close()

	// A lock is a name. The object has no state of its own: make it where you
	// need it, in as many places and processes as you like.
	lock := client.RLock(server.Tag + ":orders:42")

	if err := lockAndUnlock(ctx, lock); err != nil {
		return err
	}
	if err := do(ctx, lock); err != nil {
		return err
	}
	return try(ctx, lock)
}

// lockAndUnlock waits as long as ctx allows. While the hold lives the lock is
// renewed in the background; if this process dies, it is free after the lease
// (30 s, unless Config.LeaseTime says otherwise).
func lockAndUnlock(ctx context.Context, lock redlatch.Locker) (err error) {
	hold, err := lock.Lock(ctx)
	if err != nil {
		return err
	}
	// Don't drop this error: it tells when the lock was lost on the way.
	defer func() { err = errors.Join(err, hold.Unlock(ctx)) }()

	// Work with the hold's context. It ends when the lock is lost, and it makes
	// nested calls re-enter the lock that is held already.
	return work(hold.Context(), lock)
}

func work(ctx context.Context, lock redlatch.Locker) error {
	fmt.Println("Lock:    inside")
	return redlatch.Do(ctx, lock, func(context.Context) error {
		fmt.Println("         inside once more, without waiting for ourselves")
		return nil
	})
}

// do is the same as lockAndUnlock in one call; it also unlocks on a panic.
func do(ctx context.Context, lock redlatch.Locker) error {
	return redlatch.Do(ctx, lock, func(ctx context.Context) error {
		fmt.Println("Do:      inside")
		return context.Cause(ctx) // nil: the lock is still held
	})
}

// try waits for a limited time only, here while somebody else holds the lock.
func try(ctx context.Context, lock redlatch.Locker) (err error) {
	other, err := lock.Lock(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, other.Unlock(ctx)) }()

	// ctx, not other.Context(): this is another owner, so it has to wait. A lease
	// of 0 would mean a renewed one; 10 s means: over after 10 s, whatever happens.
	const wait, lease = 100 * time.Millisecond, 10 * time.Second
	hold, err := lock.TryLock(ctx, wait, lease)
	var busy *redlatch.NotAcquiredError
	switch {
	case errors.As(err, &busy):
		fmt.Println("TryLock: gave up after 100ms:", busy)
		return nil
	case err != nil:
		return err
	}
	return errors.Join(errors.New("two owners were inside at once"), hold.Unlock(ctx))
}
