package multi

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/luascript"
	"github.com/redlatch/redlatch/internal/testbed"
	"github.com/redlatch/redlatch/rlock"
)

// What can't be one lock is refused, with the reason, by the first call.
func TestCompositionErrors(t *testing.T) {
	s := server(t)
	c, other := dial(t, s.Addr()), dial(t, s.Addr())
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
	_, err = redlatch.MultiLock(c.RLock("a"), c.RLock("b")).TryLock(t.Context(), -1, 0)
	want(t, err, redlatch.ErrInvalidOption)
	_, err = redlatch.MultiLock(c.RLock("a"), c.RLock("b")).TryLock(t.Context(), 0, -1)
	want(t, err, redlatch.ErrInvalidOption)
	free(t, s, "a", "b")
}

// TestGroupCostsOneCommand: N plain locks of one node cost one command to take
// and one to free.
func TestGroupCostsOneCommand(t *testing.T) {
	s := server(t)
	c := dial(t, s.Addr())
	list := names("k", 5)
	m := redlatch.MultiLock(plain(c, list...)...)
	unlock(t, mustLock(t, t.Context(), m)) // the scripts are there now
	before := s.CommandStats(t)
	h := mustLock(t, t.Context(), m)
	taken := s.CommandStats(t).Sub(before)
	held(t, s, list...)
	before = s.CommandStats(t)
	unlock(t, h)
	freed := s.CommandStats(t).Sub(before)
	for what, st := range map[string]testbed.Stats{"taking": taken, "freeing": freed} {
		if n := st.Calls["evalsha"]; n != 1 || st.Calls["eval"] != 0 {
			t.Errorf("%s 5 locks took %d commands: %v", what, n, st)
		}
	}
	free(t, s, list...)
	want(t, h.Unlock(t.Context()), redlatch.ErrNotHeld)
}

// TestNothingKeptAfterAFailedTry: one busy member, and none of the others is
// taken at any moment: there is no command that could have.
func TestNothingKeptAfterAFailedTry(t *testing.T) {
	s := server(t)
	c, other := dial(t, s.Addr()), dial(t, s.Addr())
	m := redlatch.MultiLock(plain(c, "a", "b", "c")...)
	h := mustLock(t, t.Context(), other.RLock("b"))
	_, err := m.TryLock(t.Context(), 0, 0)
	want(t, err, redlatch.ErrNotAcquired)
	var busy *redlatch.NotAcquiredError
	if !errors.As(err, &busy) || busy.Name != "b" || busy.Holder == "" || busy.Remaining <= 0 {
		t.Errorf("details %+v", busy)
	}
	free(t, s, "a", "c")

	got := async(t.Context(), m)
	listens(t, s, "b")
	free(t, s, "a", "c")
	blocked(t, got)
	began := time.Now()
	unlock(t, h)
	mh := get(t, got)
	if took := time.Since(began); took > woken {
		t.Errorf("woken %v after the unlock", took)
	}
	held(t, s, "a", "b", "c")
	unlock(t, mh)

	// Waiting for one, then for the other: the message of each wakes it.
	ha, hb := mustLock(t, t.Context(), other.RLock("a")), mustLock(t, t.Context(), other.RLock("b"))
	got = async(t.Context(), m)
	listens(t, s, "a")
	unlock(t, ha)
	listens(t, s, "b")
	free(t, s, "a", "c")
	began = time.Now()
	unlock(t, hb)
	unlock(t, get(t, got))
	if took := time.Since(began); took > woken {
		t.Errorf("woken %v after the unlock", took)
	}
}

// Re-entry is counted for each member, whichever lock it was taken through.
func TestGroupReentryPerMember(t *testing.T) {
	s := server(t)
	c := dial(t, s.Addr())
	outer := mustLock(t, t.Context(), c.RLock("b"))
	m := redlatch.MultiLock(plain(c, "a", "b", "c")...)
	h := mustLock(t, outer.Context(), m)
	if n := count(t, s, "b"); n != "2" {
		t.Errorf("count %s of the member held before", n)
	}
	inner := mustLock(t, h.Context(), c.RLock("c"))
	again := mustLock(t, h.Context(), redlatch.MultiLock(plain(c, "c", "b", "a")...))
	if n := count(t, s, "c"); n != "3" {
		t.Errorf("count %s", n)
	}
	unlock(t, h)
	held(t, s, "a", "b", "c")
	unlock(t, again)
	free(t, s, "a")
	unlock(t, inner)
	free(t, s, "c")
	if n := count(t, s, "b"); n != "1" {
		t.Errorf("count %s of the member held before", n)
	}
	unlock(t, outer)
	free(t, s, "b")
}

// The loss of a member ends the hold, and the others stay for the lease that they have, or until
// Unlock. That they are renewed no more says TestLostHoldIsRenewedNoMore.
func TestMemberLossEndsTheHoldAndTheOthersStay(t *testing.T) {
	t.Parallel()                      // it waits, for the most part
	const leaseTime = 5 * time.Second // no stall of the machine ends it
	s := server(t)
	c := dial(t, s.Addr(), lease(leaseTime))
	h := mustLock(t, t.Context(), redlatch.MultiLock(plain(c, "a", "b", "c")...))
	s.Do(t, "DEL", "b")
	cause := ended(t, h)
	var lost *redlatch.LeaseLostError
	if !errors.As(cause, &lost) || lost.Reason != "member" {
		t.Fatalf("cause %v", cause)
	}
	time.Sleep(leaseTime / 4) // nothing is freed under the section
	held(t, s, "a", "c")
	err := h.Unlock(t.Context())
	want(t, err, redlatch.ErrLeaseLost)
	free(t, s, "a", "b", "c")
}

// The whole is renewed beyond its lease, and ends with a fixed one.
func TestFixedLeaseAndWatchdogOfTheWhole(t *testing.T) {
	t.Parallel()                                              // it waits, for the most part
	const leaseTime, fixed = 5 * time.Second, 4 * time.Second // no stall of the machine ends them
	s := server(t)
	c := dial(t, s.Addr(), lease(leaseTime))
	m := redlatch.MultiLock(plain(c, "a", "b")...)
	h := mustLock(t, t.Context(), m)
	time.Sleep(leaseTime * 5 / 4)
	if h.Context().Err() != nil {
		t.Fatalf("the hold ended: %v", context.Cause(h.Context()))
	}
	held(t, s, "a", "b")
	unlock(t, h)

	h = mustLock(t, t.Context(), m, redlatch.WithLease(fixed))
	if left := time.Until(h.ValidUntil()); left > fixed || left < fixed/4 {
		t.Errorf("valid for %v", left)
	}
	if err := h.Extend(t.Context(), 2*fixed); err != nil {
		t.Fatal(err)
	}
	if left := time.Until(h.ValidUntil()); left < fixed { // without it less is left in any case
		t.Errorf("valid for %v after Extend", left)
	}
	want(t, ended(t, h), redlatch.ErrLeaseLost)
	want(t, h.Unlock(t.Context()), redlatch.ErrLeaseLost)
	eventually(t, "the leases' end", func() bool { return s.Int(t, "EXISTS", "a", "b") == 0 })
}

// A wait for one of the members ends with ctx or its time, and leaves the others free.
func TestContextEndsTheWait(t *testing.T) {
	s := server(t)
	c, other := dial(t, s.Addr()), dial(t, s.Addr())
	h := mustLock(t, t.Context(), other.RLock("b"))
	m := redlatch.MultiLock(plain(c, "a", "b")...)
	ctx, cancel := context.WithCancel(t.Context())
	got := async(ctx, m)
	listens(t, s, "b")
	cancel()
	r := <-got
	want(t, r.err, context.Canceled)
	want(t, r.err, redlatch.ErrNotAcquired)
	began := time.Now()
	_, err := m.TryLock(t.Context(), time.Second, 0)
	want(t, err, redlatch.ErrNotAcquired)
	if took := time.Since(began); took < time.Second || took > 4*time.Second {
		t.Errorf("a wait of 1 s took %v", took)
	}
	free(t, s, "a")
	unlock(t, h)
}

// TestHoldOutlivesItsContext: the end of the caller's ctx ends the hold's
// context, and nothing is given up before Unlock.
func TestHoldOutlivesItsContext(t *testing.T) {
	s := server(t)
	c := dial(t, s.Addr())
	ctx, cancel := context.WithCancel(t.Context())
	h := mustLock(t, ctx, redlatch.MultiLock(c.RLock("a"), c.RLock("b"), c.FairLock("f")))
	cancel()
	if cause := ended(t, h); !errors.Is(cause, context.Canceled) || errors.Is(cause, redlatch.ErrLeaseLost) {
		t.Errorf("cause %v", cause)
	}
	held(t, s, "a", "b", "f")
	if err := h.Unlock(ctx); err != nil {
		t.Errorf("Unlock with an ended ctx: %v", err)
	}
	free(t, s, "a", "b", "f")
}

// Each fenced member has its token; the whole's is the highest of them.
func TestTokensPerMember(t *testing.T) {
	s := server(t)
	c := dial(t, s.Addr())
	m := redlatch.MultiLock(
		c.RLock("b", redlatch.Fenced()), c.RLock("plain"),
		redlatch.MultiLock(c.RLock("a", redlatch.Fenced()), c.RLock("c", redlatch.Fenced())),
	)
	var before []uint64
	for range 3 {
		h := mustLock(t, t.Context(), m)
		tokens := h.(redlatch.MultiHold).Tokens()
		if len(tokens) != 3 || tokens[1] != 0 || tokens[0] == 0 || tokens[2] == 0 {
			t.Fatalf("tokens %v", tokens)
		}
		if h.Token() != slices.Max(tokens) {
			t.Errorf("token %d of %v", h.Token(), tokens)
		}
		again := mustLock(t, h.Context(), m)
		if got := again.(redlatch.MultiHold).Tokens(); !slices.Equal(got, tokens) {
			t.Errorf("tokens %v of the re-entry, %v before", got, tokens)
		}
		unlock(t, again)
		if before != nil && (tokens[0] <= before[0] || tokens[2] <= before[2]) {
			t.Errorf("tokens %v after %v", tokens, before)
		}
		before = tokens
		unlock(t, h)
	}
}

// TestGroupReplyLost: the reply of the taking is lost after the script ran, and
// so is that of the freeing: one hold, and nothing stays.
func TestGroupReplyLost(t *testing.T) {
	s := server(t)
	proxy := testbed.NewProxy(t, s.Addr())
	c := dial(t, proxy.Addr(), lease(10*time.Second))
	m := redlatch.MultiLock(plain(c, "a", "b")...)
	unlock(t, mustLock(t, t.Context(), m))
	trap := proxy.DropReply(testbed.Contains("EVALSHA", luascript.GroupAcquire.SHA))
	h := mustLock(t, t.Context(), m)
	trap.Wait(t)
	for _, n := range []string{"a", "b"} {
		if all := s.Hash(t, "HGETALL", n); len(all) != 1 {
			t.Errorf("%s: %v", n, all)
		}
	}
	trap = proxy.DropReply(testbed.Contains("EVALSHA", luascript.GroupRelease.SHA))
	unlock(t, h)
	trap.Wait(t)
	free(t, s, "a", "b")
	unlock(t, mustLock(t, t.Context(), m))
}

// TestLateGroupGrantGivenBack: ctx ends while the command is held up; it runs
// afterwards, and everything is given back.
func TestLateGroupGrantGivenBack(t *testing.T) {
	s := server(t)
	proxy := testbed.NewProxy(t, s.Addr())
	c := dial(t, proxy.Addr())
	m := redlatch.MultiLock(plain(c, "a", "b")...)
	unlock(t, mustLock(t, t.Context(), m))
	trap := proxy.StallRequest(testbed.Contains("EVALSHA", luascript.GroupAcquire.SHA))
	ctx, cancel := context.WithCancel(t.Context())
	got := async(ctx, m)
	trap.Wait(t)
	cancel()
	r := <-got
	want(t, r.err, redlatch.ErrNotAcquired)
	trap.Release()
	other := dial(t, s.Addr())
	unlock(t, mustLock(t, t.Context(), redlatch.MultiLock(plain(other, "a", "b")...)))
	eventually(t, "free locks", func() bool { return s.Int(t, "EXISTS", "a", "b") == 0 })
}

// TestGroupRefusedByTheServer: no memory, or a member's key of another type:
// nothing of the group is taken.
func TestGroupRefusedByTheServer(t *testing.T) {
	s := server(t)
	c := dial(t, s.Addr())
	m := redlatch.MultiLock(plain(c, "a", "b", "c")...)
	s.Do(t, "SET", "c", "x")
	_, err := m.Lock(t.Context())
	want(t, err, redlatch.ErrInvalidName)
	free(t, s, "a", "b")
	s.Do(t, "DEL", "c")
	h := mustLock(t, t.Context(), m)
	s.Do(t, "CONFIG", "SET", "maxmemory", "1")
	if err := h.Unlock(t.Context()); err != nil {
		t.Errorf("unlock without memory: %v", err)
	}
	free(t, s, "a", "b", "c")
	_, err = m.Lock(t.Context())
	var refused *redlatch.ServerError
	if !errors.As(err, &refused) {
		t.Errorf("without memory: %v", err)
	}
	s.Do(t, "CONFIG", "SET", "maxmemory", "0")
	free(t, s, "a", "b", "c")
}

// The whole is held when all its members are; ForceUnlock frees them all.
func TestStateAndForceUnlockOfTheWhole(t *testing.T) {
	s := server(t)
	c := dial(t, s.Addr(), lease(10*time.Second))
	m := redlatch.MultiLock(c.RLock("a", redlatch.Fenced()), c.FairLock("b"))
	st, err := m.State(t.Context())
	if err != nil || st.Held || len(st.Owners) != 0 {
		t.Errorf("free: %+v, %v", st, err)
	}
	h := mustLock(t, t.Context(), c.RLock("a"))
	if st, err := m.State(t.Context()); err != nil || st.Held || len(st.Owners) != 1 {
		t.Errorf("half held: %+v, %v", st, err)
	}
	unlock(t, h)
	h = mustLock(t, t.Context(), m)
	st, err = m.State(t.Context())
	if err != nil || !st.Held || len(st.Owners) != 2 || st.Remaining < 5*time.Second || st.Token != h.Token() {
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
	qh := mustLock(t, t.Context(), q)
	list[0].Kill(t)
	if st, err := q.State(t.Context()); err != nil || !st.Held || st.Remaining <= 0 {
		t.Errorf("quorum: %+v, %v", st, err)
	}
	unlock(t, qh)
	eventually(t, "all free", func() bool { return heldOn(t, list, "q") == 0 })
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
				holds = append(holds, mustLock(t, t.Context(), l, redlatch.WithLease(time.Duration(minutes)*time.Minute)))
			}
		}
		for _, tc := range []struct {
			lock *multiLock
			want time.Duration
		}{{redlatch.MultiLock(m...), 20 * time.Minute}, {redlatch.QuorumLock(q...), 30 * time.Minute}} {
			// A copy whose busy server does not answer in time is left out of one answer, not of all.
			eventually(t, fmt.Sprintf("leases of %d minutes: %v remain of %s", order, tc.want, tc.lock.Name()), func() bool {
				st, err := tc.lock.State(t.Context())
				return err == nil && st.Held && st.Remaining <= tc.want && st.Remaining >= tc.want-patience
			})
		}
		for _, h := range holds {
			unlock(t, h)
		}
	}
}
