package integration

import (
	"errors"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
)

// Two Unlocks gave up waiting on a frozen server; the next one is told what came of
// them: the lock was released.
func TestUnlockTellsAThirdTimeWhatCameOfIt(t *testing.T) {
	t.Parallel()
	s := rlServer(t)
	// The third Unlock must not give up, too; the connection outlasts the other two.
	c := rlClient(t, s.Addr(), rlUnlockTimeout(3*time.Second), func(c *redlatch.Config) {
		c.Redis.ConnWriteTimeout = 10 * time.Second
	})
	h := rlLock(t, t.Context(), c.RLock("l"))
	s.Freeze(t)
	for range 2 {
		rlWant(t, h.Unlock(t.Context()), redlatch.ErrUnavailable)
	}
	s.Thaw(t)
	rlUntil(t, "the release", func() bool { return s.Int(t, "EXISTS", "l") == 0 })
	if err := h.Unlock(t.Context()); err != nil {
		t.Errorf("the lock was released by this hold, and its Unlock says: %v", err)
	}
}

// Whom a lock of another kind keeps out is told by whom and for how long, too.
func TestBusyByAReadWriteLockNamesTheHolder(t *testing.T) {
	s := rlServer(t)
	a, b, ctx := rlClient(t, s.Addr()), rlClient(t, s.Addr()), t.Context()
	for mode, l := range map[string]redlatch.Locker{"read": a.ReadWriteLock("rw").ReadLock(), "write": a.ReadWriteLock("rw").WriteLock()} {
		h := rlLock(t, ctx, l)
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
