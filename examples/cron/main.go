// Cron runs a job once per tick, however many replicas of the service there are and
// however early or late each one is. Each replica here has its own client, like a
// process, and a clock that is wrong by up to 80 ms:
//
//	go run ./examples/cron
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"slices"
	"sync"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/examples/internal/demoserver"
)

const (
	ticks  = 3
	period = 2 * time.Second
)

// skews are how early or late each replica is at every tick.
var skews = []time.Duration{-20 * time.Millisecond, 0, 80 * time.Millisecond}

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

	r := &report{runs: make([]int, ticks)}
	open := func() (*redlatch.Client, error) { return redlatch.Open(server.URL) }
	took, err := replicas(ctx, open, server.Tag+":report", r)

	// A machine that stands still can make a replica miss a tick, but no more runs begin
	// than there are periods; the first may come a tenth of one early.
	total := 0
	for _, n := range r.runs {
		total += n
	}
	if most := 1 + int((took+period/10)/period); total == 0 || total > most {
		err = errors.Join(err, fmt.Errorf("the job ran %d times in %v", total, took))
	}
	return err
}

// replicas lets all replicas go through their ticks. It returns how long that took from
// the first tick of the first one.
func replicas(ctx context.Context, open func() (*redlatch.Client, error), name string, r *report) (time.Duration, error) {
	start := time.Now().Add(period)
	errs := make([]error, len(skews))
	var all sync.WaitGroup
	for nr, skew := range skews {
		all.Go(func() { errs[nr] = replica(ctx, open, name, nr, start.Add(skew), r) })
	}
	all.Wait()
	return time.Since(start.Add(slices.Min(skews))), errors.Join(errs...)
}

// replica is one instance of the service. start is its first tick, by its own clock.
func replica(ctx context.Context, open func() (*redlatch.Client, error), name string, nr int, start time.Time, r *report) error {
	client, err := open()
	if err != nil {
		return err
	}
	defer client.Close()
	job := client.Once(name)

	for tick := range ticks {
		time.Sleep(time.Until(start.Add(time.Duration(tick) * period)))

		// The server decides by its own clock. The job takes no time at all here: the
		// replica that comes 80 ms later finds the tick's run made all the same.
		ran, err := job.Do(ctx, period, func(ctx context.Context) error { return r.send(ctx, tick) })
		if err != nil {
			return fmt.Errorf("replica %d, tick %d: %w", nr, tick, err)
		}
		if ran {
			fmt.Printf("tick %d, replica %d: ran the job\n", tick, nr)
		} else {
			fmt.Printf("tick %d, replica %d: another one did it\n", tick, nr)
		}
	}
	return nil // the record of the last run goes by itself when its period is over
}

// report is the job. It counts its runs to check the example.
type report struct {
	mu   sync.Mutex
	runs []int // guarded by mu; by tick
}

// send works with the run's context, which ends if the run is no longer the only one.
func (r *report) send(ctx context.Context, tick int) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.runs[tick]++
	return ctx.Err()
}
