package integration

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/testbed"
)

// The error of a long wait says when the holder was seen: what was left of its lease then is no
// news after a wait. It may have been renewed since, or be over soon.
func TestErrorOfALongWaitSaysWhenTheHolderWasSeen(t *testing.T) {
	s := testbed.Standalone(t)
	holder, waiter := rlClient(t, s.Addr()), rlClient(t, s.Addr())
	for kind, of := range map[string]func(c *redlatch.Client) redlatch.Locker{
		"reentrant": func(c *redlatch.Client) redlatch.Locker { return c.RLock("a") },
		"fair":      func(c *redlatch.Client) redlatch.Locker { return c.FairLock("b") },
		"write":     func(c *redlatch.Client) redlatch.Locker { return c.ReadWriteLock("c").WriteLock() },
	} {
		const lease, wait = 20 * time.Second, 1500 * time.Millisecond
		h, err := of(holder).TryLock(t.Context(), 0, lease)
		if err != nil {
			t.Fatal(err)
		}
		for _, wait := range []time.Duration{0, wait} {
			_, err = of(waiter).TryLock(t.Context(), wait, 0)
			var busy *redlatch.NotAcquiredError
			if !errors.As(err, &busy) {
				t.Fatal(kind, err)
			}
			left := time.Until(h.ValidUntil())
			if now := busy.Remaining - busy.Age; now < left-time.Second || now > left+time.Second {
				t.Errorf("%s: after a wait of %v %v are left, want about %v", kind, wait, now, left)
			}
			if said := strings.Contains(err.Error(), "as seen "); said != (wait > 0) {
				t.Errorf("%s: a wait of %v: %v", kind, wait, err)
			}
		}
		rlUnlock(t, h)
	}
}

// The name of a MultiLock of copies says of how many.
func TestNameOfAMultiLockOfCopies(t *testing.T) {
	a, b := testbed.Standalone(t), testbed.Standalone(t)
	ca, cb := rlClient(t, a.Addr()), rlClient(t, b.Addr())
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := redlatch.MultiLock(ca.RLock("d"), cb.RLock("d"), cb.RLock("e")).Lock(ctx)
	if err == nil || !strings.Contains(err.Error(), "[d ×2 e]") {
		t.Errorf("%v", err)
	}
}
