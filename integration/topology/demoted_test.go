package topology

import (
	"context"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/testbed"
)

// TestSentinelFrozenMaster: the master freezes while locks of every kind are held,
// waited for and renewed; the sentinels replace it, and it comes back as a replica.
// Holders hear of the loss, waiters go on with the new master, messages arrive
// there, and nothing of ours runs on the demoted one any more.
func TestSentinelFrozenMaster(t *testing.T) {
	set := testbed.Sentinel(t)
	c, other := open(t, sentinel(set)), open(t, sentinel(set))
	old := set.Master()
	type pair struct {
		hold redlatch.Hold
		got  <-chan redlatch.Hold
	}
	pairs := map[string]pair{}
	for kind, newLock := range kinds {
		name := "{frozen}" + kind
		h := mustLock(t, within(t, 60*time.Second), newLock(c, name))
		pairs[kind] = pair{h, waiting(t, newLock(other, name), func() bool {
			return len(old.List(t, "PUBSUB", "CHANNELS")) > 0
		})}
	}
	if got := old.Int(t, "WAIT", "2", "5000"); got != 2 {
		t.Fatalf("%d replicas have the locks", got)
	}
	old.Freeze(t)
	frozen := time.Now()
	set.AwaitNewMaster(t, old)
	replaced := time.Since(frozen)
	next := set.Master()
	for kind, p := range pairs {
		// Kept on the new master, or lost in time: never held by two.
		select {
		case <-p.hold.Context().Done():
			if cause := context.Cause(p.hold.Context()); !lost(cause) {
				t.Errorf("%s: the hold ended with %v", kind, cause)
			}
			t.Logf("%s: lost, the new master stood after %v", kind, replaced)
		default:
			if time.Since(frozen) > lease && time.Now().After(p.hold.ValidUntil()) {
				t.Errorf("%s: alive after its deadline", kind)
			}
		}
		if err := p.hold.Unlock(within(t, 20*time.Second)); err != nil && !lost(err) {
			t.Logf("%s: Unlock: %v", kind, err)
		}
	}
	for kind, p := range pairs {
		began := time.Now()
		h := gets(t, p.got, 3*lease)
		t.Logf("%s: the waiter went on after %v", kind, time.Since(began))
		mustUnlock(t, h)
	}
	old.Thaw(t)
	eventually(t, 30*time.Second, "the old master follows", func() bool {
		return old.Info(t, "replication")["role"] == "slave" && old.Info(t, "replication")["master_link_status"] == "up"
	})
	before := old.CommandStats(t)
	for kind, newLock := range kinds {
		name := "{frozen}" + kind
		h := mustLock(t, within(t, 30*time.Second), newLock(c, name))
		got := waiting(t, newLock(other, name), func() bool { return len(next.List(t, "PUBSUB", "CHANNELS")) > 0 })
		time.Sleep(lease / 2) // renewed on the new master
		began := time.Now()
		mustUnlock(t, h)
		mustUnlock(t, gets(t, got, lease/2))
		t.Logf("%s: handed over on the new master after %v", kind, time.Since(began))
	}
	after := old.CommandStats(t).Sub(before)
	if n := after.Calls["evalsha"] + after.Calls["eval"]; n != 0 {
		t.Errorf("%d scripts were sent to the demoted master", n)
	}
}
