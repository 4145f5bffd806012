package topology

import (
	"context"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/luascript"
	"github.com/redlatch/redlatch/internal/testbed"
)

// listens reports whether the lock's channel has a subscriber on the server.
func listens(t *testing.T, s *testbed.Server, key string) func() bool {
	t.Helper()
	return func() bool { return len(s.List(t, "PUBSUB", "CHANNELS", luascript.CallChannel(key)+"*")) > 0 }
}

// replicated returns once every replica has the lock. WAIT would not tell: it counts
// who has the writes of its own connection, and the lock was written on another.
func replicated(t *testing.T, set *testbed.SentinelSet, key string) {
	t.Helper()
	set.AwaitSync(t)
	for _, r := range set.Replicas() {
		if r.Int(t, "EXISTS", key) != 1 {
			t.Fatalf("%s has all that the master wrote, but not the lock", r.Addr())
		}
	}
}

// A lock behind Sentinel is kept over a failover, and whoever waits gets it, also when the master
// dies.
func TestSentinel(t *testing.T) {
	t.Parallel() // it waits, for the most part
	set := testbed.Sentinel(t)
	c, other := open(t, sentinel(set)), open(t, sentinel(set))

	t.Run("a failover while held and waited for", func(t *testing.T) {
		const name = "graceful"
		h := mustLock(t, within(t, 60*time.Second), c.RLock(name, redlatch.Fenced()))
		got := waiting(t, other.RLock(name, redlatch.Fenced()), listens(t, set.Master(), name))
		replicated(t, set, name)
		next := set.Failover(t)
		eventually(t, 20*time.Second, "the waiter listens to the new master", listens(t, next, name))
		time.Sleep(lease + lease/2) // what the old master promised has ended
		// For so long that a waiter that hears nothing is late, far more than a stall of the machine. It has
		// seen that when it has looked again, at the end of the lease that it knew.
		if err := h.Extend(context.Background(), time.Minute); err != nil {
			t.Errorf("the lock did not survive the failover: %v", err)
		}
		time.Sleep(lease)
		if err := h.Unlock(context.Background()); err != nil {
			t.Errorf("the lock was lost after the failover: %v", err)
		}
		began := time.Now()
		after := gets(t, got, 2*lease)
		if took := time.Since(began); took > lease {
			t.Errorf("handed over %v after the unlock: the waiter did not hear of it", took)
		}
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
		next := gets(t, got, 20*time.Second)
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

// wrapping is a client like those that instrument one: its nodes are wrapped, too.
type wrapping struct{ rueidis.Client }

// Nodes implements rueidis.Client.
func (w wrapping) Nodes() map[string]rueidis.Client {
	nodes := w.Client.Nodes()
	for addr, node := range nodes {
		nodes[addr] = wrapping{node}
	}
	return nodes
}

// dialsByItself has a client built that wraps one which dials without us.
func dialsByItself(cfg *redlatch.Config) {
	cfg.ClientBuilder = func(opt rueidis.ClientOption) (rueidis.Client, error) {
		opt.DialFn, opt.DialCtxFn = nil, nil
		client, err := rueidis.NewClient(opt)
		if err != nil {
			return nil, err
		}
		return wrapping{client}, nil
	}
}

// What is held is renewed at once on a new master, not at its next turn, whoever dials: a lease
// there is what was left of it when that was promoted, which may have been long before the client
// hears of it.
func TestSentinelRenewsAtOnce(t *testing.T) {
	t.Parallel()                 // it waits, for the most part
	const long = 3 * time.Minute // the first renewal is not due before a sixth of it
	set := testbed.Sentinel(t)
	patient := func(cfg *redlatch.Config) { cfg.LeaseTime = long }
	clients := map[string]*redlatch.Client{
		"ours":  open(t, sentinel(set), patient),
		"built": open(t, sentinel(set), patient, dialsByItself),
	}
	asked, granted := map[string]time.Time{}, map[string]time.Time{}
	for name, c := range clients {
		asked[name] = time.Now()
		h := mustLock(t, within(t, 60*time.Second), c.RLock(name))
		granted[name] = time.Now() // or before
		defer mustUnlock(t, h)
	}
	for name := range clients {
		replicated(t, set, name)
	}
	next := set.Failover(t)
	for name, at := range asked {
		eventually(t, long/6-time.Since(at), "the lease is whole again on the new master: "+name, func() bool {
			most := long - time.Since(granted[name]) // of a lease that was not renewed
			return next.Int(t, "PTTL", name) > (most + 500*time.Millisecond).Milliseconds()
		})
		t.Logf("%s: %v after the acquisition", name, time.Since(at))
	}
}

// TestSentinelFrozen: a sentinel that answers nothing, though its connection
// stands, does not keep the client at a dead master while others know the new one.
func TestSentinelFrozen(t *testing.T) {
	t.Parallel() // it waits, for the most part
	set := testbed.Sentinel(t)
	c := open(t, sentinel(set))
	mustUnlock(t, mustLock(t, within(t, 20*time.Second), c.RLock("before")))
	asked := set.Sentinels()[0] // the one that the client has asked
	asked.Freeze(t)
	t.Cleanup(func() { asked.Thaw(t) })
	time.Sleep(lease) // the client has asked again
	set.KillMaster(t)
	began := time.Now()
	// Two sentinels that vote for themselves at the same time try again 10 s later.
	h := mustLock(t, within(t, time.Minute), c.RLock("after"))
	t.Logf("locked %v after the master had died", time.Since(began))
	mustUnlock(t, h)
}
