package redlatch_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/redlatch/redlatch"
)

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
	client, err := redlatch.Open(redisURL)
	if err != nil {
		fmt.Println(err)
		return
	}
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
	// Output: orders:42 plain 1
}

// A holder that is gone is evicted; whoever took the lock meanwhile is not.
func ExampleClient_ForceUnlock() {
	client, err := redlatch.Open(redisURL)
	if err != nil {
		fmt.Println(err)
		return
	}
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
