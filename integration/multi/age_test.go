package multi

import (
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/integration/bed"
	"github.com/redlatch/redlatch/internal/testbed"
)

// TestLongLeaseOfAQuorum: who asks for a lease that is longer than LeaseTime, and then stands still,
// does not hold the lock any more when others count a server that has forgotten it.
func TestLongLeaseOfAQuorum(t *testing.T) {
	t.Parallel()
	const leaseTime = 4 * time.Second
	list := servers(t, 3)
	proxies, through := make([]*testbed.Proxy, 3), make([]string, 3)
	for i, s := range list {
		proxies[i] = testbed.NewProxy(t, s.Addr())
		through[i] = proxies[i].Addr()
	}
	q := redlatch.QuorumLock(copies(clients(t, through, lease(leaseTime)), "q")...)
	o := redlatch.QuorumLock(copies(clients(t, addrs(list), lease(leaseTime)), "q")...)
	bed.Unlock(t, bed.Lock(t, t.Context(), q)) // both know the servers
	bed.Unlock(t, bed.Lock(t, t.Context(), o))
	busy := bed.Lock(t, t.Context(), bed.Client(t, list[2].Addr()).RLock("q"))
	first := bed.Lock(t, t.Context(), q, redlatch.WithLease(5*leaseTime)) // on 0 and 1
	bed.Unlock(t, busy)
	for _, p := range proxies {
		p.Pause(testbed.Requests)
	}
	list[1].Kill(t)
	list[1].Restart(t, testbed.Empty) // it has forgotten the lock

	second := bed.Lock(t, t.Context(), o)
	if first.Context().Err() == nil {
		t.Errorf("two holders, the first for %v from now", time.Until(first.ValidUntil()))
	}
	bed.Unlock(t, second)
	want(t, ended(t, first), redlatch.ErrLeaseLost)
	for _, p := range proxies {
		p.Resume(testbed.Requests)
	}
	want(t, first.Unlock(t.Context()), redlatch.ErrLeaseLost)
}

// TestQuorumKeepsALongLease: a fixed lease beyond LeaseTime is renewed up to its end, a part at a time,
// also one that a re-entry or Extend asked for. Then it ends as planned.
func TestQuorumKeepsALongLease(t *testing.T) {
	t.Parallel()
	const leaseTime, long = 3 * time.Second, 8 * time.Second
	list := servers(t, 3)
	cs := clients(t, addrs(list), lease(leaseTime))
	ttl := func(name string) {
		t.Helper()
		for _, s := range list {
			if ms := s.Int(t, "PTTL", name); ms > leaseTime.Milliseconds() {
				t.Errorf("%s: a TTL of %d ms, LeaseTime is %v", name, ms, leaseTime)
			}
		}
	}
	began := time.Now()
	fixed := bed.Lock(t, t.Context(), redlatch.QuorumLock(copies(cs, "fixed")...), redlatch.WithLease(long))
	extended := bed.Lock(t, t.Context(), redlatch.QuorumLock(copies(cs, "extended")...), redlatch.WithLease(leaseTime/2))
	if err := extended.Extend(t.Context(), long); err != nil {
		t.Fatal(err)
	}
	outer := bed.Lock(t, t.Context(), redlatch.QuorumLock(copies(cs, "again")...))
	again := bed.Lock(t, outer.Context(), redlatch.QuorumLock(copies(cs, "again")...), redlatch.WithLease(long))
	asked := time.Now()
	for time.Since(began) < long*2/3 {
		for _, name := range []string{"fixed", "extended", "again"} {
			ttl(name)
		}
		time.Sleep(leaseTime / 10)
	}
	holds := map[string]redlatch.Hold{"fixed": fixed, "extended": extended, "again": again}
	for name, h := range holds {
		if h.Context().Err() != nil {
			t.Errorf("%s: it ended %v before its end", name, long-time.Since(began))
		}
	}
	for name, h := range holds {
		want(t, ended(t, h), redlatch.ErrLeaseLost)
		if now := time.Now(); now.Before(began.Add(long-long/20)) || now.After(asked.Add(long+leaseTime)) {
			t.Errorf("%s: it ended %v after its beginning, it was to last for %v", name, now.Sub(began), long)
		}
	}
	for _, s := range list {
		becomesFree(t, s, "fixed", "extended")
	}
	if outer.Context().Err() != nil {
		t.Error("the outer hold ended with the lease of the inner one")
	}
	want(t, again.Unlock(t.Context()), redlatch.ErrLeaseLost)
	bed.Unlock(t, outer)
}
