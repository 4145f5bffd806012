// Package topology tests the locks on deployments of several servers: Sentinel
// and Cluster, while they fail over and move data.
package topology

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/integration/bed"
	"github.com/redlatch/redlatch/internal/testbed"
)

func TestMain(m *testing.M) { bed.Main(m) }

// lease is short enough for a test to see losses and long enough for a loaded
// machine to renew in time.
const lease = 6 * time.Second

// slack is for a busy machine.
const slack = time.Second

// open makes a client that is closed with the test.
func open(t *testing.T, opt rueidis.ClientOption, more ...func(*redlatch.Config)) *redlatch.Client {
	t.Helper()
	ours := func(c *redlatch.Config) { c.Redis, c.LeaseTime = opt, lease }
	return bed.Client(t, "", append([]func(*redlatch.Config){ours}, more...)...)
}

// nodeTimeout sets how long a node of a cluster must be silent before the others take it for dead. One
// that only stands still for longer than testbed.ClusterNodeTimeout loses its slots.
func nodeTimeout(t *testing.T, set *testbed.ClusterSet, d time.Duration) {
	t.Helper()
	for _, n := range set.Nodes() {
		n.Do(t, "CONFIG", "SET", "cluster-node-timeout", strconv.FormatInt(d.Milliseconds(), 10))
	}
}

// clustered starts a cluster whose nodes may stand still for as long as a busy machine's do.
func clustered(t *testing.T) *testbed.ClusterSet {
	t.Helper()
	set := testbed.Cluster(t)
	nodeTimeout(t, set, 3*time.Second)
	return set
}

func cluster(c *testbed.ClusterSet) rueidis.ClientOption {
	return rueidis.ClientOption{InitAddress: c.Addrs()}
}

func single(addr string) rueidis.ClientOption {
	return rueidis.ClientOption{InitAddress: []string{addr}}
}

func sentinel(s *testbed.SentinelSet) rueidis.ClientOption {
	return rueidis.ClientOption{InitAddress: s.SentinelAddrs(), Sentinel: rueidis.SentinelOption{MasterSet: testbed.MasterName}}
}

// elsewhere is a master that has not got the slot.
func elsewhere(t *testing.T, set *testbed.ClusterSet, slot int) *testbed.Server {
	t.Helper()
	from, masters := set.NodeOfSlot(t, slot), set.Masters(t)
	if masters[0] == from {
		return masters[1]
	}
	return masters[0]
}

// take locks within a minute: two sentinels that vote for themselves at the same time try again 10 s later.
func take(t *testing.T, ctx context.Context, l redlatch.Locker) redlatch.Hold { //nolint:revive // t first, as in testing
	t.Helper()
	h, err := l.TryLock(ctx, time.Minute, 0)
	testbed.Must(t, err)
	return h
}

// waiting starts a waiter and returns once it has found the lock busy and its
// subscription stands.
func waiting(t *testing.T, l redlatch.Locker, subscribed func() bool) <-chan bed.Attempt {
	t.Helper()
	got := bed.Async(t.Context(), l)
	bed.Eventually(t, "the waiter has subscribed", subscribed)
	return got
}
