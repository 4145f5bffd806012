package multi

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/integration/bed"
	"github.com/redlatch/redlatch/internal/testbed"
	"github.com/redlatch/redlatch/rlock"
)

// What can't be one lock is refused, with the reason, by the first call.
func TestCompositionErrors(t *testing.T) {
	s := bed.Server(t)
	c, other := bed.Client(t, s.Addr()), bed.Client(t, s.Addr())
	for what, l := range map[string]redlatch.Member{
		"no member":                 redlatch.MultiLock(),
		"nil":                       redlatch.MultiLock(c.RLock("a"), nil),
		"one lock by two clients":   redlatch.MultiLock(c.RLock("a"), other.RLock("a")),
		"nested bad":                redlatch.MultiLock(c.RLock("a"), redlatch.MultiLock()),
		"quorum of none":            redlatch.QuorumLock(),
		"quorum of names":           redlatch.QuorumLock(c.RLock("a"), other.RLock("b")),
		"quorum of one client":      redlatch.QuorumLock(c.RLock("a"), c.RLock("a"), c.RLock("a")),
		"quorum on one server":      redlatch.QuorumLock(c.RLock("a"), other.RLock("a")),
		"quorum of fair":            redlatch.QuorumLock(c.FairLock("a"), other.FairLock("a")),
		"quorum of kinds":           redlatch.QuorumLock(c.RLock("a"), other.FairLock("a")),
		"quorum of a multi":         redlatch.QuorumLock(redlatch.MultiLock(c.RLock("a"), c.RLock("b"))),
		"quorum with and without F": redlatch.QuorumLock(c.RLock("a"), other.RLock("a", redlatch.Fenced())),
	} {
		// With a wait: that two are one server is known when both have answered.
		h, err := l.TryLock(t.Context(), 10*time.Second, 0)
		if !errors.Is(err, redlatch.ErrInvalidOption) {
			t.Errorf("%s: %v, %v", what, h, err)
		}
	}
	_, err := redlatch.MultiLock(c.RLock("a"), c.RLock("")).Lock(t.Context())
	want(t, err, redlatch.ErrInvalidName)
	_, err = redlatch.MultiLock(c.RLock(""), c.RLock("")).Lock(t.Context())
	want(t, err, redlatch.ErrInvalidName)
	_, err = redlatch.QuorumLock(c.RLock(""), other.RLock("")).Lock(t.Context())
	want(t, err, redlatch.ErrInvalidName)
	var nobody *rlock.RLock
	_, err = redlatch.MultiLock(nobody).Lock(t.Context())
	want(t, err, redlatch.ErrInvalidOption)
	free(t, s, "a", "b")
}

// TestGroupCostsOneCommand: N plain locks of one node cost one command to take
// and one to free.
func TestGroupCostsOneCommand(t *testing.T) {
	s := bed.Server(t)
	c := bed.Client(t, s.Addr())
	list := names("k", 5)
	m := redlatch.MultiLock(plain(c, list...)...)
	bed.Unlock(t, bed.Lock(t, t.Context(), m)) // the scripts are there now
	before := s.CommandStats(t)
	h := bed.Lock(t, t.Context(), m)
	taken := s.CommandStats(t).Sub(before)
	held(t, s, list...)
	before = s.CommandStats(t)
	bed.Unlock(t, h)
	freed := s.CommandStats(t).Sub(before)
	for what, st := range map[string]testbed.Stats{"taking": taken, "freeing": freed} {
		if n := st.Calls["evalsha"]; n != 1 || st.Calls["eval"] != 0 {
			t.Errorf("%s 5 locks took %d commands: %v", what, n, st)
		}
	}
	free(t, s, list...)
	want(t, h.Unlock(t.Context()), redlatch.ErrNotHeld)
}

// TestNothingKeptBesideABusyMember: while one member is busy none of the others is kept, or, in one command, even taken;
// its message wakes who waits, and so does that of the next one.
func TestNothingKeptBesideABusyMember(t *testing.T) {
	list := servers(t, 3)
	at := map[string][]*testbed.Server{"one node": {list[0], list[0], list[0]}, "three nodes": list}
	for what, on := range at {
		t.Run(what, func(t *testing.T) {
			cs, others := clients(t, addrs(on)), clients(t, addrs(on))
			if what == "one node" {
				cs = []*redlatch.Client{cs[0], cs[0], cs[0]}
			}
			name := []string{what + " a", what + " b", what + " c"}
			m := across(cs, name)
			nothing := func() {
				t.Helper()
				becomesFree(t, on[0], name[0]) // a round may be under way
				becomesFree(t, on[2], name[2])
				for range 20 {
					free(t, on[0], name[0])
					free(t, on[2], name[2])
				}
			}
			b := bed.Lock(t, t.Context(), others[1].RLock(name[1]))
			_, err := m.TryLock(t.Context(), 0, 0)
			busy, is := errors.AsType[*redlatch.NotAcquiredError](err)
			if !is || busy.Name != name[1] || busy.Holder == "" || busy.Remaining <= 0 {
				t.Errorf("%+v", err)
			}
			free(t, on[0], name[0])
			free(t, on[2], name[2])

			unheard(t, on[1], name[1])
			got := bed.Async(t.Context(), m)
			listens(t, on[1], name[1])
			nothing()
			blocked(t, got)
			a := bed.Lock(t, t.Context(), others[0].RLock(name[0]))
			bed.Unlock(t, b)
			listens(t, on[0], name[0])
			becomesFree(t, on[1], name[1])
			began := time.Now()
			bed.Unlock(t, a)
			h := bed.Hold(t, got)
			if took := time.Since(began); took > woken {
				t.Errorf("woken %v after the unlock", took)
			}
			for i, n := range name {
				held(t, on[i], n)
			}
			bed.Unlock(t, h)
		})
	}
}

// Re-entry is counted for each member, whichever lock it was taken through.
func TestGroupReentryPerMember(t *testing.T) {
	s := bed.Server(t)
	c := bed.Client(t, s.Addr())
	outer := bed.Lock(t, t.Context(), c.RLock("b"))
	m := redlatch.MultiLock(plain(c, "a", "b", "c")...)
	h := bed.Lock(t, outer.Context(), m)
	if n := count(t, s, "b"); n != "2" {
		t.Errorf("count %s of the member held before", n)
	}
	inner := bed.Lock(t, h.Context(), c.RLock("c"))
	again := bed.Lock(t, h.Context(), redlatch.MultiLock(plain(c, "c", "b", "a")...))
	if n := count(t, s, "c"); n != "3" {
		t.Errorf("count %s", n)
	}
	bed.Unlock(t, h)
	held(t, s, "a", "b", "c")
	bed.Unlock(t, again)
	free(t, s, "a")
	bed.Unlock(t, inner)
	free(t, s, "c")
	if n := count(t, s, "b"); n != "1" {
		t.Errorf("count %s of the member held before", n)
	}
	bed.Unlock(t, outer)
	free(t, s, "b")
}

// Each fenced member has its token; the whole's is the highest of them.
func TestTokensPerMember(t *testing.T) {
	s := bed.Server(t)
	c := bed.Client(t, s.Addr())
	m := redlatch.MultiLock(
		c.RLock("b", redlatch.Fenced()), c.RLock("plain"),
		redlatch.MultiLock(c.RLock("a", redlatch.Fenced()), c.RLock("c", redlatch.Fenced())),
	)
	var before []uint64
	for range 3 {
		h := bed.Lock(t, t.Context(), m)
		tokens := h.(redlatch.MultiHold).Tokens()
		if len(tokens) != 3 || tokens[1] != 0 || tokens[0] == 0 || tokens[2] == 0 {
			t.Fatalf("tokens %v", tokens)
		}
		if h.Token() != slices.Max(tokens) {
			t.Errorf("token %d of %v", h.Token(), tokens)
		}
		again := bed.Lock(t, h.Context(), m)
		if got := again.(redlatch.MultiHold).Tokens(); !slices.Equal(got, tokens) {
			t.Errorf("tokens %v of the re-entry, %v before", got, tokens)
		}
		bed.Unlock(t, again)
		if before != nil && (tokens[0] <= before[0] || tokens[2] <= before[2]) {
			t.Errorf("tokens %v after %v", tokens, before)
		}
		before = tokens
		bed.Unlock(t, h)
	}
}

// TestGroupRefusedByTheServer: a member's key of another type is a bad name, and nothing of the group is taken.
func TestGroupRefusedByTheServer(t *testing.T) {
	s := bed.Server(t)
	s.Do(t, "SET", "c", "x")
	_, err := redlatch.MultiLock(plain(bed.Client(t, s.Addr()), "a", "b", "c")...).Lock(t.Context())
	want(t, err, redlatch.ErrInvalidName)
	free(t, s, "a", "b")
	s.Do(t, "DEL", "c")
}

// The whole is held when all its members are; ForceUnlock frees them all.
func TestStateAndForceUnlockOfTheWhole(t *testing.T) {
	s := bed.Server(t)
	c := bed.Client(t, s.Addr(), lease(10*time.Second))
	m := redlatch.MultiLock(c.RLock("a", redlatch.Fenced()), c.FairLock("b"))
	st, err := m.State(t.Context())
	if err != nil || st.Held || len(st.Holders) != 0 {
		t.Errorf("free: %+v, %v", st, err)
	}
	h := bed.Lock(t, t.Context(), c.RLock("a"))
	if st, err := m.State(t.Context()); err != nil || st.Held || len(st.Holders) != 1 {
		t.Errorf("half held: %+v, %v", st, err)
	}
	bed.Unlock(t, h)
	h = bed.Lock(t, t.Context(), m)
	st, err = m.State(t.Context())
	if err != nil || !st.Held || len(st.Holders) != 2 || st.Remaining < 5*time.Second || st.Token != h.Token() {
		t.Errorf("held: %+v, %v", st, err)
	}
	if ok, err := m.ForceUnlock(t.Context()); !ok || err != nil {
		t.Errorf("force: %v, %v", ok, err)
	}
	if ok, err := m.ForceUnlock(t.Context()); ok || err != nil {
		t.Errorf("force again: %v, %v", ok, err)
	}
	want(t, h.Unlock(t.Context()), redlatch.ErrLeaseLost)

	list, cs := five(t)
	q := redlatch.QuorumLock(copies(cs, "q")...)
	qh := bed.Lock(t, t.Context(), q)
	list[0].Kill(t)
	if st, err := q.State(t.Context()); err != nil || !st.Held || st.Remaining <= 0 {
		t.Errorf("quorum: %+v, %v", st, err)
	}
	bed.Unlock(t, qh)
	bed.Eventually(t, "all free", func() bool { return heldOn(t, list, "q") == 0 })
}

// What remains of a whole is what remains of the member whose lease ends first, of a quorum of the
// first in the majority that lasts longest; also where an int has 32 bits (GOARCH=386).
func TestRemainingOfTheWhole(t *testing.T) {
	t.Parallel()
	list := servers(t, 3)
	cs := clients(t, addrs(list))
	q, m := copies(cs, "q"), []redlatch.Member{cs[0].RLock("a"), cs[1].RLock("b"), cs[2].RLock("c")}
	for _, order := range [][]int{{50, 20, 30}, {20, 50, 30}, {30, 50, 20}} {
		var holds []redlatch.Hold
		for i, minutes := range order {
			for _, l := range []redlatch.Member{q[i], m[i]} {
				holds = append(holds, bed.Lock(t, t.Context(), l, redlatch.WithLease(time.Duration(minutes)*time.Minute)))
			}
		}
		for _, tc := range []struct {
			lock *multiLock
			want time.Duration
		}{{redlatch.MultiLock(m...), 20 * time.Minute}, {redlatch.QuorumLock(q...), 30 * time.Minute}} {
			// A copy whose busy server does not answer in time is left out of one answer, not of all.
			bed.Eventually(t, fmt.Sprintf("leases of %d minutes: %v remain of %s", order, tc.want, tc.lock.Name()), func() bool {
				st, err := tc.lock.State(t.Context())
				return err == nil && st.Held && st.Remaining <= tc.want && st.Remaining >= tc.want-bed.Patience
			})
		}
		for _, h := range holds {
			bed.Unlock(t, h)
		}
	}
}
