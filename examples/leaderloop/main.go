// Leaderloop elects one of several replicas for work that only one may do at a time: consume a queue, run a scheduler.
// If the leader dies, another replica takes over when its lease ends; if it ends cleanly, at once.
//
//	REDIS_URL=redis://127.0.0.1:6379 go run ./examples/leaderloop   # in two terminals
package main

import (
	"cmp"
	"context"
	"errors"
	"log"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/signal"
	"time"

	"github.com/redlatch/redlatch"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	// The lease is how long nobody leads after a leader has crashed.
	client, err := redlatch.Open(cmp.Or(os.Getenv("REDIS_URL"), "redis://127.0.0.1:6379"), redlatch.WithLeaseTime(6*time.Second))
	if err != nil {
		log.Print(err)
		return
	}
	defer client.Close()
	log.Print("ended: ", lead(ctx, client.RLock("scheduler:leader"), schedule))
}

// schedule is a term of office. Its context ends when the leadership is lost.
func schedule(ctx context.Context) error {
	for {
		slog.Info("leading")
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// pause is for how long a replica stands back after its term, so that a fault of this replica alone leads to another leader.
const pause = time.Second

// lead stands for election, and runs term whenever it is elected. At the end of ctx it returns nil.
func lead(ctx context.Context, lock redlatch.Locker, term func(context.Context) error) error {
	for ctx.Err() == nil {
		// Lock waits in line without polling, also through an outage of the server.
		switch err := redlatch.Do(ctx, lock, term); {
		case ctx.Err() != nil: // the end of this replica's term is no failure
		case errors.Is(err, redlatch.ErrClosed):
			return err
		case errors.Is(err, redlatch.ErrLeaseLost):
			slog.Warn("leadership lost", "error", err)
		case err != nil:
			slog.Error("the term failed", "error", err)
		}
		select {
		case <-time.After(pause/2 + rand.N(pause)):
		case <-ctx.Done():
		}
	}
	return nil
}
