package pubsub_test

import (
	"context"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch/internal/pubsub"
	"github.com/redlatch/redlatch/internal/testbed"
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
	pubsub.NewDialer(pubsub.Redis{Client: n, Sharded: true}).Moved("")
	if len(n.ctxs) != 1 {
		t.Fatalf("asked %d times", len(n.ctxs))
	}
	if at, ok := n.ctxs[0].Deadline(); ok || n.ctxs[0].Done() == nil {
		t.Errorf("a deadline at %v (%t), a limit %t", at, ok, n.ctxs[0].Done() != nil)
	}
}

// TestANodeThatKnowsNoSlotsIsNoAnswer: it has left the cluster. What was known before stays.
func TestANodeThatKnowsNoSlotsIsNoAnswer(t *testing.T) {
	const table = "*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$8\r\n10.0.0.1\r\n:6379\r\n"
	n := &nodes{Client: testbed.Answering(t, "*0\r\n")}
	d := pubsub.NewDialer(pubsub.Redis{Client: n, Sharded: true})
	for _, asked := range []rueidis.Client{testbed.Answering(t, table), n.Client} {
		n.all = map[string]rueidis.Client{"node:1": asked}
		d.Moved("")
		if node := d.Node(1); node != "10.0.0.1:6379" {
			t.Fatal("the slot is on", node)
		}
		time.Sleep(60 * time.Millisecond) // within 50 ms nobody is asked
	}
}

// nodes is a cluster.
type nodes struct {
	rueidis.Client
	all map[string]rueidis.Client
}

// Nodes implements rueidis.Client.
func (n *nodes) Nodes() map[string]rueidis.Client { return n.all }
