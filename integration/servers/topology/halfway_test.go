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
	set := clustered(t)
	rw := open(t, cluster(set)).ReadWriteLock("{x}a")
	w := take(t, t.Context(), rw.WriteLock())
	r := take(t, w.Context(), rw.ReadLock())
	slot := testbed.Slot("{x}a")
	mig := set.BeginMigration(t, slot, elsewhere(t, set, slot))
	began := time.Now()
	bed.Unlock(t, r)
	bed.Unlock(t, w)
	if took := time.Since(began); took > lease*2/3 { // an Unlock that waits gives up after five seconds
		t.Errorf("unlocked after %v", took)
	}
	got := bed.Async(t.Context(), rw.WriteLock())
	mig.MoveKeys(t)
	mig.Finish(t)
	bed.Unlock(t, bed.Hold(t, got))
}

// A free lock of a slot that is on its way, and stays there, is acquired all the same, held by one
// alone, waited for and unlocked, as long as its keys are on one side. A move that goes on, and
// back, changes nothing about that.
func TestFreeLockOfASlotThatIsHalfWay(t *testing.T) {
	t.Parallel()
	set := clustered(t)
	c, other := open(t, cluster(set)), open(t, cluster(set))
	for _, k := range exclusive() {
		t.Run(k.Name, func(t *testing.T) {
			name := "{" + k.Name + "}half"
			slot := testbed.Slot(name)
			// alone is the first holder, beside whom there is no second one.
			alone := func(where, name string) redlatch.Hold {
				t.Helper()
				h, err := on(k, c, name).TryLock(t.Context(), lease, 0)
				if err != nil {
					t.Fatalf("%s: %v", where, err)
				}
				if _, err := on(k, other, name).TryLock(t.Context(), 0, 0); err == nil {
					t.Fatalf("%s: two holders: %v", where, context.Cause(h.Context()))
				}
				return h
			}
			// goRound uses a lock, wherever its slot is.
			goRound := func(where, name string) {
				t.Helper()
				for range 3 {
					began := time.Now()
					h := alone(where, name)
					next := bed.Async(t.Context(), on(k, other, name))
					time.Sleep(100 * time.Millisecond) // it waits, or comes for a free lock
					bed.Unlock(t, h)
					free := time.Now()
					a := bed.Get(t, next)
					if a.Err != nil {
						t.Fatalf("%s: the waiter: %v", where, a.Err)
					}
					bed.Unlock(t, a.Hold)
					if a.At.Sub(free) > 2*time.Second+slack || time.Since(began) > lease {
						t.Errorf("%s: the waiter got the free lock after %v, it all took %v", where, a.At.Sub(free), time.Since(began))
					}
				}
			}
			goRound("before", name)
			mig := set.BeginMigration(t, slot, elsewhere(t, set, slot))
			goRound("half-way, a new name", "{"+k.Name+"}new")
			mig.MoveKeys(t)
			goRound("half-way", name)
			mig.MoveKeys(t)
			goRound("half-way, all keys moved", name)
			h := take(t, t.Context(), on(k, c, name)) // held while the move ends and goes back
			mig.Finish(t)
			mig = set.BeginMigration(t, slot, mig.From)
			mig.MoveKeys(t)
			if _, err := on(k, other, name).TryLock(t.Context(), 0, 0); err == nil {
				t.Fatalf("two holders (the first one's context: %v)", context.Cause(h.Context()))
			}
			bed.Unlock(t, h)
			mig.MoveKeys(t)
			goRound("half-way back", name)
			mig.Finish(t)
			goRound("back", name)
		})
	}
}

// The error says why nobody can decide who has a lock, one of whose keys is still where its slot
// comes from, where no other can be made. When its keys are on one side it is acquired, with a
// token that is higher than before.
func TestTornLockOfASlotThatIsHalfWay(t *testing.T) {
	t.Parallel()
	set := clustered(t)
	l := open(t, cluster(set)).RLock("torn", redlatch.Fenced())
	before := take(t, t.Context(), l)
	bed.Unlock(t, before)
	slot := testbed.Slot("torn")
	mig := set.BeginMigration(t, slot, elsewhere(t, set, slot))
	for _, wait := range []time.Duration{0, 300 * time.Millisecond} {
		_, err := l.TryLock(t.Context(), wait, 0)
		if !errors.Is(err, redlatch.ErrUnavailable) || !strings.Contains(err.Error(), "half-way") || !strings.Contains(err.Error(), "redisson_lock_token:{torn}") {
			t.Errorf("wait %v: %v", wait, err)
		}
	}
	got := bed.Async(t.Context(), l)
	mig.MoveKeys(t)
	h := bed.HoldWithin(t, 2*time.Second+slack, got)
	if h.Token() <= before.Token() {
		t.Errorf("token %d after %d", h.Token(), before.Token())
	}
	bed.Unlock(t, h)
	mig.Finish(t)
}

// A slot that is half-way is no outage of its node: whoever waited for a lock in another slot there hears that it is
// held, and whoever wants one that nobody can have, also behind another one of its process, that it is unavailable.
func TestASlotThatIsHalfWayIsNoOutageOfItsNode(t *testing.T) {
	t.Parallel()
	set := clustered(t)
	c := open(t, cluster(set))
	torn := c.RLock("torn", redlatch.Fenced())
	bed.Unlock(t, take(t, t.Context(), torn)) // its counter stays
	slot := testbed.Slot("torn")
	from := set.NodeOfSlot(t, slot)
	busy := ""
	for i := 0; busy == "" || set.NodeOfKey(t, busy) != from; i++ {
		busy = bed.Name("busy", i)
	}
	h := take(t, t.Context(), open(t, cluster(set)).RLock(busy))
	mig := set.BeginMigration(t, slot, elsewhere(t, set, slot))
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	first := bed.Async(ctx, torn)
	for range 10 {
		_, err := c.RLock(busy).TryLock(t.Context(), 250*time.Millisecond, 0)
		if !errors.Is(err, redlatch.ErrNotAcquired) || errors.Is(err, redlatch.ErrUnavailable) {
			t.Errorf("of the lock that is held: %v", err)
		}
		_, err = torn.TryLock(t.Context(), 50*time.Millisecond, 0)
		if !errors.Is(err, redlatch.ErrUnavailable) || !strings.Contains(err.Error(), "half-way") {
			t.Errorf("of the one that nobody can have: %v", err)
		}
	}
	leave()
	bed.Want(t, (<-first).Err, context.Canceled)
	bed.Unlock(t, h)
	mig.Finish(t)
}
