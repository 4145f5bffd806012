package topology

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/integration/bed"
	"github.com/redlatch/redlatch/internal/testbed"
)

// Who waits for a fair lock keeps its place, and is handed the lock at once, while another node
// freezes, for whose locks many wait.
func TestClusterFrozenNodeKeepsOtherPlaces(t *testing.T) {
	// So long that the cluster itself does nothing about it.
	set := testbed.Cluster(t, "--cluster-node-timeout", "60000")
	const (
		long    = time.Minute      // nobody loses a hold meanwhile
		silence = 15 * time.Second // until the frozen node's connections end, with what they hold up
	)
	slow := func(cfg *redlatch.Config) { cfg.LeaseTime, cfg.Redis.ConnWriteTimeout = long, silence }
	c, other := open(t, cluster(set), slow), open(t, cluster(set), slow)
	frozen := set.Masters(t)[1]
	ctx := within(t, time.Minute)
	leaving, leave := context.WithCancel(ctx)
	defer leave()

	type busy struct {
		hold    redlatch.Hold
		waiting <-chan bed.Attempt
	}
	wait := func(name string, skip time.Duration) busy {
		of := c.FairLock(name, redlatch.WithSkipAfter(skip))
		b := busy{take(t, ctx, other.FairLock(name, redlatch.WithSkipAfter(skip))), bed.Async(leaving, of)}
		bed.Eventually(t, "the waiter has a place", func() bool {
			s, err := of.State(ctx)
			return err == nil && s.QueueLength == 1
		})
		return b
	}
	var there, here []busy
	for i := 0; len(there) < 50 || len(here) < 2; i++ {
		name := fmt.Sprintf("fair-%d", i)
		switch onIt := set.NodeOfKey(t, name) == frozen; {
		case onIt && len(there) < 50: // their refreshes fall due at all times
			there = append(there, wait(name, time.Second+time.Duration(len(there)%5)*500*time.Millisecond))
		case !onIt && len(here) < 2:
			here = append(here, wait(name, time.Second))
		}
	}
	frozen.Freeze(t)
	defer frozen.Thaw(t)
	for _, b := range here {
		time.Sleep(2 * time.Second) // two skip times
		bed.Unlock(t, b.hold)
		bed.Unlock(t, gets(t, b.waiting, silence/3))
	}
	frozen.Thaw(t)
	leave()
	for _, b := range there {
		if a := <-b.waiting; !errors.Is(a.Err, context.Canceled) {
			t.Errorf("who left: %v, %v", a.Hold, a.Err)
		}
		bed.Unlock(t, b.hold)
	}
}
