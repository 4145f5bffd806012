package topology

import (
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
	granted := map[string]time.Time{} // or before
	for name, c := range clients {
		defer bed.Unlock(t, take(t, t.Context(), c.RLock(name)))
		granted[name] = time.Now()
	}
	set.AwaitSync(t)
	next := set.Failover(t)
	for name, at := range granted {
		bed.Eventually(t, "the lease is whole again on the new master: "+name, func() bool {
			most := long - time.Since(at) // of a lease that was not renewed
			return next.Int(t, "PTTL", name) > (most + 500*time.Millisecond).Milliseconds()
		})
	}
}

// TestSentinelFrozen: a sentinel that answers nothing, though its connection
// stands, does not keep the client at a dead master while others know the new one.
func TestSentinelFrozen(t *testing.T) {
	t.Parallel() // it waits, for the most part
	set := testbed.Sentinel(t)
	l := open(t, sentinel(set)).RLock("l")
	bed.Unlock(t, take(t, t.Context(), l))
	asked := set.Sentinels()[0] // the one that the client has asked
	asked.Freeze(t)
	t.Cleanup(func() { asked.Thaw(t) })
	time.Sleep(lease) // the client has asked again
	set.KillMaster(t)
	bed.Unlock(t, take(t, t.Context(), l))
}
