package topology

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/luascript"
	"github.com/redlatch/redlatch/internal/testbed"
)

// subscribed reports whether the lock's channel has a subscriber in the
// shard that serves the key. Which node of it does not matter: a message goes to
// all of them, so a subscription outlives the demotion of its master.
func subscribed(t *testing.T, c *testbed.ClusterSet, key string) func() bool {
	t.Helper()
	return func() bool {
		return len(c.LockChannels(t, key, luascript.CallChannel(key)+"*")) > 0
	}
}

// A plain lock on a cluster takes any name, and is kept and waited for over slot moves and
// failovers.
func TestCluster(t *testing.T) {
	set := testbed.Cluster(t)
	nodeTimeout(t, set, standsStill)
	// A client may learn late of a takeover, where nodes have little time to tell each other.
	patient := func(cfg *redlatch.Config) { cfg.UnlockTimeout = 20 * time.Second }
	c, other := open(t, cluster(set), patient), open(t, cluster(set))

	t.Run("any name", func(t *testing.T) {
		ctx := within(t, 30*time.Second)
		for _, name := range []string{"a", "b", "orders:{42}:x", "{tag}x", "\x00\xff bin", "much longer than a tag"} {
			h, err := c.RLock(name, redlatch.Fenced()).Lock(ctx)
			if err != nil {
				t.Errorf("%q: %v", name, err)
				continue
			}
			if _, err := other.RLock(name).TryLock(ctx, 0, 0); !errors.Is(err, redlatch.ErrNotAcquired) {
				t.Errorf("%q: the second got %v", name, err)
			}
			mustUnlock(t, h)
		}
		for _, name := range []string{"a}b", "a{b", "{}z", "{}", "{tag}", "x{}y"} {
			if _, err := c.RLock(name).Lock(ctx); !errors.Is(err, redlatch.ErrInvalidName) {
				t.Errorf("%q: %v, want ErrInvalidName", name, err)
			}
		}
	})

	t.Run("the unlock message is sharded and wakes at once", func(t *testing.T) {
		for _, name := range []string{"w1", "w2", "w3", "w4", "w5"} {
			// For so long that a waiter that hears nothing is late, far more than a stall of the machine.
			h, err := c.RLock(name).Lock(within(t, 30*time.Second), redlatch.WithLease(time.Minute))
			if err != nil {
				t.Fatal(err)
			}
			got := waiting(t, other.RLock(name), subscribed(t, set, name))
			began := time.Now()
			mustUnlock(t, h)
			mustUnlock(t, gets(t, got, lease))
			if d := time.Since(began); d > lease {
				t.Errorf("%s: handed over after %v", name, d)
			}
		}
	})

	t.Run("a slot moves while its lock is held and waited for", func(t *testing.T) {
		const name = "moving"
		slot := testbed.Slot(name)
		h := mustLock(t, within(t, 60*time.Second), c.RLock(name, redlatch.Fenced()))
		got := waiting(t, other.RLock(name, redlatch.Fenced()), subscribed(t, set, name))
		from := set.NodeOfSlot(t, slot)
		to := set.Masters(t)[0]
		if to == from {
			to = set.Masters(t)[1]
		}
		m := set.BeginMigration(t, slot, to)
		m.MoveKeys(t)
		// Half way: the old node answers ASK. Re-entry and looking work.
		in := mustLock(t, h.Context(), c.RLock(name, redlatch.Fenced()))
		mustUnlock(t, in)
		m.Finish(t)
		eventually(t, 20*time.Second, "the waiter listens on the new node", subscribed(t, set, name))
		if err := h.Context().Err(); err != nil {
			t.Fatalf("the hold ended: %v: %v", err, context.Cause(h.Context()))
		}
		mustUnlock(t, h)
		next := gets(t, got, lease/2)
		if next.Token() <= h.Token() {
			t.Errorf("token %d after %d", next.Token(), h.Token())
		}
		mustUnlock(t, next)
	})

	t.Run("a master hands over to its replica", func(t *testing.T) {
		const name = "handover"
		h := mustLock(t, within(t, 60*time.Second), c.RLock(name, redlatch.Fenced()))
		got := waiting(t, other.RLock(name, redlatch.Fenced()), subscribed(t, set, name))
		set.Failover(t, set.NodeOfKey(t, name))
		eventually(t, 20*time.Second, "the waiter listens in the shard", subscribed(t, set, name))
		time.Sleep(lease) // over a whole lease: the watchdog renews on the new master
		if err := h.Context().Err(); err != nil {
			t.Fatalf("the hold ended: %v: %v", err, context.Cause(h.Context()))
		}
		mustUnlock(t, h)
		next := gets(t, got, lease/2)
		if next.Token() <= h.Token() {
			t.Errorf("token %d after %d", next.Token(), h.Token())
		}
		mustUnlock(t, next)
	})

	t.Run("a master dies", func(t *testing.T) {
		const name = "dies"
		h := mustLock(t, within(t, 60*time.Second), c.RLock(name, redlatch.Fenced()))
		got := waiting(t, other.RLock(name, redlatch.Fenced()), subscribed(t, set, name))
		nodeTimeout(t, set, testbed.ClusterNodeTimeout)
		master := set.NodeOfKey(t, name)
		master.Kill(t)
		set.AwaitTakeover(t, testbed.Slot(name), master)
		// Kept or lost depends on what the replica had and on how long the takeover
		// took; the holder learns of a loss, and whoever comes next comes later.
		if err := h.Unlock(within(t, 20*time.Second)); err != nil && !lost(err) {
			t.Fatalf("Unlock: %v", err)
		}
		next := gets(t, got, 2*lease)
		if next.Token() <= h.Token() {
			t.Errorf("token %d after %d", next.Token(), h.Token())
		}
		mustUnlock(t, next)
		master.Restart(t, testbed.Empty)
	})
}
