package promises

import (
	"errors"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/integration/bed"
)

// A lease of its own is kept to: the watchdog renews what has none, Extend only lengthens, and a lease or
// wait that can't be meant is refused before anything is asked.
func TestLeases(t *testing.T) {
	t.Parallel()
	overKinds(t, []func(*redlatch.Config){short}, map[string]func(t *testing.T, x *bed.Site, name string){
		"the watchdog renews": func(t *testing.T, x *bed.Site, name string) {
			h := bed.Lock(t, t.Context(), x.Lock(name))
			first := h.ValidUntil()
			for time.Now().Before(first.Add(time.Second)) {
				alive(t, h)
				refused(t, x.Beside(name))
				time.Sleep(100 * time.Millisecond)
			}
			bed.Unlock(t, h)
		},
		"Extend lengthens and never shortens": func(t *testing.T, x *bed.Site, name string) {
			h := bed.Lock(t, t.Context(), x.Lock(name), redlatch.WithLease(time.Second))
			first := h.ValidUntil()
			if err := h.Extend(t.Context(), 2*time.Second); err != nil {
				t.Fatalf("Extend: %v", err)
			}
			second := h.ValidUntil()
			if second.Sub(first) < 500*time.Millisecond {
				t.Errorf("extended by %v", second.Sub(first))
			}
			if err := h.Extend(t.Context(), time.Millisecond); err != nil {
				t.Fatalf("Extend: %v", err)
			}
			if h.ValidUntil().Before(second) {
				t.Errorf("shortened by %v", second.Sub(h.ValidUntil()))
			}
			bed.Unlock(t, h)
		},
		"what can't be meant is refused": func(t *testing.T, x *bed.Site, name string) {
			l := x.Lock(name)
			for _, bad := range []struct{ wait, lease time.Duration }{{-1, 0}, {0, -1}, {0, 1}, {0, time.Millisecond - 1}} {
				if _, err := l.TryLock(t.Context(), bad.wait, bad.lease); !errors.Is(err, redlatch.ErrInvalidOption) {
					t.Errorf("TryLock(%v, %v): %v", bad.wait, bad.lease, err)
				}
			}
			if _, err := l.Lock(t.Context(), redlatch.WithLease(-1)); !errors.Is(err, redlatch.ErrInvalidOption) {
				t.Errorf("Lock with a lease of -1: %v", err)
			}
		},
	})
}
