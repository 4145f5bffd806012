package integration

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/integration/bed"
	"github.com/redlatch/redlatch/internal/testbed"
)

// One node of a cluster stands still, and the others must not notice: their locks
// are renewed, and unlocked, while renewals wait for an answer of that node.
func TestRLockFrozenClusterNodeDelaysNoOther(t *testing.T) {
	t.Parallel()
	// So long that the cluster itself does nothing about it.
	set := testbed.Cluster(t, "--cluster-node-timeout", "60000")
	t.Cleanup(func() { rlLibraryEnds(t) })
	const lease = 12 * time.Second
	c := rlClient(t, "", rlLease(lease), func(c *redlatch.Config) {
		c.Redis = rueidis.ClientOption{InitAddress: set.Addrs()}
	})
	frozen := set.Masters(t)[1]
	var well []redlatch.Hold
	lost := 0
	for i := range 300 {
		name := fmt.Sprintf("l%d", i)
		h := bed.Lock(t, t.Context(), c.RLock(name))
		if set.NodeOfKey(t, name) == frozen {
			lost++
		} else {
			well = append(well, h)
		}
	}
	if lost < 50 {
		t.Fatalf("only %d locks on the node", lost)
	}
	frozen.Freeze(t)
	defer frozen.Thaw(t)
	var slowest time.Duration
	every := lease / time.Duration(len(well))
	for _, h := range well { // over a lease, in which each is renewed several times
		began := time.Now()
		rlAlive(t, h)
		bed.Unlock(t, h)
		took := time.Since(began)
		slowest = max(slowest, took)
		time.Sleep(every - took)
	}
	t.Logf("the slowest of %d unlocks took %v", len(well), slowest)
	// Who stood behind a renewal of the frozen node would wait until its connection is given
	// up, after a third of a lease.
	if slowest > lease/4 {
		t.Errorf("an unlock on another node took %v", slowest)
	}
	frozen.Thaw(t)
	c.Close()
}
