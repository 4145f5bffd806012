package integration

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/integration/bed"
)

// gone waits until a hold's context has ended because the lock was taken away.
func gone(t *testing.T, h redlatch.Hold) {
	t.Helper()
	select {
	case <-h.Context().Done():
	case <-time.After(bed.Patience):
		t.Fatal("the context of a hold goes on that was taken away by its own client")
	}
	var lost *redlatch.LeaseLostError
	if err := context.Cause(h.Context()); !errors.As(err, &lost) || lost.Reason != redlatch.LossGone {
		t.Errorf("it ended with %v", err)
	}
	if err := h.Unlock(t.Context()); !errors.Is(err, redlatch.ErrLeaseLost) {
		t.Errorf("Unlock: %v", err)
	}
}

// A client that takes a lock away from an owner of its own tells that owner at once: another one
// of the same process may be inside a moment later. With this LeaseTime the next check is minutes away.
func TestForceUnlockOfTheClientsOwnHolds(t *testing.T) {
	t.Parallel()
	type operator interface {
		ForceUnlock(ctx context.Context) (bool, error)
	}
	s := bed.Server(t)
	c := rlClient(t, s.Addr(), rlLease(time.Hour))
	rw := c.ReadWriteLock("rw")
	sharing := c.ReadWriteLock("shared", redlatch.ShareReads())
	for _, tc := range []struct {
		name, key  string
		of         operator
		hold, next redlatch.Locker
		holds      int // beside each other
	}{
		{"plain", "plain", c.RLock("plain"), c.RLock("plain"), c.RLock("plain"), 1},
		{"fair", "fair", c.FairLock("fair"), c.FairLock("fair"), c.FairLock("fair"), 1},
		{"write", "rw", rw.WriteLock(), rw.WriteLock(), rw.WriteLock(), 1},
		{"write, next a reader", "rw", rw, rw.WriteLock(), rw.ReadLock(), 1},
		{"readers", "rw", rw.ReadLock(), rw.ReadLock(), rw.WriteLock(), 20}, // more than an answer names
		{"readers that share", "shared", sharing, sharing.ReadLock(), sharing.WriteLock(), 3},
		{"multi", "plain", redlatch.MultiLock(c.RLock("plain"), c.FairLock("fair")), c.RLock("plain"), c.RLock("plain"), 1},
	} {
		for by, take := range map[string]func() (bool, error){
			"the lock":   func() (bool, error) { return tc.of.ForceUnlock(t.Context()) },
			"the client": func() (bool, error) { return c.ForceUnlock(t.Context(), tc.key) },
		} {
			t.Run(tc.name+" by "+by, func(t *testing.T) {
				elsewhere := bed.Lock(t, t.Context(), c.RLock("elsewhere"))
				var victims []redlatch.Hold
				for range tc.holds {
					victims = append(victims, bed.Lock(t, t.Context(), tc.hold))
				}
				waits := bed.Async(t.Context(), tc.next)
				if was, err := take(); !was || err != nil {
					t.Fatalf("ForceUnlock: %v, %v", was, err)
				}
				for _, h := range victims {
					gone(t, h)
				}
				r := bed.Get(t, waits)
				if r.Err != nil {
					t.Fatal(r.Err)
				}
				for _, h := range []redlatch.Hold{r.Hold, elsewhere} {
					if err := h.Context().Err(); err != nil {
						t.Errorf("%s: %v", h.Name(), context.Cause(h.Context()))
					}
					bed.Unlock(t, h)
				}
			})
		}
	}
}

// Whom a forced unlock spares, it spares: the write lock of an owner that also reads, and the
// other readers, go on.
func TestForceUnlockOfSomeOfTheClientsOwnHolds(t *testing.T) {
	t.Parallel()
	s := bed.Server(t)
	c := rlClient(t, s.Addr(), rlLease(time.Hour))
	rw := c.ReadWriteLock("rw")
	w := bed.Lock(t, t.Context(), rw.WriteLock())
	r := bed.Lock(t, w.Context(), rw.ReadLock())
	if was, err := rw.ReadLock().ForceUnlock(t.Context()); !was || err != nil {
		t.Fatalf("ForceUnlock: %v, %v", was, err)
	}
	gone(t, r)
	if err := w.Context().Err(); err != nil {
		t.Errorf("the write hold: %v", context.Cause(w.Context()))
	}
	bed.Unlock(t, w)

	one := bed.Lock(t, t.Context(), rw.ReadLock())
	owner := inLook(t, c, "rw").Holders[0].Owner
	other := bed.Lock(t, t.Context(), rw.ReadLock())
	if was, err := c.ForceUnlock(t.Context(), "rw", redlatch.IfOwner(owner)); !was || err != nil {
		t.Fatalf("ForceUnlock: %v, %v", was, err)
	}
	gone(t, one)
	if err := other.Context().Err(); err != nil {
		t.Errorf("the other reader: %v", context.Cause(other.Context()))
	}
	bed.Unlock(t, other)
}
