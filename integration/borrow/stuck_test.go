package borrow

import (
	"context"
	"log/slog"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/integration/bed"
	"github.com/redlatch/redlatch/internal/testbed"
)

// stuck is an application's client that keeps scripts for as long as it likes, whatever their ctx says.
type stuck struct {
	rueidis.Client
	keeps atomic.Bool
	kept  atomic.Int32
	open  chan struct{}
}

// Do implements rueidis.Client.
func (s *stuck) Do(ctx context.Context, cmd rueidis.Completed) rueidis.RedisResult {
	if s.keeps.Load() && slices.Contains([]string{"EVALSHA", "EVAL"}, cmd.Commands()[0]) {
		s.kept.Add(1)
		<-s.open
	}
	return s.Client.Do(ctx, cmd)
}

// TestCloseLeavesAStuckClientBehind: calls are left behind by Close, a look and a job of Once as well, if the application's
// client never returns from them; an acquisition hears of it, and so does a hold.
func TestCloseLeavesAStuckClientBehind(t *testing.T) {
	const limit = 200 * time.Millisecond
	for what, call := range map[string]func(ctx context.Context, c *redlatch.Client) error{
		"Inspect": func(ctx context.Context, c *redlatch.Client) error { _, err := c.Inspect(ctx, "l"); return err },
		"Once": func(ctx context.Context, c *redlatch.Client) error {
			_, err := c.Once("job").Do(ctx, time.Minute, func(context.Context) error { return nil })
			return err
		},
		"State": func(ctx context.Context, c *redlatch.Client) error { _, err := c.RLock("l").State(ctx); return err },
		"Lock":  func(ctx context.Context, c *redlatch.Client) error { _, err := c.RLock("l").Lock(ctx); return err },
		"Lock without a limit": func(ctx context.Context, c *redlatch.Client) error {
			_, err := c.RLock("l").Lock(context.WithoutCancel(ctx))
			return err
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			s := bed.Server(t)
			client, _ := app(t, s.Addr())
			wrapped := &stuck{Client: client, open: make(chan struct{})}
			c, err := redlatch.NewWithClient(wrapped, redlatch.Config{UnlockTimeout: limit, Logger: slog.New(slog.DiscardHandler)})
			testbed.Must(t, err)
			h := bed.Lock(t, t.Context(), c.RLock("held"))
			wrapped.keeps.Store(true)
			ctx, cancel := context.WithTimeout(t.Context(), limit/2)
			defer cancel()
			called, closed := make(chan error, 1), make(chan struct{})
			go func() { called <- call(ctx, c) }() // ends when the client lets it
			bed.Eventually(t, "a command that is kept", func() bool { return wrapped.kept.Load() > 0 })
			began := time.Now()
			go func() { // ends with Close
				c.Close()
				close(closed)
			}()
			bed.Receive(t, bed.Patience, closed)
			testbed.AtMost(t, time.Since(began), 4*limit+2*time.Second, "Close took, with an UnlockTimeout of", limit)
			bed.Want(t, context.Cause(h.Context()), redlatch.ErrClosed)
			if what == "Lock without a limit" {
				bed.Want(t, <-called, redlatch.ErrClosed)
				called <- nil
			}
			wrapped.keeps.Store(false)
			close(wrapped.open)
			t.Log(<-called) // any error will do
			<-closed
			works(t, client)
			s.Do(t, "DEL", "held") // left to its lease
		})
	}
}
