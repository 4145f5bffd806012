package integration

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
)

// lower makes one lock of all names that differ in their letters' case only.
func lower(c *redlatch.Config) { c.NameMapper = strings.ToLower }

// namedLost ends the lease of a hold that was taken as name, and reads whose loss its errors and
// context report.
func namedLost(t *testing.T, h redlatch.Hold, name string) {
	t.Helper()
	rlEnded(t, h, redlatch.ErrLeaseLost)
	for i, err := range []error{context.Cause(h.Context()), h.Extend(t.Context(), time.Minute), h.Unlock(t.Context())} {
		var lost *redlatch.LeaseLostError
		if !errors.As(err, &lost) || lost.Name != name {
			t.Errorf("%s of %s: %v", []string{"cause", "Extend", "Unlock"}[i], name, err)
		}
	}
}

// heldNames are the names of what the client holds, with the count of each.
func heldNames(c *redlatch.Client) map[string]int {
	out := map[string]int{}
	for _, l := range c.Held() {
		out[l.Name] += l.Count
	}
	return out
}

// An owner has a lock under two names of one key: each hold has its own.
func TestNamesOfAReentry(t *testing.T) {
	t.Parallel()
	s := rlServer(t)
	c := rlClient(t, s.Addr(), lower, rlLease(time.Second))
	for what, l := range map[string]func(name string) redlatch.Locker{
		"plain": func(name string) redlatch.Locker { return c.RLock(name) },
		"fair":  func(name string) redlatch.Locker { return c.FairLock(name) },
		"write": func(name string) redlatch.Locker { return c.ReadWriteLock(name).WriteLock() },
		"read":  func(name string) redlatch.Locker { return c.ReadWriteLock(name).ReadLock() },
	} {
		outer := rlLock(t, t.Context(), l("A"+what))
		inner := rlLock(t, outer.Context(), l("a"+what))
		if outer.Name() != "A"+what || inner.Name() != "a"+what {
			t.Errorf("%s: %s within %s", what, inner.Name(), outer.Name())
		}
		if held := heldNames(c); held["A"+what] != 1 || held["a"+what] != 1 {
			t.Errorf("%s: holds %v", what, held)
		}
		st, err := l("a" + what).(interface { //nolint:forcetypeassert // each kind has it
			State(ctx context.Context) (redlatch.State, error)
		}).State(t.Context())
		if err != nil || st.Name != "a"+what {
			t.Errorf("%s: State %+v, %v", what, st, err)
		}
		_ = inner.Context() // one made after the loss has the outer hold's cause
		s.Do(t, "FLUSHALL")
		namedLost(t, outer, "A"+what)
		namedLost(t, inner, "a"+what)
	}
}

// A lock is passed on inside a process to who waits for it under another name.
func TestNamesOfALockThatIsPassedOn(t *testing.T) {
	t.Parallel()
	s := rlServer(t)
	c := rlClient(t, s.Addr(), lower, rlLease(time.Second), func(c *redlatch.Config) { c.Tenure = time.Second / 3 })
	passed := false
	for range 50 { // only within a tenure
		first := rlLock(t, t.Context(), c.RLock("A"))
		owner := c.Held()[0].Owner
		next := rlAsync(t.Context(), c.RLock("a"))
		rlSubscribed(t, s, "a", 1)
		time.Sleep(5 * time.Millisecond)
		rlUnlock(t, first)
		got := rlGet(t, next)
		if got.err != nil {
			t.Fatal(got.err)
		}
		if got.hold.Name() != "a" {
			t.Errorf("name %s", got.hold.Name())
		}
		list := c.Held()
		if len(list) != 1 || list[0].Name != "a" {
			t.Errorf("holds %+v", list)
		}
		if passed = len(list) == 1 && list[0].Owner == owner; passed {
			s.Do(t, "FLUSHALL")
			namedLost(t, got.hold, "a")
			break
		}
		rlUnlock(t, got.hold)
	}
	if !passed {
		t.Error("no lock was passed on")
	}
}

// Readers of one process share a hold on the server, each under the name that it gave.
func TestNamesOfReadersThatShare(t *testing.T) {
	t.Parallel()
	s := rlServer(t)
	c := rlClient(t, s.Addr(), lower, rlLease(time.Second), func(c *redlatch.Config) { c.Tenure = time.Second / 3 })
	names := []string{"A", "a"}
	var holds []redlatch.Hold
	for _, name := range names {
		holds = append(holds, rlLock(t, t.Context(), c.ReadWriteLock(name, redlatch.ShareReads()).ReadLock()))
	}
	list := c.Held()
	slices.SortFunc(list, func(a, b redlatch.HeldLock) int { return strings.Compare(a.Name, b.Name) })
	if len(list) != 2 || list[0].Name != "A" || list[1].Name != "a" {
		t.Errorf("holds %+v", list)
	}
	s.Do(t, "FLUSHALL")
	for i, h := range holds {
		namedLost(t, h, names[i])
	}
}

// Who waits under one name for what is held under another one hears of the lock that it asked for.
func TestNamesOfARefusal(t *testing.T) {
	t.Parallel()
	s := rlServer(t)
	c := rlClient(t, s.Addr(), lower)
	h := rlLock(t, t.Context(), redlatch.QuorumLock(c.RLock("A")))
	ctx, cancel := context.WithCancel(t.Context())
	first := rlAsync(ctx, redlatch.QuorumLock(c.RLock("A"))) // has the turn
	rlSubscribed(t, s, "a", 1)
	for what, l := range map[string]redlatch.Locker{"plain": c.RLock("a"), "quorum": redlatch.QuorumLock(c.RLock("a"))} {
		_, err := l.TryLock(t.Context(), 100*time.Millisecond, 0)
		var busy *redlatch.NotAcquiredError
		if !errors.As(err, &busy) || busy.Name != "a" || busy.Holder == "" {
			t.Errorf("%s: %v", what, err)
		}
	}
	cancel()
	<-first
	rlUnlock(t, h)
}
