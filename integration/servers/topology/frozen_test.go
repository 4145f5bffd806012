package topology

import (
	"context"
	"fmt"
	"sync"
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
	var wg sync.WaitGroup
	defer wg.Wait()
	defer leave()

	type busy struct {
		of      *redlatch.FairLock
		hold    redlatch.Hold
		waiting chan redlatch.Hold
	}
	wait := func(name string, skip time.Duration) busy {
		b := busy{c.FairLock(name, redlatch.WithSkipAfter(skip)), nil, make(chan redlatch.Hold, 1)}
		b.hold = mustLock(t, ctx, other.FairLock(name, redlatch.WithSkipAfter(skip)))
		wg.Go(func() {
			h, err := b.of.Lock(leaving)
			if err != nil && leaving.Err() == nil {
				t.Error(err)
			}
			b.waiting <- h
		})
		return b
	}
	queued := func(b busy) {
		eventually(t, 20*time.Second, "the waiter has a place", func() bool {
			s, err := b.of.State(ctx)
			return err == nil && s.QueueLength == 1
		})
	}
	var there, here []busy
	for i := 0; len(there) < 50 || len(here) < 2; i++ {
		name := fmt.Sprintf("fair-%d", i)
		switch onIt := set.NodeOfKey(t, name) == frozen; {
		case onIt && len(there) < 50: // their refreshes fall due at all times
			there = append(there, wait(name, time.Second+time.Duration(len(there)%5)*500*time.Millisecond))
			queued(there[len(there)-1])
		case !onIt && len(here) < 2:
			here = append(here, wait(name, time.Second))
			queued(here[len(here)-1])
		}
	}
	frozen.Freeze(t)
	defer frozen.Thaw(t)
	for _, b := range here {
		time.Sleep(2 * time.Second) // two skip times
		began := time.Now()
		bed.Unlock(t, b.hold)
		h := gets(t, b.waiting, silence/3)
		t.Logf("handed over after %v", time.Since(began))
		bed.Unlock(t, h)
	}
	frozen.Thaw(t)
	leave()
	for _, b := range there {
		if h := <-b.waiting; h != nil {
			t.Error("a second holder")
		}
		bed.Unlock(t, b.hold)
	}
}
