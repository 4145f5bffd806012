package conn

import (
	"context"
	"fmt"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch/internal/slots"
)

// nodesOf are the nodes that a cluster's client knows. The client library gives out a client that
// knows none if one of its addresses refused in the moment before another was dialled: only a
// command that has a key makes it look for them at once. PING reads nothing under that key.
func nodesOf(ctx context.Context, client rueidis.Client) map[string]rueidis.Client {
	nodes := client.Nodes()
	if len(nodes) == 0 {
		ctx, cancel := limited(ctx, probeLimit)
		defer cancel()
		_ = client.Do(ctx, client.B().Arbitrary("PING").Keys("redlatch").Build()) // The nodes are all that is wanted.
		nodes = client.Nodes()
	}
	return nodes
}

// Masters are the nodes of a cluster that have slots, by address. It blocks until a
// node answers or ctx ends.
func Masters(ctx context.Context, client rueidis.Client) (map[string]rueidis.Client, error) {
	nodes := nodesOf(ctx, client)
	ranges, err := slots.Ask(ctx, nodes)
	if err != nil {
		return nil, fmt.Errorf("asking for the cluster's slots: %w", err)
	}
	out := map[string]rueidis.Client{}
	for _, addr := range slots.Masters(ranges) {
		if out[addr] = nodes[addr]; out[addr] == nil {
			return nil, fmt.Errorf("the cluster's master at %s is not known to the client yet", addr)
		}
	}
	return out, nil
}
