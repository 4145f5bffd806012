package pubsub_test

import (
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch/internal/pubsub"
	"github.com/redlatch/redlatch/internal/testbed"
)

// TestTheQuestionForSlotsHasNoDeadline, which would close a connection that others use, but a limit.
func TestTheQuestionForSlotsHasNoDeadline(t *testing.T) {
	asked := testbed.Undated(t, func(c rueidis.Client) { pubsub.NewDialer(pubsub.Redis{Client: c, Sharded: true}).Moved("") })
	testbed.Equal(t, asked, 1, "questions")
}

// TestANodeThatKnowsNoSlotsIsNoAnswer: it has left the cluster. What was known before stays.
func TestANodeThatKnowsNoSlotsIsNoAnswer(t *testing.T) {
	const table = "*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$8\r\n10.0.0.1\r\n:6379\r\n"
	n := &nodes{Client: testbed.Answering(t, "*0\r\n")}
	d := pubsub.NewDialer(pubsub.Redis{Client: n, Sharded: true})
	for _, asked := range []rueidis.Client{testbed.Answering(t, table), n.Client} {
		n.all = map[string]rueidis.Client{"node:1": asked}
		d.Moved("")
		testbed.Equal(t, d.Node(1), "10.0.0.1:6379", "where the slot is")
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
