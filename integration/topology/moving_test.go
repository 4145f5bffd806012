package topology

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/testbed"
)

// A group outlives the move of its slot, and every kind the death of a master. Both on one cluster,
// since starting one takes long.
func TestClusterMovesAndFails(t *testing.T) {
	t.Parallel() // it waits, for the most part
	set := testbed.Cluster(t)
	nodeTimeout(t, set, standsStill)
	t.Run("a group while its slot moves", func(t *testing.T) { groupWhileItsSlotMoves(t, set) })
	nodeTimeout(t, set, testbed.ClusterNodeTimeout)
	t.Run("a master dies, all kinds", func(t *testing.T) { masterDiesForAllKinds(t, set) })
}

// groupWhileItsSlotMoves: a MultiLock of one slot is held while half of its
// keys have moved: the cluster refuses commands of several keys then. It can be
// freed all the same, and taken as soon as the slot is whole again.
func groupWhileItsSlotMoves(t *testing.T, set *testbed.ClusterSet) {
	t.Helper()
	c := open(t, cluster(set))
	m := redlatch.MultiLock(c.RLock("{mv}a"), c.RLock("{mv}b"), c.RLock("{mv}c"))
	h := mustLock(t, within(t, 30*time.Second), m)
	slot := testbed.Slot("{mv}a")
	from := set.NodeOfSlot(t, slot)
	to := set.Masters(t)[0]
	if to == from {
		to = set.Masters(t)[1]
	}
	mig := set.BeginMigration(t, slot, to)
	if !mig.MoveKey(t, "{mv}b") {
		t.Fatal("the key did not move")
	}
	time.Sleep(lease) // renewed on both nodes
	if h.Context().Err() != nil {
		t.Fatalf("the hold ended: %v", context.Cause(h.Context()))
	}
	began := time.Now()
	mustUnlock(t, h)
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

// masterDiesForAllKinds: as for the plain lock: holders hear of a loss,
// waiters go on with the replica that took over, tokens never regress.
func masterDiesForAllKinds(t *testing.T, set *testbed.ClusterSet) {
	t.Helper()
	c, other := open(t, cluster(set)), open(t, cluster(set))
	type pair struct {
		hold redlatch.Hold
		got  <-chan redlatch.Hold
	}
	pairs := map[string]pair{}
	for kind, newLock := range kinds {
		name := "{dies}" + kind
		pairs[kind] = pair{
			mustLock(t, within(t, 60*time.Second), newLock(c, name)),
			waiting(t, newLock(other, name), shardHasSubscribers(t, set)),
		}
	}
	master := set.NodeOfKey(t, "{dies}x")
	master.Kill(t)
	set.AwaitTakeover(t, testbed.Slot("{dies}x"), master)
	for kind, p := range pairs {
		if err := p.hold.Unlock(within(t, 20*time.Second)); err != nil && !lost(err) && !errors.Is(err, redlatch.ErrUnavailable) {
			t.Errorf("%s: Unlock: %v", kind, err)
		}
	}
	for kind, p := range pairs {
		began := time.Now()
		h := gets(t, p.got, 3*lease)
		t.Logf("%s: the waiter went on after %v", kind, time.Since(began))
		if h.Token() < p.hold.Token() || (h.Token() == p.hold.Token() && h.Token() != 0) {
			t.Errorf("%s: token %d after %d", kind, h.Token(), p.hold.Token())
		}
		mustUnlock(t, h)
	}
	master.Restart(t, testbed.Empty)
}
