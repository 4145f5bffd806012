package testbed

import (
	"context"
	"sync"

	"github.com/redis/rueidis"
)

// noted is a cluster of one node that is not there; it notes the ctx of each command.
type noted struct {
	rueidis.Client

	mu   sync.Mutex
	ctxs []context.Context // guarded by mu
}

// Do implements rueidis.Client.
func (n *noted) Do(ctx context.Context, cmd rueidis.Completed) rueidis.RedisResult {
	n.mu.Lock()
	n.ctxs = append(n.ctxs, ctx)
	n.mu.Unlock()
	return n.Client.Do(ctx, cmd)
}

// Nodes implements rueidis.Client.
func (n *noted) Nodes() map[string]rueidis.Client { return map[string]rueidis.Client{"127.0.0.1:1": n} }

// Undated fails the test unless each command that ask sends, at least one, has a ctx that ends by itself, but no
// deadline, which would close a connection that others use. It returns how many there were.
func Undated(tb TB, ask func(rueidis.Client)) int {
	tb.Helper()
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{"127.0.0.1:1"}, ForceSingleClient: true, DisableRetry: true})
	if client == nil {
		tb.Fatalf("testbed: a client without a server: %v", err)
	}
	defer client.Close()
	n := &noted{Client: client}
	ask(n)
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.ctxs) == 0 {
		tb.Errorf("nothing was asked")
	}
	for _, ctx := range n.ctxs {
		if at, ok := ctx.Deadline(); ok || ctx.Done() == nil {
			tb.Errorf("a deadline at %v (%t), a limit %t", at, ok, ctx.Done() != nil)
		}
	}
	return len(n.ctxs)
}
