package conn

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch/internal/slots"
	"github.com/redlatch/redlatch/internal/testbed"
)

// TestMovedSlotsAreABreak when the table says so, and neither the first table nor one that says
// the same is.
func TestMovedSlotsAreABreak(t *testing.T) {
	var table slotTable
	var broke Instant
	ranges := []slots.Range{{From: 0, To: 8191, Node: "10.0.0.1:6379"}, {From: 8192, To: 16383, Node: "10.0.0.2:6379"}}
	for range 2 {
		table.learn(time.Now(), slices.Clone(ranges), &broke)
		testbed.Equal(t, broke.Last().IsZero(), true, "no break while nothing has moved")
	}
	before := time.Now()
	taken := slices.Clone(ranges)
	taken[1].Node = "10.0.0.3:6379"
	table.learn(time.Now(), taken, &broke)
	testbed.AtLeast(t, broke.Last().Sub(before), 0, "how late it broke after a node took over")
	testbed.Equal(t, table.node(nil, &broke, 9000), "10.0.0.3:6379", "where the slot is")
}

// TestANodeThatKnowsNoSlotsIsNoAnswer: it has left the cluster, and another one is asked.
func TestANodeThatKnowsNoSlotsIsNoAnswer(t *testing.T) {
	table := "*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$8\r\n10.0.0.1\r\n:6379\r\n"
	left, member := testbed.Answering(t, "*0\r\n"), testbed.Answering(t, table)
	for range 20 { // the order of the nodes is a matter of chance
		ranges, err := slots.Ask(t.Context(), map[string]rueidis.Client{"left": left, "member": member})
		if want := []slots.Range{{From: 0, To: 16383, Node: "10.0.0.1:6379"}}; err != nil || !slices.Equal(ranges, want) {
			t.Fatal(ranges, err)
		}
	}
	if ranges, err := slots.Ask(t.Context(), map[string]rueidis.Client{"left": left}); !errors.Is(err, slots.ErrNone) {
		t.Error(ranges, err)
	}
	if masters, err := Masters(t.Context(), nodes{left, map[string]rueidis.Client{"left": left}}); !errors.Is(err, slots.ErrNone) {
		t.Error(masters, err)
	}
}

// nodes is a cluster; what has no key goes to Client.
type nodes struct {
	rueidis.Client
	all map[string]rueidis.Client
}

// Mode implements rueidis.Client.
func (nodes) Mode() rueidis.ClientMode { return rueidis.ClientModeCluster }

// Nodes implements rueidis.Client.
func (n nodes) Nodes() map[string]rueidis.Client { return n.all }
