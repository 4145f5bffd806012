package integration

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/integration/bed"
	"github.com/redlatch/redlatch/internal/luascript"
	"github.com/redlatch/redlatch/internal/testbed"
)

// A plain lock works behind Sentinel and on a Cluster as on one server: the same code, other
// connections.
func TestRLockOnEveryTopology(t *testing.T) {
	t.Run("sentinel", func(t *testing.T) {
		t.Parallel()
		set := testbed.Sentinel(t)
		for _, s := range set.Nodes() {
			rlLeakCheck(t, s)
		}
		option := rueidis.ClientOption{
			InitAddress: set.SentinelAddrs(), Sentinel: rueidis.SentinelOption{MasterSet: testbed.MasterName},
		}
		rlEverything(t, option, func(string) *testbed.Server { return set.Master() })
	})
	t.Run("cluster", func(t *testing.T) {
		t.Parallel()
		set := testbed.Cluster(t)
		t.Cleanup(func() { rlLibraryEnds(t) })
		for _, s := range set.Nodes() {
			rlLeakCheck(t, s)
		}
		option := rueidis.ClientOption{InitAddress: set.Addrs()}
		owner := func(name string) *testbed.Server {
			return set.Masters(t)[int(luascript.Slot(name))*3/testbed.Slots]
		}
		rlEverything(t, option, owner)

		c := rlClient(t, "", func(c *redlatch.Config) { c.Redis = option })
		for _, name := range []string{"a}b", "a{b", "{}z"} {
			_, err := c.RLock(name).Lock(t.Context())
			rlWant(t, err, redlatch.ErrInvalidName)
		}
		if v := testbed.ServerVersion(t); !v.AtLeast(7, 0) {
			testbed.Untested(t, "on %s: needs 7.0 or newer: messages that stay at one node", v)
			return
		}
		// A waiter listens at the node of its lock alone, and messages stay there.
		listening := func(s *testbed.Server) int { return len(s.LockChannels(t)) }
		for _, s := range set.Nodes() {
			bed.Eventually(t, "the end of earlier subscriptions", func() bool { return listening(s) == 0 })
		}
		h := bed.Lock(t, t.Context(), c.RLock("l"))
		got := bed.Async(t.Context(), c.RLock("l"))
		bed.Eventually(t, "the subscription", func() bool { return listening(owner("l")) == 1 })
		before := map[*testbed.Server]testbed.Stats{}
		for _, s := range set.Nodes() {
			before[s] = s.CommandStats(t)
			if s != owner("l") && listening(s) != 0 {
				t.Errorf("%s has subscriptions", s.Addr())
			}
			if n := len(s.List(t, "PUBSUB", "CHANNELS")); n != 0 {
				t.Errorf("%s has %d channels that the whole cluster hears", s.Addr(), n)
			}
		}
		bed.Unlock(t, h)
		r := bed.Get(t, got)
		if r.Err != nil {
			t.Fatal(r.Err)
		}
		for s, b := range before {
			calls := s.CommandStats(t).Sub(b).Calls
			if calls["publish"] != 0 || s != owner("l") && calls["evalsha"]+calls["eval"] != 0 {
				t.Errorf("%s saw %v", s.Addr(), calls)
			}
		}
		bed.Unlock(t, r.Hold)
	})
}

// rlEverything uses all operations on names of many slots. owner finds the
// server of a name.
func rlEverything(t *testing.T, option rueidis.ClientOption, owner func(name string) *testbed.Server) {
	t.Helper()
	c := rlClient(t, "", func(c *redlatch.Config) { c.Redis, c.LeaseTime = option, 5*time.Second })
	other := rlClient(t, "", func(c *redlatch.Config) { c.Redis = option })
	holds := map[string]redlatch.Hold{}
	for i := range 30 {
		name := fmt.Sprintf("name%d", i)
		h := bed.Lock(t, t.Context(), c.RLock(name, redlatch.Fenced()))
		holds[name] = h
		nested := bed.Lock(t, h.Context(), c.RLock(name))
		if n := rlCount(t, owner(name), name); n != 2 || h.Token() == 0 {
			t.Errorf("%s: count %d, token %d", name, n, h.Token())
		}
		bed.Unlock(t, nested)
		_, err := other.RLock(name).TryLock(t.Context(), 0, 0)
		rlWant(t, err, redlatch.ErrNotAcquired)
		if st, err := other.RLock(name).State(t.Context()); err != nil || !st.Held {
			t.Errorf("State: %+v, %v", st, err)
		}
	}
	time.Sleep(7 * time.Second) // more than a lease and a renewal's interval: renewed in every slot, again and again
	for name, h := range holds {
		rlAlive(t, h)
		began := time.Now()
		got := bed.Async(t.Context(), other.RLock(name))
		time.Sleep(10 * time.Millisecond)
		bed.Unlock(t, h)
		r := bed.Get(t, got)
		if r.Err != nil {
			t.Fatal(r.Err)
		}
		if took := r.At.Sub(began); took > 3*time.Second { // the hold's lease would have woken it after two thirds of it, or later
			t.Errorf("%s was handed over after %v", name, took)
		}
		if was, err := c.RLock(name).ForceUnlock(t.Context()); !was || err != nil {
			t.Errorf("ForceUnlock: %v, %v", was, err)
		}
		rlWant(t, r.Hold.Unlock(t.Context()), redlatch.ErrLeaseLost)
	}
}
