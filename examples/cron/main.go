// Cron runs a job once per tick, however many replicas of the service there
// are. Each replica here has a client of its own, as a process would have:
//
//	go run ./examples/cron
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"sync"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/examples/internal/demoserver"
)

const (
	replicas = 3
	ticks    = 3
	interval = 500 * time.Millisecond
	job      = 50 * time.Millisecond // how long the job takes
)

func main() {
	if err := run(context.Background()); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context) (err error) {
	server, err := demoserver.Start(ctx, "cron", demoserver.Auto)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.Stop()) }()
	fmt.Println("Redis:", server.About)

	start := time.Now().Add(interval)
	runs := make([]int, ticks) // each written under the tick's lock
	errs := make([]error, replicas)
	var all sync.WaitGroup
	for r := range replicas {
		all.Go(func() { errs[r] = replica(ctx, server, r, start, runs) })
	}
	all.Wait()

	for tick, n := range runs {
		if n != 1 {
			errs = append(errs, fmt.Errorf("tick %d: the job ran %d times", tick, n))
		}
	}
	return errors.Join(errs...)
}

// replica is one instance of the service.
func replica(ctx context.Context, server *demoserver.Server, nr int, start time.Time, runs []int) error {
	client, err := redlatch.Open(server.URL)
	if err != nil {
		return err
	}
	defer client.Close()

	for tick := range ticks {
		time.Sleep(time.Until(start.Add(time.Duration(tick) * interval)))

		// One lock per tick, and it is not unlocked: a replica whose clock is a
		// little late must still find it taken, after the job is done. So the
		// lease is fixed, longer than the clocks differ and the job takes.
		name := fmt.Sprintf("%s:report:%d", server.Tag, tick)
		hold, err := client.RLock(name).TryLock(ctx, 0, 2*time.Second)
		if errors.Is(err, redlatch.ErrNotAcquired) {
			fmt.Printf("tick %d, replica %d: another one does it\n", tick, nr)
			continue
		}
		if err != nil {
			return fmt.Errorf("replica %d: %w", nr, err)
		}
		fmt.Printf("tick %d, replica %d: runs the job\n", tick, nr)
		if err := report(hold.Context()); err != nil {
			return fmt.Errorf("replica %d: %w", nr, err)
		}
		runs[tick]++
	}
	return nil
}

// report is the job. It stops when the lease ends, as nobody keeps others from
// starting it again then.
func report(ctx context.Context) error {
	select {
	case <-time.After(job):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
