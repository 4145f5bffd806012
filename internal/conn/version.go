package conn

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch/lock"
)

// The oldest servers that work: fair locks need LPOS, which came with Redis 6.0.6.
// docs/SERVERS.md says it, and which versions are tested.
var oldest = []int{6, 0, 6}

// about is what a server says of itself.
type about struct {
	product string // "redis", "valkey", …
	version string // "" if it doesn't say
	mode    string // "standalone", "cluster", "sentinel"; "" if it doesn't say
}

// number is the version, or nil.
func (a about) number() []int {
	n := make([]int, len(oldest))
	if known, _ := fmt.Sscanf(a.version, "%d.%d.%d", &n[0], &n[1], &n[2]); known == 0 {
		return nil
	}
	return n
}

// look finds out what the client is connected to, and refuses what can't work. answered is false if a single
// server gave no answer: as if it had not been there yet.
func (o *dialler) look(opt rueidis.ClientOption, client rueidis.Client) (topo Topology, answered bool, err error) {
	a, err := askServer(client)
	if err != nil && !IsPermanent(err) {
		if opt.ForceSingleClient {
			return topo, false, nil
		}
		return topo, false, o.unavailable(opt, fmt.Errorf("asking for the server version: %w", o.known.clean(err)))
	}
	topo, err = o.judge(opt, client, a, err)
	return topo, true, err
}

// judge says what the client is connected to, by what a server said of itself, or err if it refused to.
func (o *dialler) judge(opt rueidis.ClientOption, client rueidis.Client, a about, err error) (Topology, error) {
	topo := Topology{Cluster: client.Mode() == rueidis.ClientModeCluster}
	switch {
	case err != nil && topo.Cluster:
		// Where unlock messages go depends on it.
		_, told := o.explain(opt, err)
		return topo, told
	case err != nil:
		return topo, nil //nolint:nilerr // it keeps its version to itself; what it lacks its answers will say
	case a.mode == "sentinel":
		return topo, o.final(opt, lock.ConnectTopology, "this is a sentinel: set Sentinel.MasterSet (master_set in a URL)", nil)
	case a.mode == "cluster" && !topo.Cluster && showsSlots(client):
		// It refuses what concerns several locks, which are in several slots, and its own clients
		// publish elsewhere. One that shows nobody its slots is behind a proxy, which finds them.
		return topo, o.final(opt, lock.ConnectTopology, "this is a node of a cluster, and the client takes it for a single server: "+
			"leave ForceSingleClient unset, let the user run CLUSTER SLOTS (docs/ACL.md), and open the client when the node is there", nil)
	}
	n := a.number()
	if n != nil && slices.Compare(n, oldest) < 0 {
		return topo, o.final(opt, lock.ConnectVersion,
			fmt.Sprintf("the server is %s %s; redlatch needs Redis %d.%d.%d or newer, or Valkey: upgrade the server",
				a.product, a.version, oldest[0], oldest[1], oldest[2]), nil)
	}
	topo.Sharded = topo.Cluster && n != nil && n[0] >= 7
	return topo, nil
}

// showsSlots reports whether the server tells where the slots of its cluster are, be it to other
// users only.
func showsSlots(client rueidis.Client) bool {
	ctx, cancel := limited(context.Background(), probeLimit)
	defer cancel()
	err := client.Do(ctx, client.B().ClusterSlots().Build()).Error()
	msg, answered := answerOf(err)
	return err == nil || answered && hasCode(msg, "NOPERM")
}

// askServer asks what the servers are. One answers for all of a cluster. A cluster's client sends what has no key to
// any address that it knows, that of a server which is down too: one node after the other is asked then, until one
// answers or refuses for good.
func askServer(client rueidis.Client) (about, error) {
	a, err := askOne(client)
	if err == nil || IsPermanent(err) || client.Mode() != rueidis.ClientModeCluster {
		return a, err
	}
	began := time.Now()
	for _, node := range nodesOf(context.Background(), client) {
		if time.Since(began) > probeLimit {
			break
		}
		if a, nodeErr := askOne(node); nodeErr == nil || IsPermanent(nodeErr) {
			return a, nodeErr
		}
	}
	return a, err
}

func askOne(client rueidis.Client) (about, error) {
	ctx, cancel := limited(context.Background(), probeLimit)
	defer cancel()
	hello, err := client.Do(ctx, client.B().Arbitrary("HELLO").Build()).AsStrMap()
	if err == nil {
		return about{hello["server"], hello["version"], hello["mode"]}, nil
	}
	var re *rueidis.RedisError
	if !errors.As(err, &re) || !IsPermanent(err) {
		return about{}, err
	}
	// HELLO without a version of the protocol came with Redis 6.2, HELLO itself with 6.0.
	info, infoErr := client.Do(ctx, client.B().Arbitrary("INFO", "server").Build()).ToString()
	switch {
	case infoErr == nil:
		in := map[string]string{}
		for line := range strings.Lines(info) {
			name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
			in[name] = value
		}
		return about{cmp.Or(in["server_name"], "redis"), in["redis_version"], in["redis_mode"]}, nil
	case !IsPermanent(infoErr):
		return about{}, infoErr
	case strings.HasPrefix(re.Error(), "wrong number of arguments"):
		return about{product: "redis"}, nil
	}
	return about{}, err
}
