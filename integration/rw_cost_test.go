package integration

import (
	"slices"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/testbed"
)

// What a read unlock costs does not grow with the number of readers: what the script calls is the
// same, for the reader that ends last and for the others.
func TestRWCostOfAReadUnlock(t *testing.T) {
	s := rwServer(t)
	const sample = 50
	var most int64
	for _, readers := range []int{1, 100, 1000} {
		c := rwClient(t, s, time.Hour)
		l := c.ReadWriteLock("n").ReadLock()
		holds := make([]redlatch.Hold, 0, readers+2*sample)
		for range readers + 2*sample {
			holds = append(holds, rwLock(t, l, t.Context()))
		}
		for name, part := range map[string][]redlatch.Hold{
			"first to end": holds[:sample],
			"last to end":  rwReversed(holds[len(holds)-sample:]),
		} {
			before := s.CommandStats(t)
			rwUnlock(t, part...)
			diff := s.CommandStats(t).Sub(before)
			var calls int64
			for cmd, n := range diff.Calls {
				if cmd != "evalsha" && cmd != "ping" { // each connection sends one a second
					calls += n
				}
			}
			t.Logf("%d readers stay, %s: %v of server time and %d calls per unlock: %v", readers, name,
				diff.Time["evalsha"]/sample, calls/sample, diff.Calls)
			if diff.Calls["evalsha"] != sample {
				t.Errorf("%d commands for %d unlocks", diff.Calls["evalsha"], sample)
			}
			if readers == 1 {
				most = max(most, calls)
			} else if calls > most+sample/10 {
				t.Errorf("%d readers: %d calls for %d unlocks, with one reader %d", readers, calls, sample, most)
			}
			for _, scan := range []string{"hgetall", "hkeys", "keys", "scan", "hscan"} {
				if diff.Calls[scan] > 0 {
					t.Errorf("%d times %s", diff.Calls[scan], scan)
				}
			}
		}
		rwUnlock(t, holds[sample:len(holds)-sample]...)
		rwEmpty(t, s)
	}
}

func rwReversed(holds []redlatch.Hold) []redlatch.Hold {
	out := slices.Clone(holds)
	slices.Reverse(out)
	return out
}

// A read-write lock works on a cluster: every name, sharded channels, downgrade and all.
func TestRWOnACluster(t *testing.T) {
	t.Parallel()
	cluster := testbed.Cluster(t)
	for _, s := range cluster.Nodes() {
		testbed.LeakCheck(t, s)
	}
	open := func() *redlatch.Client {
		c, err := rwPatient(func() (*redlatch.Client, error) {
			return redlatch.New(redlatch.Config{Redis: rueidis.ClientOption{InitAddress: cluster.Addrs()}})
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.Close)
		return c
	}
	c1, c2 := open(), open()
	for _, name := range []string{"a", "b", "c", "order:{42}", "{x}y", "with space"} {
		l1, l2 := c1.ReadWriteLock(name, rwTold()), c2.ReadWriteLock(name, rwTold())
		w := rwLock(t, l1.WriteLock(), t.Context())
		in := rwLock(t, l1.ReadLock(), w.Context())
		r := rwAsync(t, l2.ReadLock(), t.Context())
		rwEventually(t, "a sharded subscription", func() bool {
			return len(cluster.LockChannels(t, name)) > 0
		})
		start := time.Now()
		rwUnlock(t, w)
		h := rwGot(t, r, rwSoon)
		next := rwAsync(t, l1.WriteLock(), t.Context())
		rwUnlock(t, h, in)
		rwUnlock(t, rwGot(t, next, rwSoon))
		t.Logf("%s: %v", name, time.Since(start))
	}
}
