package integration

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/redlatch/redlatch"
)

// What a lock of that name would refuse, an operator's call refuses, too: {a} has the queue of a, so a forced unlock
// of it would hand a hold of {a} to the first waiter of a, which takes it for one of a.
func TestForceUnlockRefusesTheNamesThatLocksRefuse(t *testing.T) {
	s := rlServer(t)
	c, ctx := rlClient(t, s.Addr()), t.Context()
	h := rlLock(t, ctx, c.FairLock("a"))
	waiting, stop := context.WithCancel(ctx)
	defer stop()
	second := rlAsync(waiting, c.FairLock("a"))
	inUntil(t, c, "a", func(in redlatch.Inspection) bool { return in.QueueLength == 1 })

	before := strings.Join(s.List(t, "KEYS", "*"), " ")
	for _, name := range []string{"{a}", "", "redisson_lock_queue:{a}", "a:rwlock_timeout:1", strings.Repeat("x", 1025)} {
		_, locked := c.RLock(name).TryLock(ctx, 0, 0)
		if !errors.Is(locked, redlatch.ErrInvalidName) {
			t.Fatalf("TryLock(%.20q): %v", name, locked)
		}
		if was, err := c.ForceUnlock(ctx, name); was || err == nil || err.Error() != locked.Error() {
			t.Errorf("ForceUnlock(%.20q): %v, %v; TryLock: %v", name, was, err, locked)
		}
		if in, err := c.Inspect(ctx, name); err == nil || err.Error() != locked.Error() {
			t.Errorf("Inspect(%.20q): %+v, %v; TryLock: %v", name, in, err, locked)
		}
	}
	rlBlocked(t, second)
	if after := strings.Join(s.List(t, "KEYS", "*"), " "); after != before {
		t.Errorf("keys before: %s\nafter: %s", before, after)
	}
	stop()
	if r := rlGet(t, second); !errors.Is(r.err, context.Canceled) {
		t.Errorf("the waiter: %v, %v", r.hold, r.err)
	}
	if err := h.Unlock(ctx); err != nil {
		t.Error(err)
	}
}

// What stands there is listed, also under a name that no lock of ours may have.
func TestLocksListsWhatStandsThere(t *testing.T) {
	s := rlServer(t)
	c := rlClient(t, s.Addr())
	s.Do(t, "HSET", "{a}", "8743c9c0-0795-4907-87fd-6c719a6b4586:42", "1")
	t.Cleanup(func() { s.Do(t, "DEL", "{a}") })
	var names []string
	for in, err := range c.Locks(t.Context(), "") {
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, in.Name)
	}
	if len(names) != 1 || names[0] != "{a}" {
		t.Errorf("listed: %q", names)
	}
}
