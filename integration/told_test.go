package integration

import (
	"errors"
	"testing"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/integration/bed"
)

// Whom a lock of another kind keeps out is told by whom and for how long, too.
func TestBusyByAReadWriteLockNamesTheHolder(t *testing.T) {
	s := bed.Server(t)
	a, b, ctx := rlClient(t, s.Addr()), rlClient(t, s.Addr()), t.Context()
	for mode, l := range map[string]redlatch.Locker{"read": a.ReadWriteLock("rw").ReadLock(), "write": a.ReadWriteLock("rw").WriteLock()} {
		h := bed.Lock(t, ctx, l)
		owner := inLook(t, a, "rw").Holders[0].Owner
		for kind, other := range map[string]redlatch.Locker{
			"plain": b.RLock("rw"), "fair": b.FairLock("rw"), "multi": redlatch.MultiLock(b.RLock("rw"), b.RLock("rw2")),
		} {
			_, err := other.TryLock(ctx, 0, 0)
			var busy *redlatch.NotAcquiredError
			if !errors.As(err, &busy) || busy.Holder != owner || busy.Remaining <= 0 {
				t.Errorf("a %s lock against a %s hold of %s: %v", kind, mode, owner, err)
			}
		}
		if err := h.Unlock(ctx); err != nil {
			t.Fatal(err)
		}
	}
}
