package integration

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/testbed"
)

// What runs in processes of its own for the tests of the plain lock.

func init() {
	testbed.Role("rlock-holder", rlHolder)
	testbed.Role("rlock-counter", rlCounter)
}

type rlHolderArgs struct {
	Addr    string
	Name    string
	LeaseMs int
}

// client connects in its own time, as rlClient does.
func (a rlHolderArgs) client() (*redlatch.Client, error) {
	for end := time.Now().Add(rlPatience); ; time.Sleep(2 * time.Millisecond) {
		c, err := redlatch.New(redlatch.Config{
			Redis:     rueidis.ClientOption{InitAddress: []string{a.Addr}},
			LeaseTime: time.Duration(a.LeaseMs) * time.Millisecond,
			Logger:    slog.New(slog.DiscardHandler),
		})
		if !errors.Is(err, redlatch.ErrUnavailable) || time.Now().After(end) {
			return c, err
		}
	}
}

// rlHolder takes a lock, says "held", tells when and why the hold ended and what
// Unlock says then.
func rlHolder(ctx context.Context, w *testbed.Worker) error {
	var args rlHolderArgs
	if err := w.Args(&args); err != nil {
		return err
	}
	c, err := args.client()
	if err != nil {
		return err
	}
	defer c.Close()
	h, err := c.RLock(args.Name).Lock(ctx)
	if err != nil {
		return err
	}
	w.Say("held")
	<-h.Context().Done()
	w.Say("ended %v", context.Cause(h.Context()))
	w.Say("unlock %v", h.Unlock(ctx))
	<-ctx.Done()
	return nil
}

type rlCounterArgs struct {
	rlHolderArgs

	Goroutines int
	Rounds     int
	// Cancel gives acquisitions a ctx that ends after a random part of it.
	CancelMs int
}

// rlCounter adds to a counter in sections that are atomic only because of the
// lock, and says how often it did.
func rlCounter(ctx context.Context, w *testbed.Worker) error {
	var args rlCounterArgs
	if err := w.Args(&args); err != nil {
		return err
	}
	c, err := args.client()
	if err != nil {
		return err
	}
	defer c.Close()
	db, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{args.Addr}, DisableCache: true})
	if err != nil {
		return err
	}
	defer db.Close()
	w.Say("ready")
	<-w.Lines()

	var added, given atomic.Int64
	fail := make(chan error, args.Goroutines)
	var wg sync.WaitGroup
	for range args.Goroutines {
		wg.Go(func() {
			for range args.Rounds {
				switch ok, err := rlAddOne(ctx, c, db, args); {
				case err != nil:
					fail <- err
					return
				case ok:
					added.Add(1)
				default:
					given.Add(1)
				}
			}
		})
	}
	wg.Wait()
	select {
	case err := <-fail:
		return err
	default:
	}
	w.Say("done %d %d", added.Load(), given.Load())
	return nil
}

func rlAddOne(ctx context.Context, c *redlatch.Client, db rueidis.Client, args rlCounterArgs) (bool, error) {
	lctx := ctx
	if args.CancelMs > 0 {
		var cancel context.CancelFunc
		limit := time.Duration(rand.Int64N(int64(args.CancelMs) * int64(time.Millisecond)))
		lctx, cancel = context.WithTimeout(ctx, limit)
		defer cancel()
	}
	h, err := c.RLock(args.Name).Lock(lctx)
	if waited(err) && ctx.Err() == nil {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	// Read, then write in another command: two at once would lose one.
	n, err := db.Do(ctx, db.B().Get().Key("counter").Build()).AsInt64()
	if err != nil && !rueidis.IsRedisNil(err) {
		return false, err
	}
	if err := db.Do(ctx, db.B().Set().Key("counter").Value(fmt.Sprint(n+1)).Build()).Error(); err != nil {
		return false, err
	}
	if err := h.Unlock(lctx); err != nil {
		return false, fmt.Errorf("unlock: %w", err)
	}
	return true, nil
}
