package conn

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/redis/rueidis"
)

// noted is a client without a server that notes the ctx of each command.
type noted struct {
	rueidis.Client

	mu   sync.Mutex
	ctxs []context.Context // guarded by mu
}

func newNoted(t *testing.T) *noted {
	t.Helper()
	client, err := rueidis.NewClient(rueidis.ClientOption{
		InitAddress: []string{"127.0.0.1:1"}, ForceSingleClient: true, DisableRetry: true,
	})
	if client == nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return &noted{Client: client}
}

// Do implements rueidis.Client.
func (n *noted) Do(ctx context.Context, cmd rueidis.Completed) rueidis.RedisResult {
	n.mu.Lock()
	n.ctxs = append(n.ctxs, ctx)
	n.mu.Unlock()
	return n.Client.Do(ctx, cmd)
}

// Nodes implements rueidis.Client: it is a cluster of itself.
func (n *noted) Nodes() map[string]rueidis.Client { return map[string]rueidis.Client{"127.0.0.1:1": n} }

// TestLimitsAreNoDeadlines: what is asked through a client that others may use ends by itself, but has
// no deadline, which would close their connection.
func TestLimitsAreNoDeadlines(t *testing.T) {
	for what, ask := range map[string]func(rueidis.Client){
		"the version": func(c rueidis.Client) { _, _ = askServer(c) },
		"the slots": func(c rueidis.Client) {
			var table slotTable
			table.ask(c, new(Instant))
			table.wg.Wait()
		},
	} {
		client := newNoted(t)
		ask(client)
		if len(client.ctxs) == 0 {
			t.Errorf("%s: not asked for", what)
		}
		for _, ctx := range client.ctxs {
			if at, ok := ctx.Deadline(); ok || ctx.Done() == nil {
				t.Errorf("%s: a deadline at %v (%t), a limit %t", what, at, ok, ctx.Done() != nil)
			}
		}
	}
}

// TestUndatedEndsAlike: only the deadline is hidden.
func TestUndatedEndsAlike(t *testing.T) {
	type key struct{}
	limit := errors.New("the limit")
	ctx, cancel := context.WithTimeoutCause(context.WithValue(t.Context(), key{}, 1), time.Millisecond, limit)
	defer cancel()
	u := Undated(ctx)
	child, stop := context.WithCancel(u)
	defer stop()
	<-child.Done()
	if _, ok := u.Deadline(); ok || !errors.Is(u.Err(), context.DeadlineExceeded) || !errors.Is(context.Cause(u), limit) ||
		!errors.Is(context.Cause(child), limit) || u.Value(key{}) != 1 {
		t.Error(u.Err(), context.Cause(u), context.Cause(child))
	}
}
