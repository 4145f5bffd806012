package integration

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/integration/bed"
	"github.com/redlatch/redlatch/internal/testbed"
)

// On a server that answers nobody, every wait that ends tells of it, also that of
// who stood behind others of the process, or got no place to send.
func TestFrozenServerIsUnavailableForAll(t *testing.T) {
	t.Parallel()
	s := bed.Server(t)
	rlLoad(t, s)
	c := rlClient(t, s.Addr(), rlLease(3*time.Second)) // silence counts after a second
	bed.Unlock(t, bed.Lock(t, t.Context(), c.RLock("warm")))
	held := bed.Lock(t, t.Context(), c.RLock("held"), redlatch.WithLease(time.Minute))
	s.Freeze(t)
	const wait = 2500 * time.Millisecond
	var wg sync.WaitGroup
	errs := make([]error, 900)
	for i := range errs {
		var l redlatch.Locker
		name := fmt.Sprintf("l%d", i)
		switch i % 9 {
		case 0:
			l = c.RLock("line") // one line of waiters
		case 1:
			l = c.FairLock("fair line")
		case 2:
			l = c.ReadWriteLock("rw line").WriteLock()
		case 3:
			l = redlatch.MultiLock(c.RLock(name), c.RLock("{"+name+"}2"))
		default: // more than have a place to send
			l = c.RLock(name)
		}
		wg.Go(func() {
			if i%2 == 0 {
				_, errs[i] = l.TryLock(t.Context(), wait, 0)
				return
			}
			ctx, cancel := context.WithTimeout(t.Context(), wait)
			defer cancel()
			_, errs[i] = l.Lock(ctx)
		})
	}
	wg.Wait()
	alone := 0
	for i, err := range errs {
		if !waited(err) {
			t.Fatalf("%d: %v, want the end of a wait", i, err)
		}
		if i%2 == 1 && !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("%d: %v, want ctx's error too", i, err)
		}
		if !errors.Is(err, redlatch.ErrUnavailable) {
			alone++
			t.Logf("%d: %v", i, err)
		}
	}
	if alone > 0 {
		t.Errorf("%d of %d were told that a lock is busy, nothing else", alone, len(errs))
	}
	s.Thaw(t)
	bed.Unlock(t, held)
	bed.Eventually(t, "all undone", func() bool {
		for _, key := range s.List(t, "KEYS", "*") {
			if s.Text(t, "TYPE", key) == "hash" {
				return false
			}
		}
		return true
	})
	bed.Unlock(t, bed.Lock(t, t.Context(), c.RLock("line")))
}

// What was given up on one node of a cluster takes no place of another one's.
func TestFrozenClusterNodeStopsNoOthersAcquisitions(t *testing.T) {
	t.Parallel()
	set := testbed.Cluster(t, "--cluster-node-timeout", "60000")
	t.Cleanup(func() { rlLibraryEnds(t) })
	c := rlClient(t, "", func(c *redlatch.Config) {
		c.Redis = rueidis.ClientOption{InitAddress: set.Addrs()}
	})
	frozen := set.Masters(t)[1]
	var there, well []string
	for i := 0; len(there) < 600 || len(well) < 30; i++ {
		if name := fmt.Sprintf("n%d", i); set.NodeOfKey(t, name) == frozen {
			there = append(there, name)
		} else {
			well = append(well, name)
		}
	}
	for _, name := range []string{there[0], well[0], well[1], well[2]} { // the scripts are loaded, the connections made
		bed.Unlock(t, bed.Lock(t, t.Context(), c.RLock(name)))
	}
	frozen.Freeze(t)
	defer frozen.Thaw(t)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	var wg sync.WaitGroup
	for _, name := range there {
		wg.Go(func() {
			h, err := c.RLock(name).Lock(ctx)
			if !waited(err) {
				t.Errorf("%s: %v", name, err)
			}
			if err == nil {
				bed.Unlock(t, h)
			}
		})
	}
	wg.Wait()
	for _, name := range well[:30] {
		began := time.Now()
		h, err := c.RLock(name).TryLock(t.Context(), 3*time.Second, 0) // less than until the frozen one's connection is given up
		if err != nil {
			t.Errorf("on another node: %v", err)
			continue
		}
		bed.Unlock(t, h)
		if took := time.Since(began); took > 3*time.Second {
			t.Errorf("a lock and unlock on another node took %v", took)
		}
	}
	frozen.Thaw(t)
	c.Close()
}
