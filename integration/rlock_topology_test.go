package integration

import (
	"testing"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/integration/bed"
	"github.com/redlatch/redlatch/internal/testbed"
)

// On a cluster a waiter listens at the node of its lock alone, and messages stay there.
func TestRLockMessagesStayAtOneNode(t *testing.T) {
	t.Parallel()
	testbed.Needs(t, 7, 0, "messages that stay at one node")
	set := testbed.Cluster(t)
	t.Cleanup(func() { rlLibraryEnds(t) })
	for _, s := range set.Nodes() {
		rlLeakCheck(t, s)
	}
	c := rlClient(t, "", func(c *redlatch.Config) { c.Redis = rueidis.ClientOption{InitAddress: set.Addrs()} })
	home := set.NodeOfKey(t, "l")
	listening := func(s *testbed.Server) int { return len(s.LockChannels(t)) }
	h := bed.Lock(t, t.Context(), c.RLock("l"))
	got := bed.Async(t.Context(), c.RLock("l"))
	bed.Eventually(t, "the subscription", func() bool { return listening(home) == 1 })
	before := map[*testbed.Server]testbed.Stats{}
	for _, s := range set.Nodes() {
		before[s] = s.CommandStats(t)
		if s != home && listening(s) != 0 {
			t.Errorf("%s has subscriptions", s.Addr())
		}
		if n := len(s.List(t, "PUBSUB", "CHANNELS")); n != 0 {
			t.Errorf("%s has %d channels that the whole cluster hears", s.Addr(), n)
		}
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
}
