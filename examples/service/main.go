// Service shuts down gracefully: on SIGTERM it takes no new work, finishes what has begun, and releases its locks.
//
//	REDIS_URL=redis://127.0.0.1:6379 go run ./examples/service   # stop it with Ctrl-C
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
	"syscall"
	"time"

	"github.com/redlatch/redlatch"
)

// grace is how long begun work may take after the signal. The grace period of the
// orchestrator (terminationGracePeriodSeconds) must be longer.
const grace = 10 * time.Second

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	client, err := redlatch.Open(cmp.Or(os.Getenv("REDIS_URL"), "redis://127.0.0.1:6379"), redlatch.WithPrefix("billing:"))
	if err == nil {
		err = run(ctx, client, grace, invoice)
	}
	log.Print("ended: ", err)
}

// invoice is the section: it stops when its context ends, since the lock is lost or the grace period is over.
func invoice(ctx context.Context, customer int) error {
	select {
	case <-time.After(2 * time.Second):
		slog.Info("sent the invoice", "customer", customer)
	case <-ctx.Done():
	}
	return context.Cause(ctx)
}

// run works until ctx ends, and then for at most grace. A service with an http.Server calls that one's Shutdown first.
func run(ctx context.Context, client *redlatch.Client, grace time.Duration, work func(context.Context, int) error) error {
	// The work's context outlives the signal: what has begun is to be finished. Waiters are ended by Shutdown.
	base, abort := context.WithCancel(context.WithoutCancel(ctx))
	defer abort()
	ended := make(chan struct{})
	go func() { // ends with ctx
		defer close(ended)
		for customer := 1; ctx.Err() == nil; customer++ {
			err := client.RLock(fmt.Sprintf("customer:%d", customer)).Do(base, func(ctx context.Context) error {
				return work(ctx, customer)
			})
			if err != nil && !errors.Is(err, redlatch.ErrClosed) { // ErrClosed: it had not begun
				slog.Error("job", "customer", customer, "error", err)
			}
		}
	}()
	<-ctx.Done()
	deadline, cancel := context.WithTimeout(base, grace)
	defer cancel()
	// From now on Lock returns ErrClosed, to waiters too. What is held is renewed until it is unlocked.
	err := client.Shutdown(deadline)
	abort() // if that was too short, the sections' contexts end: they stop and unlock
	<-ended
	client.Close()
	return err
}
