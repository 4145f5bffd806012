package redlatch_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redlatch/redlatch"
)

// Any number of readers, or one writer.
func ExampleClient_ReadWriteLock() {
	client := open()
	defer client.Close()
	ctx := context.Background()
	prices := client.ReadWriteLock("prices")

	// Readers share.
	err := prices.ReadLock().Do(ctx, func(ctx context.Context) error {
		other := redlatch.NewOwner(ctx) // somebody else
		if err := prices.ReadLock().Do(other, func(context.Context) error { return nil }); err != nil {
			return err
		}
		_, err := prices.WriteLock().TryLock(other, 0, 0)
		fmt.Println("a writer beside readers:", !errors.Is(err, redlatch.ErrNotAcquired))

		// A reader can't become a writer: two of them would wait for each other.
		_, err = prices.WriteLock().Lock(ctx)
		fmt.Println("upgrade refused:", errors.Is(err, redlatch.ErrUpgrade))
		return nil
	})
	fmt.Println(err)
	// Output:
	// a writer beside readers: false
	// upgrade refused: true
	// <nil>
}

// Operators end all holds, in whatever mode; each mode's own ForceUnlock ends those of that mode.
func ExampleClient_ReadWriteLock_forceUnlock() {
	client := open()
	defer client.Close()
	ctx := context.Background()
	prices := client.ReadWriteLock("prices:stuck")
	for range 2 {
		if _, err := prices.ReadLock().Lock(ctx); err != nil {
			fmt.Println(err)
			return
		}
	}
	freed, err := prices.WriteLock().ForceUnlock(ctx)
	fmt.Println("write holds:", freed, err)
	freed, err = prices.ForceUnlock(ctx)
	fmt.Println("any holds:", freed, err)
	freed, err = prices.ForceUnlock(ctx)
	fmt.Println("again:", freed, err)
	// Output:
	// write holds: false <nil>
	// any holds: true <nil>
	// again: false <nil>
}

// A writer that goes on as a reader: it takes the read lock while it has the
// write lock, and unlocks that first. Other readers enter at that moment, other
// writers do not.
func ExampleClient_ReadWriteLock_downgrade() {
	client := open()
	defer client.Close()
	ctx := context.Background()
	prices := client.ReadWriteLock("prices")

	write, err := prices.WriteLock().Lock(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	// ... import ...
	// The same owner, but a context that does not end with the write hold.
	read, err := prices.ReadLock().Lock(context.WithoutCancel(write.Context()))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(write.Unlock(ctx))
	// ... check what was imported, beside others who read it, with read.Context() ...
	fmt.Println(read.Context().Err())
	state, err := prices.State(ctx)
	fmt.Println(state.Mode, len(state.Owners), err)
	fmt.Println(read.Unlock(ctx))
	// Output:
	// <nil>
	// <nil>
	// read 1 <nil>
	// <nil>
}

// Readers of one process that come at the same time need one command between them.
func ExampleShareReads() {
	client := open()
	defer client.Close()
	ctx := context.Background()
	prices := client.ReadWriteLock("prices", redlatch.ShareReads()).ReadLock()
	first, err := prices.Lock(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	second, err := prices.Lock(ctx) // joins the first
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(first.Unlock(ctx)) // the second keeps writers out
	fmt.Println(second.Unlock(ctx))
	// Output:
	// <nil>
	// <nil>
}

// Readers that come while a writer waits stand back for it. With PreferReaders
// they enter, and writers may wait for ever.
func ExamplePreferReaders() {
	client := open()
	defer client.Close()
	ctx := context.Background()
	prices := client.ReadWriteLock("prices", redlatch.PreferReaders())
	const wait, watchdog = time.Second, 0
	hold, err := prices.ReadLock().TryLock(ctx, wait, watchdog)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(hold.Unlock(ctx))
	// Output: <nil>
}
