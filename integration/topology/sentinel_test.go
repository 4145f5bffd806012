package topology

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/luascript"
	"github.com/redlatch/redlatch/internal/testbed"
)

// listens reports whether the lock's channel has a subscriber on any node: a
// subscription may stay on a demoted master, which repeats what is published.
func listens(t *testing.T, set *testbed.SentinelSet, key string) func() bool {
	t.Helper()
	return func() bool {
		channel := luascript.LockChannel(key)
		for _, s := range set.Nodes() {
			if slices.Contains(s.List(t, "PUBSUB", "CHANNELS", channel), channel) {
				return true
			}
		}
		return false
	}
}

func TestSentinel(t *testing.T) {
	set := testbed.Sentinel(t)
	c, other := open(t, sentinel(set)), open(t, sentinel(set))

	t.Run("a failover while held and waited for", func(t *testing.T) {
		const name = "graceful"
		old := set.Master()
		h := mustLock(t, within(t, 60*time.Second), c.RLock(name, redlatch.Fenced()))
		if got := old.Int(t, "WAIT", "2", "5000"); got != 2 {
			t.Fatalf("%d replicas have the lock", got)
		}
		got := waiting(t, other.RLock(name, redlatch.Fenced()), listens(t, set, name))
		next := set.Failover(t)
		time.Sleep(lease) // over a whole lease: it is renewed on the new master, or lost
		began := time.Now()
		switch err := h.Unlock(context.Background()); {
		case err == nil:
		case lost(err) && lost(context.Cause(h.Context())):
			// A forced failover: until Sentinel demotes the old master, clients may
			// go on renewing there, and the lease ends on the new one. The holder
			// was told.
			t.Log("the lock did not survive the failover")
		default:
			t.Fatalf("Unlock: %v, the hold's context: %v", err, context.Cause(h.Context()))
		}
		after := gets(t, got, lease)
		t.Logf("handed over %v after the unlock", time.Since(began))
		if after.Token() <= h.Token() {
			t.Errorf("token %d after %d", after.Token(), h.Token())
		}
		if n := next.Int(t, "HLEN", name); n != 1 {
			t.Errorf("the waiter's lock is not on the new master")
		}
		mustUnlock(t, after)
	})

	t.Run("the master dies while held and waited for", func(t *testing.T) {
		const name = "dies"
		h := mustLock(t, within(t, 60*time.Second), c.RLock(name, redlatch.Fenced()))
		got := waiting(t, other.RLock(name, redlatch.Fenced()), listens(t, set, name))
		killed := set.KillMaster(t)
		set.AwaitNewMaster(t, killed)
		began := time.Now()
		if err := h.Unlock(within(t, 20*time.Second)); err != nil && !lost(err) {
			t.Logf("Unlock: %v", err)
		}
		next := gets(t, got, 10*time.Second)
		t.Logf("the waiter went on %v after the new master stood", time.Since(began))
		if next.Token() <= h.Token() {
			t.Errorf("token %d after %d", next.Token(), h.Token())
		}
		mustUnlock(t, next)
		// And a new acquisition, which must not go to the dead or a demoted one.
		ctx := within(t, 20*time.Second)
		mustUnlock(t, mustLock(t, ctx, c.RLock("fresh")))
	})
}
