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

func listens(t *testing.T, s *testbed.Server, key string) func() bool {
	t.Helper()
	return func() bool {
		channel := luascript.LockChannel(key)
		return slices.Contains(s.List(t, "PUBSUB", "CHANNELS", channel), channel)
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
		got := waiting(t, other.RLock(name, redlatch.Fenced()), listens(t, old, name))
		next := set.Failover(t)
		time.Sleep(lease) // over a whole lease: somebody renews on the new master
		if err := h.Context().Err(); err != nil {
			t.Fatalf("the hold ended: %v: %v", err, context.Cause(h.Context()))
		}
		if n := next.Int(t, "HLEN", name); n != 1 {
			t.Errorf("the new master has %d holders", n)
		}
		began := time.Now()
		mustUnlock(t, h)
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
		got := waiting(t, other.RLock(name, redlatch.Fenced()), listens(t, set.Master(), name))
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
