package clock

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/integration/bed"
	"github.com/redlatch/redlatch/internal/testbed"
)

// copies are the copies of one lock, of a process of its own: on each address one.
func copies(t *testing.T, leaseTime time.Duration, addrs ...string) []redlatch.Member {
	t.Helper()
	out := make([]redlatch.Member, len(addrs))
	for i, addr := range addrs {
		out[i] = bed.Client(t, addr, func(c *redlatch.Config) { c.LeaseTime = leaseTime }).RLock("q")
	}
	return out
}

// three are servers of copies.
func three(t *testing.T) (servers []*server, addrs []string) {
	t.Helper()
	for range 3 {
		s := start(t)
		servers, addrs = append(servers, s), append(addrs, s.Addr())
	}
	return servers, addrs
}

// What a restarted server says of its age counts for no quorum when its clock has been set forward,
// as NTP does after a boot: it has forgotten a lock that is held all the same.
func TestQuorumRestartAndStep(t *testing.T) {
	const leaseTime = 30 * time.Second // the hold outlives what follows
	list, addrs := three(t)
	proxy := testbed.NewProxy(t, addrs[1])
	holder := redlatch.QuorumLock(copies(t, leaseTime, addrs[0], proxy.Addr(), addrs[2])...)
	other := redlatch.QuorumLock(copies(t, leaseTime, addrs...)...)
	for _, q := range []redlatch.Locker{holder, other} { // both know the servers from here on
		bed.Unlock(t, bed.Lock(t, t.Context(), q))
	}
	busy := bed.Lock(t, t.Context(), copies(t, leaseTime, addrs[2])[0])
	first := bed.Lock(t, t.Context(), holder) // on 0 and 1
	bed.Unlock(t, busy)
	proxy.Pause(testbed.Requests) // its holder does not hear that 1 has forgotten it
	list[1].Kill(t)
	list[1].Restart(t, testbed.Empty)
	list[1].step(t, time.Hour)

	for name, q := range map[string]redlatch.Locker{
		"who knew the servers": other, "who starts just now": redlatch.QuorumLock(copies(t, leaseTime, addrs...)...),
	} {
		second, err := q.TryLock(t.Context(), 0, 0)
		switch {
		case first.Context().Err() != nil:
			t.Fatal("the first hold has ended: the test tests nothing")
		case err == nil:
			t.Errorf("%s: two holders, the first for %v from now", name, time.Until(first.ValidUntil()))
			_ = second.Unlock(context.Background())
		case !errors.Is(err, redlatch.ErrNotAcquired) && !errors.Is(err, redlatch.ErrUnavailable):
			t.Errorf("%s: %v", name, err)
		}
	}
	proxy.Resume(testbed.Requests)
	_ = first.Unlock(context.Background()) // it lost server 1 and with it the majority
}

// A server that restarts, and whose clock is then set back, counts for a quorum as soon as a client
// has watched it for a lease, though it has been up for less than nothing.
func TestQuorumCountsAServerWhoseClockIsBehind(t *testing.T) {
	const leaseTime = 4 * time.Second
	list, addrs := three(t)
	q := redlatch.QuorumLock(copies(t, leaseTime, addrs...)...)
	bed.Unlock(t, bed.Lock(t, t.Context(), q))
	list[1].Kill(t)
	restarted := time.Now()
	list[1].Restart(t, testbed.Empty)
	list[1].step(t, -time.Hour)
	list[2].Kill(t)
	bed.Unlock(t, bed.Lock(t, t.Context(), q))
	testbed.AtLeast(t, time.Since(restarted), leaseTime, "a restarted server counted after")
}
