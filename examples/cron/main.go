// Cron runs a job once per tick, however many replicas of the service there are and however early or late each is.
//
//	REDIS_URL=redis://127.0.0.1:6379 go run ./examples/cron   # in two terminals
package main

import (
	"cmp"
	"context"
	"errors"
	"log"
	"os"
	"os/signal"
	"time"

	"github.com/redlatch/redlatch"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	client, err := redlatch.Open(cmp.Or(os.Getenv("REDIS_URL"), "redis://127.0.0.1:6379"), redlatch.WithPrefix("cron:"))
	if err != nil {
		log.Fatal(err)
	}
	const period = 2 * time.Second
	every(ctx, time.Tick(period), client.Once("report"), period, report)
	stop()
	client.Close()
}

// report is the job. Its context ends if the run is no longer the only one.
func report(context.Context) error {
	log.Print("the report is sent")
	return nil
}

// every calls the job at each tick of this replica's clock, unless another replica has had this period's run.
// The server decides, by its own clock. It returns when ctx ends.
func every(ctx context.Context, ticks <-chan time.Time, once *redlatch.Once, period time.Duration, job func(context.Context) error) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticks:
		}
		switch ran, err := once.Do(ctx, period, job); {
		case errors.Is(err, redlatch.ErrUnavailable):
			log.Print("no run by this replica, Redis does not answer: ", err) // the next tick tries again
		case err != nil:
			log.Print("the run failed: ", err) // it has used up its period, unless you call once.Reset
		case !ran:
			log.Print("another replica did it")
		}
	}
}
