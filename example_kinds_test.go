package redlatch_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/testbed"
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
		const oneAttempt, watchdog = 0, 0
		_, err := prices.WriteLock().TryLock(other, oneAttempt, watchdog)
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
	fmt.Println(state.Mode, len(state.Holders), err)
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

// Several locks as one: all are taken or none, in one command, since they are plain
// locks of one client on one node.
func ExampleMultiLock() {
	client := open()
	defer client.Close()
	ctx := context.Background()

	order := redlatch.MultiLock(client.RLock("stock:7"), client.RLock("user:42"), client.RLock("coupon:x"))
	err := order.Do(ctx, func(ctx context.Context) error {
		// All three are held; ctx ends when one of them is lost.
		const oneAttempt, watchdog = 0, 0
		_, err := redlatch.MultiLock(client.RLock("coupon:x"), client.RLock("coupon:y")).
			TryLock(redlatch.NewOwner(ctx), oneAttempt, watchdog) // somebody else
		fmt.Println("busy:", errors.Is(err, redlatch.ErrNotAcquired))
		return nil
	})
	fmt.Println(err)
	// Output:
	// busy: true
	// <nil>
}

// One lock on three independent servers: it is held by whoever has two of them.
func ExampleQuorumLock() {
	var bed testbed.Program // starts three servers for this example
	defer bed.Close()
	var copies []redlatch.Member
	for _, server := range testbed.Masters(&bed, 3) {
		client, err := redlatch.New(redlatch.Config{
			// New succeeds with it although the server is down.
			Redis: rueidis.ClientOption{InitAddress: []string{server.Addr()}, ForceSingleClient: true},
		})
		if err != nil {
			fmt.Println(err)
			return
		}
		defer client.Close()
		copies = append(copies, client.RLock("leader", redlatch.Fenced()))
	}
	leader := redlatch.QuorumLock(copies...)

	const wait, watchdog = 5 * time.Second, 0
	hold, err := leader.TryLock(context.Background(), wait, watchdog)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("fenced:", hold.Token() > 0)
	fmt.Println(hold.Unlock(context.Background()))
	// Output:
	// fenced: true
	// <nil>
}

// The hold of a MultiLock has a fencing token for each member.
func ExampleMultiHold() {
	client := open()
	defer client.Close()

	hold, err := redlatch.MultiLock(
		client.RLock("account:a", redlatch.Fenced()), client.RLock("account:b", redlatch.Fenced()), client.RLock("log"),
	).Lock(context.Background())
	if err != nil {
		fmt.Println(err)
		return
	}
	var fenced []string
	for _, token := range hold.(redlatch.MultiHold).Tokens() {
		fenced = append(fenced, fmt.Sprint(token > 0))
	}
	fmt.Println(strings.Join(fenced, " "))
	fmt.Println(hold.Unlock(context.Background()))
	// Output:
	// true true false
	// <nil>
}

// The replicas of a service do a job once per minute, whichever of them comes first.
func ExampleClient_Once() {
	ctx := context.Background()
	client := open()
	defer client.Close()
	another := open() // in another process
	defer another.Close()

	report := func(context.Context) error {
		fmt.Println("the report is sent")
		return nil
	}
	// Each calls it at its own tick, by its own clock.
	for _, replica := range []*redlatch.Client{client, another} {
		ran, err := replica.Once("report").Do(ctx, time.Minute, report)
		fmt.Println(ran, err)
	}
	// Output:
	// the report is sent
	// true <nil>
	// false <nil>
}

// A run that failed has used up its period, unless it is forgotten.
func ExampleOnce_Reset() {
	ctx := context.Background()
	client := open()
	defer client.Close()
	cleanup := client.Once("cleanup")

	tries := 0
	job := func(context.Context) error {
		if tries++; tries == 1 {
			return fmt.Errorf("table is locked")
		}
		return nil
	}
	for range 3 {
		ran, err := cleanup.Do(ctx, time.Hour, job)
		fmt.Println(ran, err)
		if err != nil {
			if _, err := cleanup.Reset(ctx); err != nil { // the next call of any replica tries again
				fmt.Println(err)
			}
		}
	}
	// Output:
	// true table is locked
	// true <nil>
	// false <nil>
}

// An operator asks when the index was rebuilt last, and when it is due again.
func ExampleOnce_Last() {
	ctx := context.Background()
	client := open()
	defer client.Close()
	rebuild := client.Once("rebuild")

	if _, err := rebuild.Do(ctx, time.Hour, func(context.Context) error { return nil }); err != nil {
		fmt.Println(err)
	}
	run, err := rebuild.Last(ctx)
	fmt.Println(run.Due.Sub(run.Began).Round(time.Minute), run.ClientID == client.ID(), err)
	// Output: 1h0m0s true <nil>
}

// The application has a client already. Config.Redis tells its options, so that they
// can be checked.
func ExampleNewWithClient() {
	ctx := context.Background()
	options := rueidis.ClientOption{InitAddress: []string{strings.TrimPrefix(redisURL, "redis://")}}
	app, err := rueidis.NewClient(options)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer app.Close() // after the locks

	client, err := redlatch.NewWithClient(app, redlatch.Config{Redis: options})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer client.Close() // leaves app open

	err = client.RLock("orders:42").Do(ctx, func(ctx context.Context) error {
		return app.Do(ctx, app.B().Set().Key("order:42:state").Value("shipped").Build()).Error()
	})
	fmt.Println(err)
	// Output: <nil>
}
