package conn

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/redis/rueidis"
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

var errNoSlots = errors.New("the cluster has no slots")

// clusterSlots asks where the slots are. A node that knows of none has left the cluster, or is new
// there: another one is asked.
func clusterSlots(ctx context.Context, client rueidis.Client) ([]rueidis.RedisMessage, error) {
	return fromAny(client, func(client rueidis.Client) ([]rueidis.RedisMessage, error) {
		slots, err := client.Do(ctx, client.B().ClusterSlots().Build()).ToArray()
		if err == nil && len(slots) == 0 {
			err = errNoSlots
		}
		return slots, err
	})
}

// Masters are the nodes of a cluster that have slots, by address. It blocks until a
// node answers or ctx ends.
func Masters(ctx context.Context, client rueidis.Client) (map[string]rueidis.Client, error) {
	slots, err := clusterSlots(ctx, client)
	if err != nil {
		return nil, fmt.Errorf("asking for the cluster's slots: %w", err)
	}
	nodes := nodesOf(ctx, client)
	out := map[string]rueidis.Client{}
	for _, s := range slots {
		parts, err := s.ToArray()
		if err != nil || len(parts) < 3 {
			continue
		}
		master, err := parts[2].ToArray()
		if err != nil || len(master) < 2 {
			continue
		}
		host, _ := master[0].ToString()
		port, err := master[1].AsInt64()
		if err != nil {
			continue
		}
		addr := net.JoinHostPort(host, strconv.FormatInt(port, 10))
		found, ok := nodes[addr]
		if !ok && (host == "" || host == "?") {
			// it does not know its own address: the one of this port is meant
			for a, c := range nodes {
				if _, p, err := net.SplitHostPort(a); err == nil && p == strconv.FormatInt(port, 10) {
					addr, found, ok = a, c, true
				}
			}
		}
		if !ok {
			return nil, fmt.Errorf("the cluster's master at %s is not known to the client yet", addr)
		}
		out[addr] = found
	}
	if len(out) == 0 {
		return nil, errNoSlots
	}
	return out, nil
}
