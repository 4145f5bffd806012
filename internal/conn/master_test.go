package conn

import (
	"testing"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch/internal/testbed"
)

// addresses is a client that knows nodes at these addresses.
type addresses struct {
	rueidis.Client
	at []string
}

// Nodes implements rueidis.Client.
func (a addresses) Nodes() map[string]rueidis.Client {
	nodes := map[string]rueidis.Client{}
	for _, addr := range a.at {
		nodes[addr] = a
	}
	return nodes
}

// TestMasterOfAClientThatReadsFromAReplica: it has two nodes, in any order. That is no move, and another
// master is one.
func TestMasterOfAClientThatReadsFromAReplica(t *testing.T) {
	before := masterAddr(addresses{at: []string{"m:1", "r:1"}})
	for range 100 {
		testbed.Equal(t, masterAddr(addresses{at: []string{"r:1", "m:1"}}), before, "though nothing has moved")
	}
	for _, at := range [][]string{{"r:1"}, {"r:1", "s:1"}, {"m:1"}} {
		if masterAddr(addresses{at: at}) == before {
			t.Errorf("%v is taken for %s", at, before)
		}
	}
	testbed.Equal(t, masterAddr(addresses{at: []string{"m:1"}}), "m:1", "the only one")
}
