package promises

import (
	"errors"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/integration/bed"
	"github.com/redlatch/redlatch/internal/testbed"
)

// A server that answers later than a short wait lasts is slow, and no outage: a call gets the lock, or hears that it
// did not.
func TestAShortWaitOnASlowServerIsNoOutage(t *testing.T) {
	t.Parallel()
	overKinds(t, nil, cases{
		"whose answers take 100 ms": func(t *testing.T, x *bed.Site, name string) {
			for _, p := range x.Proxies {
				p.Delay(testbed.Replies, 100*time.Millisecond)
			}
			for _, wait := range []time.Duration{5 * time.Millisecond, 20 * time.Millisecond, 60 * time.Millisecond} {
				h, err := x.Lock(name).TryLock(t.Context(), wait, 0)
				if err == nil {
					bed.Unlock(t, h)
				} else if !errors.Is(err, redlatch.ErrNotAcquired) || errors.Is(err, redlatch.ErrUnavailable) {
					t.Errorf("a wait of %v: %v", wait, err)
				}
			}
			for _, p := range x.Proxies {
				p.Delay(testbed.Replies, 0)
			}
		},
	})
}
