package redlatch_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redlatch/redlatch"
)

func ExampleClient_Held() {
	ctx := context.Background()
	client, err := redlatch.Open(redisURL)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer client.Close()

	hold, err := client.RLock("held:42").Lock(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, l := range client.Held() {
		fmt.Println(l.Name, l.Type, l.Count)
	}

	// A Shutdown that can't wait any longer says what was not unlocked.
	short, cancel := context.WithTimeout(ctx, 10*time.Millisecond)
	defer cancel()
	var still *redlatch.ShutdownError
	if errors.As(client.Shutdown(short), &still) {
		fmt.Println("still held:", still.Held[0].Name)
	}
	if err := hold.Unlock(ctx); err != nil {
		fmt.Println(err)
	}
	// Output:
	// held:42 reentrant 1
	// still held: held:42
}
