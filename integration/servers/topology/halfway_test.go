package topology

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/integration/bed"
	"github.com/redlatch/redlatch/internal/testbed"
)

// A writer that reads, too, unlocks both while a cluster takes no command of several keys for their
// slot: the first Unlock does not keep the second one waiting until the slot is whole.
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

// A free lock of a slot that is on its way, and stays there, is acquired all the same, held by one
// alone, waited for and unlocked, as long as its keys are on one side. A move that goes on, and
// back, changes nothing about that.
func TestFreeLockOfASlotThatIsHalfWay(t *testing.T) {
	t.Parallel()
	set := testbed.Cluster(t)
	nodeTimeout(t, set, standsStill)
	c, other := open(t, cluster(set)), open(t, cluster(set))
	exclusive(func(k bed.Kind, newLock func(*redlatch.Client, string) redlatch.Locker) {
		t.Run(k.Name, func(t *testing.T) {
			name := "{" + k.Name + "}half"
			slot := testbed.Slot(name)
			to := elsewhere(t, set, slot)
			// goRound uses a lock, wherever its slot is.
			goRound := func(where string, name string) {
				t.Helper()
				for range 3 {
					began := time.Now()
					h, err := newLock(c, name).TryLock(t.Context(), 0, 0)
					if err != nil {
						t.Fatalf("%s: %v", where, err)
					}
					if h2, err := newLock(other, name).TryLock(t.Context(), 0, 0); err == nil {
						t.Fatalf("%s: two holders: %v", where, h2.Name())
					}
					next := make(chan error, 1)
					go func() {
						h, err := newLock(other, name).Lock(t.Context())
						if err == nil {
							err = h.Unlock(t.Context())
						}
						next <- err
					}()
					time.Sleep(100 * time.Millisecond) // it waits, or comes for a free lock
					if err := h.Unlock(t.Context()); err != nil {
						t.Fatalf("%s: Unlock: %v", where, err)
					}
					free := time.Now()
					if err := <-next; err != nil {
						t.Fatalf("%s: the waiter: %v", where, err)
					}
					if took := time.Since(free); took > 2*time.Second+slack {
						t.Errorf("%s: the waiter got the free lock after %v", where, took)
					}
					if took := time.Since(began); took > lease {
						t.Errorf("%s: %v", where, took)
					}
				}
			}
			goRound("before", name)
			mig := set.BeginMigration(t, slot, to)
			goRound("half-way, a new name", "{"+k.Name+"}new")
			mig.MoveKeys(t)
			goRound("half-way", name)
			mig.MoveKeys(t)
			goRound("half-way, all keys moved", name)
			h := mustLock(t, within(t, 30*time.Second), newLock(c, name)) // held while the move ends and goes back
			mig.Finish(t)
			mig = set.BeginMigration(t, slot, mig.From)
			mig.MoveKeys(t)
			if h2, err := newLock(other, name).TryLock(t.Context(), 0, 0); err == nil {
				t.Fatalf("two holders: %v (the first one's context: %v)", h2.Name(), context.Cause(h.Context()))
			}
			if err := h.Unlock(t.Context()); err != nil {
				t.Errorf("Unlock on the way back: %v", err)
			}
			mig.MoveKeys(t)
			goRound("half-way back", name)
			mig.Finish(t)
			goRound("back", name)
		})
	})
}

// slack is for a busy machine.
const slack = time.Second

// elsewhere is a master that has not got the slot.
func elsewhere(t *testing.T, set *testbed.ClusterSet, slot int) *testbed.Server {
	t.Helper()
	from, to := set.NodeOfSlot(t, slot), set.Masters(t)[0]
	if to == from {
		to = set.Masters(t)[1]
	}
	return to
}

// The error says why nobody can decide who has a lock, one of whose keys is still where its slot
// comes from, where no other can be made. When its keys are on one side it is acquired, with a
// token that is higher than before.
func TestTornLockOfASlotThatIsHalfWay(t *testing.T) {
	t.Parallel()
	set := testbed.Cluster(t)
	nodeTimeout(t, set, standsStill)
	c := open(t, cluster(set))
	l := c.RLock("torn", redlatch.Fenced())
	h := mustLock(t, within(t, 30*time.Second), l)
	token := h.Token()
	if err := h.Unlock(t.Context()); err != nil {
		t.Fatal(err)
	}
	slot := testbed.Slot("torn")
	mig := set.BeginMigration(t, slot, elsewhere(t, set, slot))
	for _, wait := range []time.Duration{0, 300 * time.Millisecond} {
		_, err := l.TryLock(t.Context(), wait, 0)
		if !errors.Is(err, redlatch.ErrUnavailable) || !strings.Contains(err.Error(), "half-way") || !strings.Contains(err.Error(), "redisson_lock_token:{torn}") {
			t.Errorf("wait %v: %v", wait, err)
		}
	}
	got := make(chan redlatch.Hold, 1)
	go func() {
		h, err := l.Lock(t.Context())
		if err != nil {
			t.Error(err)
		}
		got <- h
	}()
	mig.MoveKeys(t)
	moved := time.Now()
	if h = <-got; h == nil {
		return
	}
	if took := time.Since(moved); took > 2*time.Second+slack {
		t.Errorf("acquired %v after its keys were on one side", took)
	}
	if h.Token() <= token {
		t.Errorf("token %d after %d", h.Token(), token)
	}
	if err := h.Unlock(t.Context()); err != nil {
		t.Error(err)
	}
	mig.Finish(t)
}
