package integration

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/integration/bed"
	"github.com/redlatch/redlatch/internal/testbed"
)

// cluster starts one that does nothing itself about a node that stands still, and a client of it, called n.
func cluster(t *testing.T, change ...func(*redlatch.Config)) (*testbed.ClusterSet, *redlatch.Client) {
	t.Helper()
	set := testbed.Cluster(t, "--cluster-node-timeout", "60000")
	all := func(c *redlatch.Config) { c.Name, c.Redis = "n", rueidis.ClientOption{InitAddress: set.Addrs()} }
	return set, rlClient(t, "", append([]func(*redlatch.Config){all}, change...)...)
}

// One node of a cluster stands still, and the others must not notice: while renewals wait for an answer of that node,
// and more acquisitions than have a place to send, which are given up, their locks are renewed, unlocked and acquired.
func TestFrozenClusterNodeDelaysNoOther(t *testing.T) {
	t.Parallel()
	const lease = 12 * time.Second
	set, c := cluster(t, redlatch.WithLeaseTime(lease))
	frozen := set.Masters(t)[1]
	var there, well []string
	for i := 0; len(there) < 700 || len(well) < 200; i++ {
		if name := fmt.Sprintf("l%d", i); set.NodeOfKey(t, name) == frozen {
			there = append(there, name)
		} else {
			well = append(well, name)
		}
	}
	for _, name := range there[:100] {
		bed.Lock(t, t.Context(), c.RLock(name))
	}
	holds := make([]redlatch.Hold, 200)
	for i := range holds {
		holds[i] = bed.Lock(t, t.Context(), c.RLock(well[i]))
	}
	frozen.Freeze(t)
	defer frozen.Thaw(t)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	var wg sync.WaitGroup
	for _, name := range there[100:] {
		wg.Go(func() {
			if _, err := c.RLock(name).Lock(ctx); !waited(err) {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
	wg.Wait()
	var slowest time.Duration
	every := lease / time.Duration(len(holds))
	for i, h := range holds { // over a lease, in which each is renewed several times
		began := time.Now()
		bed.Alive(t, h)
		bed.Unlock(t, h)
		again, err := c.RLock(well[i]).TryLock(t.Context(), lease/4, 0)
		testbed.Must(t, err)
		bed.Unlock(t, again)
		took := time.Since(began)
		slowest = max(slowest, took)
		time.Sleep(every - took)
	}
	t.Logf("the slowest of %d took %v", len(holds), slowest)
	// Who stood behind a command to the frozen node would wait until its connection is given
	// up, after a third of a lease.
	testbed.AtMost(t, slowest, lease/4, "to unlock, lock and unlock on another node took")
	frozen.Thaw(t)
	c.Close()
}

// On a cluster a waiter listens at the node of its lock alone, and messages stay there.
func TestRLockMessagesStayAtOneNode(t *testing.T) {
	t.Parallel()
	testbed.Needs(t, 7, 0, "messages that stay at one node")
	set, c := cluster(t)
	home := set.NodeOfKey(t, "l")
	h := bed.Lock(t, t.Context(), c.RLock("l"))
	got := bed.Async(t.Context(), c.RLock("l"))
	bed.Eventually(t, "the subscription", func() bool { return len(home.LockChannels(t)) == 1 })
	before := map[*testbed.Server]testbed.Stats{}
	for _, s := range set.Nodes() {
		before[s] = s.CommandStats(t)
		if n := len(s.LockChannels(t)); s != home && n != 0 {
			t.Errorf("%s has %d subscriptions", s.Addr(), n)
		}
		testbed.Equal(t, len(s.List(t, "PUBSUB", "CHANNELS")), 0, "channels that the whole cluster hears, on", s.Addr())
	}
	bed.Unlock(t, h)
	bed.Unlock(t, bed.Hold(t, got))
	for s, b := range before {
		calls := s.CommandStats(t).Sub(b).Calls
		if calls["publish"] != 0 || s != home && calls["evalsha"]+calls["eval"] != 0 {
			t.Errorf("%s saw %v", s.Addr(), calls)
		}
	}
	c.Close()
	for _, s := range set.Nodes() {
		testbed.LeakCheck(t, s, testbed.AllowKeys("redisson_lock_token:", "redlatch_void:"))
	}
}

// In a cluster the locks of every master are listed, looked at and taken away, and all evictions are in one history.
func TestOperatorsOfACluster(t *testing.T) {
	t.Parallel()
	_, c := cluster(t)
	ctx := t.Context()
	for i := range 30 {
		bed.Lock(t, ctx, c.RLock(fmt.Sprintf("k%d", i)))
	}
	n := 0
	for in, err := range c.Locks(ctx, "k*") {
		if n++; err != nil || in.HolderCount != 1 || in.Holders[0].Client != "n" {
			t.Fatalf("%+v, %v", in, err)
		}
	}
	testbed.Equal(t, n, 30, "locks")
	for i := range 30 {
		if was, err := c.ForceUnlock(ctx, fmt.Sprintf("k%d", i), redlatch.Recorded("ann", "")); !was || err != nil {
			t.Errorf("%v, %v", was, err)
		}
	}
	if got := evictions(t, c, "", 100); len(got) != 30 || got[0].Name != "k29" {
		t.Errorf("%+v", got)
	}
}
