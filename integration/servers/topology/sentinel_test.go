package topology

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/integration/bed"
	"github.com/redlatch/redlatch/internal/testbed"
)

// listens reports whether one of the lock's channels has a subscriber on the server.
func listens(t *testing.T, s *testbed.Server, name string) func() bool {
	t.Helper()
	return func() bool { return len(s.List(t, "PUBSUB", "CHANNELS", "*"+name+"*")) > 0 }
}

// replicated returns once every replica has the locks. WAIT would not tell: it counts
// who has the writes of its own connection, and a lock was written on another.
func replicated(t *testing.T, set *testbed.SentinelSet, names []string) {
	t.Helper()
	set.AwaitSync(t)
	for _, r := range set.Replicas() {
		for _, name := range names {
			if len(r.List(t, "KEYS", name+"*")) == 0 {
				t.Fatalf("%s has all that the master wrote, but not the lock %s", r.Addr(), name)
			}
		}
	}
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
		defer bed.Unlock(t, h)
	}
	replicated(t, set, slices.Collect(maps.Keys(clients)))
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
	bed.Unlock(t, mustLock(t, within(t, 20*time.Second), c.RLock("before")))
	asked := set.Sentinels()[0] // the one that the client has asked
	asked.Freeze(t)
	t.Cleanup(func() { asked.Thaw(t) })
	time.Sleep(lease) // the client has asked again
	set.KillMaster(t)
	began := time.Now()
	// Two sentinels that vote for themselves at the same time try again 10 s later.
	h := mustLock(t, within(t, time.Minute), c.RLock("after"))
	t.Logf("locked %v after the master had died", time.Since(began))
	bed.Unlock(t, h)
}
