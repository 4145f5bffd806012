package redlatch_test

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch"
)

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
