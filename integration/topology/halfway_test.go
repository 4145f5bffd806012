package topology

import (
	"context"
	"testing"
	"time"

	"github.com/redlatch/redlatch/internal/testbed"
)

// TestWriterWhoReadsUnlocksWhileSlotIsHalfWay: a writer that reads, too, unlocks both while a
// cluster takes no command of several keys for their slot. The first Unlock must not keep the
// second one waiting until the slot is whole.
func TestWriterWhoReadsUnlocksWhileSlotIsHalfWay(t *testing.T) {
	t.Parallel()
	set := testbed.Cluster(t)
	nodeTimeout(t, set, standsStill)
	c := open(t, cluster(set))
	rw := c.ReadWriteLock("{rw}1")
	w := mustLock(t, within(t, 30*time.Second), rw.WriteLock())
	r, err := rw.ReadLock().Lock(w.Context())
	if err != nil {
		t.Fatal(err)
	}
	slot := testbed.Slot("{rw}1")
	from, to := set.NodeOfSlot(t, slot), set.Masters(t)[0]
	if to == from {
		to = set.Masters(t)[1]
	}
	mig := set.BeginMigration(t, slot, to)
	began := time.Now()
	for _, h := range []interface {
		Unlock(ctx context.Context) error
	}{r, w} {
		if err := h.Unlock(t.Context()); err != nil {
			t.Errorf("Unlock: %v", err)
		}
		if took := time.Since(began); took > lease*2/3 { // an Unlock that waits gives up after five seconds
			t.Errorf("unlocked after %v", took)
		}
	}
	mig.MoveKeys(t)
	mig.Finish(t)
}
