package promises

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/integration/bed"
	"github.com/redlatch/redlatch/internal/testbed"
)

// short makes leases that end, and renewals that come, while a test looks.
func short(c *redlatch.Config) { c.LeaseTime = 6 * time.Second }

// A lost lock is told: the hold's context ends with ErrLeaseLost, Unlock returns it, and a lease that
// runs out is told before the next one can be inside.
func TestALostLockIsTold(t *testing.T) {
	t.Parallel()
	overKinds(t, []func(*redlatch.Config){short}, map[string]func(t *testing.T, x *bed.Site, name string){
		"its keys are deleted": func(t *testing.T, x *bed.Site, name string) {
			h := bed.Lock(t, t.Context(), x.Lock(name))
			until := h.ValidUntil()
			for _, s := range x.Servers {
				for _, key := range s.List(t, "KEYS", "*"+name+"*") {
					s.Do(t, "DEL", key)
				}
			}
			lost(t, h)
			checked(t, until)
		},
		"it is forced open": func(t *testing.T, x *bed.Site, name string) {
			h := bed.Lock(t, t.Context(), x.Lock(name))
			until := h.ValidUntil()
			forceOpen(t, x, name)
			lost(t, h)
			checked(t, until)
		},
		"its fixed lease ends": func(t *testing.T, x *bed.Site, name string) {
			h := bed.Lock(t, t.Context(), x.Lock(name), redlatch.WithLease(2*time.Second))
			until := h.ValidUntil()
			next := succeeds(t, x, name, h)
			if now := time.Now(); now.Before(until) {
				t.Errorf("the next one is inside %v before the deadline", until.Sub(now))
			}
			lost(t, h)
			bed.Unlock(t, next)
		},
		"its servers are out of reach": func(t *testing.T, x *bed.Site, name string) {
			h := bed.Lock(t, t.Context(), x.Lock(name))
			for _, p := range x.Proxies {
				p.Pause(testbed.Requests)
				p.Pause(testbed.Replies)
			}
			next := succeeds(t, x, name, h)
			for _, p := range x.Proxies {
				p.Resume(testbed.Requests)
				p.Resume(testbed.Replies)
			}
			lost(t, h)
			bed.Unlock(t, next)
		},
	})
}

// checked fails if a loss was found no earlier than the lease would have ended.
func checked(t *testing.T, until time.Time) {
	t.Helper()
	if late := time.Since(until); late > 0 {
		t.Errorf("told %v after the end of the lease: no check found it", late)
	}
}

// succeeds waits until the next one is inside, and checks that the hold before had ended.
func succeeds(t *testing.T, x *bed.Site, name string, before redlatch.Hold) redlatch.Hold {
	t.Helper()
	got := bed.Run(func() (redlatch.Hold, error) {
		h, err := x.Beside(name).Lock(t.Context())
		if err == nil && before.Context().Err() == nil {
			t.Error("two are inside with live contexts")
		}
		return h, err
	})
	a := bed.Get(t, got)
	if a.Err != nil {
		t.Fatalf("the next one: %v", a.Err)
	}
	return a.Hold
}

// forceOpen frees the lock as an operator does.
func forceOpen(t *testing.T, x *bed.Site, name string) {
	t.Helper()
	for i, s := range x.Servers {
		for _, key := range s.List(t, "KEYS", name+"*") {
			if _, err := x.Direct[i].ForceUnlock(t.Context(), key); err != nil {
				t.Fatalf("ForceUnlock(%s): %v", key, err)
			}
		}
	}
}

// lost waits until the hold's context has ended for a loss, which Unlock tells as well.
func lost(t *testing.T, h redlatch.Hold) {
	t.Helper()
	ended(t, h, redlatch.ErrLeaseLost)
	err := h.Unlock(context.Background())
	if detail, is := errors.AsType[*redlatch.LeaseLostError](err); !is || detail.Name == "" || detail.Owner == "" || detail.Reason == "" {
		t.Errorf("Unlock of a lost hold: %v", err)
	}
	if err := h.Unlock(context.Background()); !errors.Is(err, redlatch.ErrNotHeld) {
		t.Errorf("a second Unlock of a lost hold: %v", err)
	}
}
