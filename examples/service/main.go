// Service shows a graceful shutdown with locks: on SIGTERM it takes no new work,
// finishes running work, and releases its locks.
//
//	REDIS_URL=redis://127.0.0.1:6379 go run ./examples/service
//
// Stop it with Ctrl-C or, like Kubernetes, with SIGTERM. The grace period of
// the orchestrator (terminationGracePeriodSeconds) must be longer than grace.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/redlatch/redlatch"
)

// grace is how long begun work may take after the signal.
const grace = 10 * time.Second

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	client, err := redlatch.Open(cmp.Or(os.Getenv("REDIS_URL"), "redis://127.0.0.1:6379"), redlatch.WithPrefix("billing:"))
	if err != nil {
		log.Fatal(err)
	}
	if err := run(ctx, client, grace, invoice); err != nil {
		log.Fatal(err)
	}
}

// run works until ctx ends, and then for at most grace.
func run(ctx context.Context, client *redlatch.Client, grace time.Duration, work func(context.Context, int) error) error {
	// The jobs' context outlives the signal: what has begun is to be finished. What
	// waits for a lock is ended by Shutdown, not by the signal.
	base, abort := context.WithCancel(context.WithoutCancel(ctx))
	defer abort()

	var jobs sync.WaitGroup
	jobs.Go(func() { // ends with ctx
		for customer := 1; ctx.Err() == nil; customer++ {
			if err := job(base, client, customer, work); err != nil {
				slog.Error("job", "customer", customer, "error", err)
			}
			select {
			case <-time.After(100 * time.Millisecond): // the next job comes
			case <-ctx.Done():
			}
		}
	})

	<-ctx.Done()
	slog.Info("stopping", "grace", grace)
	deadline, cancel := context.WithTimeout(base, grace)
	defer cancel()

	// From now on Lock returns ErrClosed, to those who wait as well; what is held is
	// renewed until it is unlocked. A service with an http.Server calls that one's
	// Shutdown first.
	err := client.Shutdown(deadline)
	if err != nil {
		err = fmt.Errorf("not finished within %v: %w", grace, err)
		abort() // the sections' contexts end: they stop and unlock
	}
	jobs.Wait()
	client.Close() // nothing is left to do if Shutdown succeeded
	return err
}

// job does one customer's work when no other replica is at it.
func job(ctx context.Context, client *redlatch.Client, customer int, work func(context.Context, int) error) error {
	err := client.RLock(fmt.Sprintf("customer:%d", customer)).Do(ctx, func(ctx context.Context) error {
		return work(ctx, customer)
	})
	if errors.Is(err, redlatch.ErrClosed) {
		return nil // it had not begun
	}
	return err
}

// invoice is the section: it stops when its context ends, which is when the lock
// is lost or the grace period is over.
func invoice(ctx context.Context, customer int) error {
	select {
	case <-time.After(2 * time.Second):
		slog.Info("sent the invoice", "customer", customer)
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
