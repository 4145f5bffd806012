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
