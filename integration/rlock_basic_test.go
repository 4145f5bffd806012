package integration

import (
	"strings"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/integration/bed"
	"github.com/redlatch/redlatch/internal/luascript"
)

// State says who holds the lock and for how long; ForceUnlock frees it, lets in who waits, and its
// holder hears of it.
func TestRLockStateAndForceUnlock(t *testing.T) {
	s := bed.Server(t)
	c := rlClient(t, s.Addr(), rlLease(5*time.Second))
	l := c.RLock("l")
	st, err := l.State(t.Context())
	if err != nil || st.Held || st.Mode != redlatch.ModeNone || len(st.Owners) != 0 || st.Name != "l" {
		t.Fatalf("State of a free lock %+v, %v", st, err)
	}
	if was, err := l.ForceUnlock(t.Context()); was || err != nil {
		t.Fatalf("ForceUnlock of a free lock: %v, %v", was, err)
	}
	h := bed.Lock(t, t.Context(), l, redlatch.WithLease(time.Minute))
	st, err = l.State(t.Context())
	if err != nil || !st.Held || st.Remaining < 50*time.Second || st.Remaining > time.Minute ||
		len(st.Owners) != 1 || !strings.HasPrefix(st.Owners[0].Owner, c.ID()+":") || st.Owners[0].Count != 1 {
		t.Fatalf("State %+v, %v", st, err)
	}
	// Forced: a waiter goes on at once, the holder hears at its next check.
	got := bed.Async(t.Context(), l)
	rlSubscribed(t, s, "l", 1)
	if was, err := l.ForceUnlock(t.Context()); !was || err != nil {
		t.Fatalf("ForceUnlock: %v, %v", was, err)
	}
	r := bed.Get(t, got)
	if r.Err != nil {
		t.Fatal(r.Err)
	}
	rlEnded(t, h, redlatch.ErrLeaseLost)
	rlWant(t, h.Unlock(t.Context()), redlatch.ErrLeaseLost)
	if rlCount(t, s, "l") != 1 {
		t.Error("the late Unlock touched the successor")
	}
	bed.Unlock(t, r.Hold)
}

// Prefix and NameMapper make the key, and a Hold is called what its caller called the lock.
func TestRLockPrefixAndMapper(t *testing.T) {
	s := bed.Server(t)
	c := rlClient(t, s.Addr(), func(c *redlatch.Config) {
		c.Prefix = "app:"
		c.NameMapper = func(name string) string {
			if name == "none" {
				return ""
			}
			return strings.ToLower(name)
		}
	})
	h := bed.Lock(t, t.Context(), c.RLock("Orders"))
	if h.Name() != "Orders" {
		t.Errorf("name %q", h.Name())
	}
	if rlCount(t, s, "app:orders") != 1 {
		t.Errorf("keys %v", s.List(t, "KEYS", "*"))
	}
	again := bed.Lock(t, h.Context(), c.RLock("ORDERS")) // one key, one lock
	bed.Unlock(t, again)
	bed.Unlock(t, h)
	_, err := c.RLock("none").Lock(t.Context())
	rlWant(t, err, redlatch.ErrInvalidName)
}

// Every derived key falls into the lock's slot, so that scripts with several
// keys are possible on a cluster.
func TestRLockKeysShareASlot(t *testing.T) {
	for _, name := range []string{"a", "a{b}c", "{x}", "a:b:c"} {
		for _, key := range []string{
			luascript.VoidKey(name), luascript.TokenKey(name), luascript.TraceKey(name), luascript.LockChannel(name),
		} {
			if luascript.Slot(key) != luascript.Slot(name) {
				t.Errorf("%s is in another slot than %s", key, name)
			}
		}
	}
}
