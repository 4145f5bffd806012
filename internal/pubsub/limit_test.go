package pubsub_test

import (
	"context"
	"testing"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch/internal/pubsub"
)

// noted is a cluster of one node that is not there; it notes the ctx of each command.
type noted struct {
	rueidis.Client
	ctxs []context.Context
}

// Nodes implements rueidis.Client.
func (n *noted) Nodes() map[string]rueidis.Client { return map[string]rueidis.Client{"127.0.0.1:1": n} }

// Do implements rueidis.Client.
func (n *noted) Do(ctx context.Context, cmd rueidis.Completed) rueidis.RedisResult {
	n.ctxs = append(n.ctxs, ctx)
	return n.Client.Do(ctx, cmd)
}

// TestTheQuestionForSlotsHasNoDeadline, which would close a connection that others use, but a limit.
func TestTheQuestionForSlotsHasNoDeadline(t *testing.T) {
	client, err := rueidis.NewClient(rueidis.ClientOption{
		InitAddress: []string{"127.0.0.1:1"}, ForceSingleClient: true, DisableRetry: true,
	})
	if client == nil {
		t.Fatal(err)
	}
	defer client.Close()
	n := &noted{Client: client}
	pubsub.NewDialer(n, true, func(error) bool { return false }, nil).Moved("")
	if len(n.ctxs) != 1 {
		t.Fatalf("asked %d times", len(n.ctxs))
	}
	if at, ok := n.ctxs[0].Deadline(); ok || n.ctxs[0].Done() == nil {
		t.Errorf("a deadline at %v (%t), a limit %t", at, ok, n.ctxs[0].Done() != nil)
	}
}
