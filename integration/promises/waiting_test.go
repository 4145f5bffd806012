package promises

import (
	"errors"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/integration/bed"
)

// Who waits is woken, whatever frees the lock, long before a lease would have ended; who waits for
// a limited time waits that long.
func TestAWaiterIsWoken(t *testing.T) {
	t.Parallel()
	cases := map[string]func(t *testing.T, x *bed.Site, name string){
		"a wait that ends says who holds the lock": func(t *testing.T, x *bed.Site, name string) {
			before := bed.Lock(t, t.Context(), x.Beside(name))
			const wait = 200 * time.Millisecond
			began := time.Now()
			_, err := x.Lock(name).TryLock(t.Context(), wait, 0)
			if took := time.Since(began); took < wait || took > wait+slack {
				t.Errorf("a wait of %v took %v", wait, took)
			}
			busy, is := errors.AsType[*redlatch.NotAcquiredError](err)
			if !is || !errors.Is(err, redlatch.ErrNotAcquired) || busy.Holder == "" || busy.Remaining <= 0 {
				t.Errorf("TryLock: %+v", err)
			}
			bed.Unlock(t, before)
		},
	}
	for what, free := range map[string]func(t *testing.T, x *bed.Site, name string, h redlatch.Hold){
		"unlocked": func(t *testing.T, _ *bed.Site, _ string, h redlatch.Hold) { bed.Unlock(t, h) },
		"forced open": func(t *testing.T, x *bed.Site, name string, _ redlatch.Hold) {
			forceOpen(t, x, name)
		},
		"unlocked, and the message is lost": func(t *testing.T, x *bed.Site, _ string, h redlatch.Hold) {
			for _, s := range x.Servers {
				s.Do(t, "CLIENT", "KILL", "TYPE", "pubsub")
			}
			bed.Unlock(t, h)
		},
		"unlocked while the scripts are gone": func(t *testing.T, x *bed.Site, _ string, h redlatch.Hold) {
			for _, s := range x.Servers {
				s.Do(t, "SCRIPT", "FLUSH")
			}
			bed.Unlock(t, h)
		},
	} {
		cases["it is "+what] = func(t *testing.T, x *bed.Site, name string) {
			before := bed.Lock(t, t.Context(), x.Beside(name))
			asked := x.Asked(t, name)
			got := bed.Async(t.Context(), x.Lock(name))
			asked()
			free(t, x, name, before)
			a := bed.Get(t, got)
			if a.Err != nil {
				t.Fatalf("Lock: %v", a.Err)
			}
			refused(t, x.Beside(name))
			bed.Unlock(t, a.Hold)
			_ = before.Unlock(t.Context()) // it was forced open, or is unlocked
		}
	}
	overKinds(t, nil, cases)
}
