package conn

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch/internal/slots"
)

// fromAnyLimit is how long fromAny begins to ask another node.
const fromAnyLimit = 5 * time.Second

// fromAny asks a question that each node can answer. A cluster's client sends what has no key to
// any address that it knows, that of a server which is down too: one node after the other is
// asked then, until one answers or refuses for good.
func fromAny[T any](client rueidis.Client, ask func(rueidis.Client) (T, error)) (T, error) {
	answer, err := ask(client)
	if err == nil || IsPermanent(err) || client.Mode() != rueidis.ClientModeCluster {
		return answer, err
	}
	began := time.Now()
	for _, node := range nodesOf(context.Background(), client) {
		if time.Since(began) > fromAnyLimit {
			break
		}
		if answer, nodeErr := ask(node); nodeErr == nil || IsPermanent(nodeErr) {
			return answer, nodeErr
		}
	}
	return answer, err
}

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
