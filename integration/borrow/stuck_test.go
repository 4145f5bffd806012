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

// TestCloseLeavesAStuckClientBehind: calls that are no acquisition (a look, a job of Once) are left behind
// by Close, too, if the application's client never returns from them.
func TestCloseLeavesAStuckClientBehind(t *testing.T) {
	const limit = 200 * time.Millisecond
	for what, call := range map[string]func(ctx context.Context, c *redlatch.Client){
		"Inspect": func(ctx context.Context, c *redlatch.Client) { _, _ = c.Inspect(ctx, "l") },
		"Once": func(ctx context.Context, c *redlatch.Client) {
			_, _ = c.Once("job").Do(ctx, time.Minute, func(context.Context) error { return nil })
		},
		"State": func(ctx context.Context, c *redlatch.Client) { _, _ = c.RLock("l").State(ctx) },
		"Lock":  func(ctx context.Context, c *redlatch.Client) { _, _ = c.RLock("l").Lock(ctx) },
	} {
		t.Run(what, func(t *testing.T) {
			s := bed.Server(t)
			client, _ := app(t, s.Addr())
			wrapped := &stuck{Client: client, open: make(chan struct{})}
			c, err := redlatch.NewWithClient(wrapped, redlatch.Config{UnlockTimeout: limit, Logger: slog.New(slog.DiscardHandler)})
			if err != nil {
				t.Fatal(err)
			}
			wrapped.keeps.Store(true)
			ctx, cancel := context.WithTimeout(t.Context(), limit/2)
			defer cancel()
			called := make(chan struct{})
			go func() { // ends when the client lets it
				defer close(called)
				call(ctx, c)
			}()
			for wrapped.kept.Load() == 0 {
				time.Sleep(time.Millisecond)
			}
			closed := make(chan struct{})
			began := time.Now()
			go func() { // ends with Close
				c.Close()
				close(closed)
			}()
			select {
			case <-closed:
				if took := time.Since(began); took > 4*limit+2*time.Second {
					t.Errorf("Close took %v with an UnlockTimeout of %v", took, limit)
				}
			case <-time.After(bed.Patience):
				t.Error("Close does not return")
			}
			wrapped.keeps.Store(false)
			close(wrapped.open)
			<-called
			<-closed
		})
	}
}
