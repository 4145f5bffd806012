package multi

import (
	"context"
	"strings"
	"testing"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/integration/bed"
	"github.com/redlatch/redlatch/internal/testbed"
)

// ownerOn is the owner of a lock's one hold: its field without the acquisition.
func ownerOn(t *testing.T, s *testbed.Server, name string) string {
	t.Helper()
	for field := range s.Hash(t, "HGETALL", name) {
		_, owner, _ := strings.Cut(field, ":")
		owner, _, _ = strings.Cut(owner, "-")
		return owner
	}
	return ""
}

// TestOwnerLivesWhileAMultiLockWaits: the last hold of the owner that a waiting
// MultiLock inherited is unlocked: all members are that owner's still, and the hold's
// context leads to it.
func TestOwnerLivesWhileAMultiLockWaits(t *testing.T) {
	list := servers(t, 2)
	cs, others := clients(t, addrs(list)), clients(t, addrs(list))
	for name, tc := range map[string]struct {
		m             redlatch.Member
		first, second string // of their own: the other's subscription may linger
	}{
		"units":  {across(cs, []string{"a", "b"}), "a", "b"},
		"quorum": {redlatch.QuorumLock(cs[0].RLock("q"), cs[1].RLock("q")), "q", "q"},
	} {
		t.Run(name, func(t *testing.T) {
			before := bed.Lock(t, t.Context(), cs[0].RLock("before"))
			owner := ownerOn(t, list[0], "before")
			busy := bed.Lock(t, t.Context(), others[0].RLock(tc.first))
			got := bed.Async(context.WithoutCancel(before.Context()), tc.m)
			listens(t, list[0], tc.first)
			bed.Unlock(t, before)
			bed.Unlock(t, busy)
			h := bed.Hold(t, got)
			if a, b := ownerOn(t, list[0], tc.first), ownerOn(t, list[1], tc.second); a != owner || b != owner {
				t.Errorf("the members are %s's and %s's, asked for by %s", a, b, owner)
			}
			if h.Context().Err() != nil {
				t.Errorf("the hold's context has ended: %v", context.Cause(h.Context()))
			}
			for i, n := range []string{tc.first, tc.second} {
				bed.Unlock(t, bed.Lock(t, h.Context(), cs[i].RLock(n)))
			}
			bed.Unlock(t, h)
		})
	}
}

// TestFenceOfALockNamedTwice: what is fenced once is fenced, of whatever kind.
func TestFenceOfALockNamedTwice(t *testing.T) {
	c := bed.Client(t, bed.Server(t).Addr())
	rw, fencedRW := c.ReadWriteLock("rw"), c.ReadWriteLock("rw", redlatch.Fenced())
	bed.Unlock(t, bed.Lock(t, t.Context(), fencedRW.WriteLock())) // a reader's token is that of the last writer
	for what, pair := range map[string][2]redlatch.Member{
		"plain": {c.RLock("a"), c.RLock("a", redlatch.Fenced())},
		"fair":  {c.FairLock("f"), c.FairLock("f", redlatch.Fenced())},
		"read":  {rw.ReadLock(), fencedRW.ReadLock()},
		"write": {rw.WriteLock(), fencedRW.WriteLock()},
		"both":  {rw.ReadLock(), fencedRW.WriteLock()},
	} {
		for _, m := range []redlatch.Member{redlatch.MultiLock(pair[0], pair[1]), redlatch.MultiLock(pair[1], pair[0])} {
			h := bed.Lock(t, t.Context(), m)
			if tokens := h.(redlatch.MultiHold).Tokens(); tokens[0] == 0 || tokens[1] == 0 {
				t.Errorf("%s: tokens %v", what, tokens)
			}
			bed.Unlock(t, h)
		}
	}
	for _, m := range []redlatch.Member{
		redlatch.MultiLock(fencedRW.ReadLock(), rw.WriteLock()), redlatch.MultiLock(rw.WriteLock(), fencedRW.ReadLock()),
	} {
		_, err := m.Lock(t.Context()) // the write lock, taken for both, would have no token
		want(t, err, redlatch.ErrInvalidOption)
	}
	other := bed.Client(t, bed.Server(t).Addr())
	for what, m := range map[string]redlatch.Member{
		"read":  redlatch.QuorumLock(rw.ReadLock(), other.ReadWriteLock("rw", redlatch.Fenced()).ReadLock()),
		"write": redlatch.QuorumLock(fencedRW.WriteLock(), other.ReadWriteLock("rw").WriteLock()),
		"plain": redlatch.QuorumLock(c.RLock("a", redlatch.Fenced()), other.RLock("a")),
	} {
		if _, err := m.Lock(t.Context()); err == nil || !strings.Contains(err.Error(), "fenced") {
			t.Errorf("a quorum of %s locks, one of them fenced: %v", what, err)
		}
	}
}
