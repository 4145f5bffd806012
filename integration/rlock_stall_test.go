package integration

import (
	"fmt"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/integration/bed"
	"github.com/redlatch/redlatch/internal/testbed"
)

// A server or a client that gets little time, or a slow network, costs no lock:
// who is slow is not gone.

// Answers that all take a seventh of the lease lose nothing. A client that took the connection for
// broken would close it, and each next one too, and lose every lock on a healthy server.
func TestRLockSlowAnswersLoseNothing(t *testing.T) {
	t.Parallel()
	const lease = 16 * time.Second // a quarter of it is silence: this machine may take over a second of that
	s := bed.Loaded(t)
	p := testbed.NewProxy(t, s.Addr())
	c := rlClient(t, p.Addr(), redlatch.WithLeaseTime(lease), redlatch.WithUnlockTimeout(bed.Patience))
	holds := make([]redlatch.Hold, 20)
	for i := range holds {
		holds[i] = bed.Lock(t, t.Context(), c.RLock(fmt.Sprintf("l%d", i)))
	}
	_, before := p.Connections()
	p.Delay(testbed.Replies, lease/7)
	for end := time.Now().Add(lease + lease/4); time.Now().Before(end); time.Sleep(lease / 40) {
		for _, h := range holds {
			bed.Alive(t, h)
		}
	}
	_, after := p.Connections()
	testbed.Equal(t, after, before, "connections that were made")
	bed.Unlock(t, bed.Lock(t, t.Context(), c.RLock("other")))
	p.Delay(testbed.Replies, 0)
	bed.Unlock(t, holds...)
}

// The first answers of a new connection are as late as those of the old one: it is not
// given up for that.
func TestRLockConnectsAgainThoughAnswersAreLate(t *testing.T) {
	t.Parallel()
	const lease = 20 * time.Second // a quarter of it is silence, and this machine may take 1.5 s of that
	s := bed.Loaded(t)
	p := testbed.NewProxy(t, s.Addr())
	c := rlClient(t, p.Addr(), redlatch.WithLeaseTime(lease), redlatch.WithUnlockTimeout(bed.Patience), func(c *redlatch.Config) {
		c.Redis.ConnWriteTimeout = lease / 4 // by default 4 s at most
	})
	h := bed.Lock(t, t.Context(), c.RLock("l"))
	valid := h.ValidUntil()
	p.Delay(testbed.Replies, lease/6+lease/200)
	p.Cut()
	bed.Unlock(t, bed.Lock(t, t.Context(), c.RLock("other")))
	bed.Eventually(t, "a renewal", func() bool {
		bed.Alive(t, h)
		return h.ValidUntil().After(valid)
	})
	p.Delay(testbed.Replies, 0)
	bed.Unlock(t, h)
}

// A server that stands still for more than a third of the lease, again and again and at any moment
// of a renewal's cycle, loses nothing.
func TestRLockFrozenServerLosesNothing(t *testing.T) {
	t.Parallel()
	const lease = 9 * time.Second // of which 2.4 s are left after a third of it and four tenths
	s := bed.Server(t)
	c := rlClient(t, s.Addr(), redlatch.WithLeaseTime(lease))
	holds := make([]redlatch.Hold, 200) // their renewals are spread: some are under way, some due, some just done
	for i := range holds {
		holds[i] = bed.Lock(t, t.Context(), c.RLock(fmt.Sprintf("l%d", i)))
	}
	for range 4 {
		s.Freeze(t)
		time.Sleep(lease * 4 / 10)
		s.Thaw(t)
		bed.Eventually(t, "the renewal of all", func() bool {
			for _, h := range holds {
				bed.Alive(t, h)
				if time.Until(h.ValidUntil()) < lease*6/10 {
					return false
				}
			}
			return true
		})
	}
	bed.Unlock(t, holds...)
}
