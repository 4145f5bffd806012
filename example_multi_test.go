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

// Several locks as one: all are taken or none, in one command, since they are plain
// locks of one client on one node.
func ExampleMultiLock() {
	client := open()
	defer client.Close()
	ctx := context.Background()

	order := redlatch.MultiLock(client.RLock("stock:7"), client.RLock("user:42"), client.RLock("coupon:x"))
	err := order.Do(ctx, func(ctx context.Context) error {
		// All three are held; ctx ends when one of them is lost.
		_, err := redlatch.MultiLock(client.RLock("coupon:x"), client.RLock("coupon:y")).
			TryLock(redlatch.NewOwner(ctx), 0, 0) // somebody else
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
