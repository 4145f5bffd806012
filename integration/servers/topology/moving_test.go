package topology

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/integration/bed"
	"github.com/redlatch/redlatch/internal/testbed"
)

// A MultiLock of one slot is kept while half of its keys have moved, and the cluster refuses commands of several
// keys: it can be freed all the same, and taken as soon as the slot is whole again.
func TestClusterGroupWhileItsSlotMoves(t *testing.T) {
	t.Parallel() // it waits, for the most part
	set := testbed.Cluster(t)
	nodeTimeout(t, set, standsStill)
	c := open(t, cluster(set))
	m := redlatch.MultiLock(c.RLock("{mv}a"), c.RLock("{mv}b"), c.RLock("{mv}c"))
	h := mustLock(t, within(t, 30*time.Second), m)
	slot := testbed.Slot("{mv}a")
	from := set.NodeOfSlot(t, slot)
	mig := set.BeginMigration(t, slot, elsewhere(t, set, slot))
	if !mig.MoveKey(t, "{mv}b") {
		t.Fatal("the key did not move")
	}
	time.Sleep(lease) // renewed on both nodes
	if h.Context().Err() != nil {
		t.Fatalf("the hold ended: %v", context.Cause(h.Context()))
	}
	began := time.Now()
	bed.Unlock(t, h)
	if took := time.Since(began); took > lease*2/3 { // an Unlock that waits gives up after five seconds
		t.Errorf("Unlock took %v while the slot moved", took)
	}
	for _, k := range []string{"{mv}a", "{mv}c"} {
		// The old node sends those who ask for a key that it has not to the new one.
		if n, err := from.Try("EXISTS", k); err == nil {
			t.Errorf("%s is held: %v", k, n)
		} else if !strings.HasPrefix(err.Error(), "ASK") {
			t.Errorf("%s: %v", k, err)
		}
	}
	got := make(chan error, 1)
	go func() {
		h, err := m.Lock(within(t, 30*time.Second))
		if err == nil {
			err = h.Unlock(t.Context())
		}
		got <- err
	}()
	time.Sleep(200 * time.Millisecond)
	mig.MoveKeys(t)
	mig.Finish(t)
	if err := <-got; err != nil {
		t.Errorf("after the move: %v", err)
	}
}
