package integration

import (
	"errors"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/testbed"
)

// Leases on a real server: how long a lock is held, and what ends it. That the
// deadlines are exact is shown with a fake clock in internal/engine; here the
// lower bounds are strict and the upper ones leave room for a busy machine.

// rlSlack is the room for a busy machine, which may stand still for almost two seconds.
const rlSlack = 2500 * time.Millisecond

// rlExpiry asks the server when the key ends: not before low, not after high.
func rlExpiry(t *testing.T, s *testbed.Server, name string) (low, high time.Time) {
	t.Helper()
	before := time.Now()
	ttl := time.Duration(s.Int(t, "PTTL", name)) * time.Millisecond
	if ttl <= 0 {
		t.Fatalf("PTTL %v", ttl)
	}
	return before.Add(ttl - 2*time.Millisecond), time.Now().Add(ttl + 2*time.Millisecond)
}

// rlLost checks the end of a hold: its cause, its reason and what Unlock says.
func rlLost(t *testing.T, h redlatch.Hold, reason string) time.Time {
	t.Helper()
	at := rlEnded(t, h, redlatch.ErrLeaseLost)
	err := h.Unlock(t.Context())
	rlWant(t, err, redlatch.ErrLeaseLost)
	rlNoWant(t, err, redlatch.ErrNotHeld, redlatch.ErrClosed)
	var lost *redlatch.LeaseLostError
	if !errors.As(err, &lost) || string(lost.Reason) != reason || lost.Name != h.Name() || lost.Owner == "" {
		t.Fatalf("details %+v, want reason %q", lost, reason)
	}
	rlWant(t, h.Unlock(t.Context()), redlatch.ErrNotHeld)
	return at
}

// The watchdog keeps a hold for many leases; for ten of them with a clock that stands still
// while the machine is busy, see TestRenewalsTravelTogether in internal/engine.
func TestRLockWatchdogHoldsOverSixLeases(t *testing.T) {
	t.Parallel()
	s := rlServer(t)
	const lease = 5 * time.Second // no stall of the machine takes two thirds of it
	c := rlClient(t, s.Addr(), rlLease(lease))
	h := rlLock(t, t.Context(), c.RLock("l"))
	for end := time.Now().Add(6 * lease); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		rlAlive(t, h)
		if ttl := s.Int(t, "PTTL", "l"); ttl < 1 || ttl > lease.Milliseconds() {
			t.Fatalf("PTTL %d", ttl)
		}
	}
	rlUnlock(t, h)
	if s.Int(t, "EXISTS", "l") != 0 {
		t.Error("a renewal raced the unlock")
	}
}

// A fixed lease is not renewed: the hold ends when it is over, and then the next one enters.
func TestRLockFixedLeaseEndsOnTime(t *testing.T) {
	t.Parallel()
	s := rlServer(t)
	// A watchdog that would renew five times within the lease, if it did.
	const watched = 3 * time.Second
	c := rlClient(t, s.Addr(), rlLease(watched))
	l := c.RLock("l")
	// The lease of a fixed acquisition is not remembered by the next one.
	rlUnlock(t, rlLock(t, t.Context(), l, redlatch.WithLease(time.Hour)))
	const lease = 5 * time.Second
	began := time.Now()
	h := rlLock(t, t.Context(), l, redlatch.WithLease(lease))
	low, high := rlExpiry(t, s, "l")
	next := rlAsync(t.Context(), l)
	at := rlLost(t, h, "expired")
	if at.Before(began.Add(lease - lease/50)) {
		t.Errorf("the hold ended %v after it began, its lease is %v", at.Sub(began), lease)
	}
	if at.After(high.Add(rlSlack)) {
		t.Errorf("the hold ended %v after its lease", at.Sub(high))
	}
	r := rlGet(t, next)
	if r.err != nil {
		t.Fatal(r.err)
	}
	if r.at.Before(low) || r.at.After(high.Add(rlSlack)) {
		t.Errorf("the next one entered %v after the end of the lease", r.at.Sub(low))
	}
	// The late Unlock (in rlLost and here) does not touch the successor.
	rlWant(t, h.Unlock(t.Context()), redlatch.ErrNotHeld)
	if ttl := s.Int(t, "PTTL", "l"); rlCount(t, s, "l") != 1 || ttl > watched.Milliseconds() || ttl < 1 {
		t.Errorf("the successor's lock: count %d, PTTL %d", rlCount(t, s, "l"), ttl)
	}
	rlAlive(t, r.hold)
	rlUnlock(t, r.hold)
}

// A holder whose key is taken away on the server, by whatever, hears of it at the next check, and
// nothing is created or renewed by that.
func TestRLockKeyTakenAway(t *testing.T) {
	t.Parallel()
	const lease = 6 * time.Second // a stall of two thirds of it, a restart included, would make the loss an expiry
	for name, tc := range map[string]struct {
		take  func(t *testing.T, s *testbed.Server)
		after func(t *testing.T, s *testbed.Server)
	}{
		"deleted": {
			func(t *testing.T, s *testbed.Server) { t.Helper(); s.Do(t, "DEL", "l") },
			rlAbsent,
		},
		"another owner": {
			func(t *testing.T, s *testbed.Server) {
				t.Helper()
				s.Do(t, "MULTI")
				s.Do(t, "DEL", "l")
				s.Do(t, "HSET", "l", "00000000-0000-0000-0000-000000000000:1", "1")
				s.Do(t, "EXEC")
			},
			func(t *testing.T, s *testbed.Server) {
				t.Helper()
				if all := s.Hash(t, "HGETALL", "l"); len(all) != 1 || all["00000000-0000-0000-0000-000000000000:1"] != "1" || s.Int(t, "PTTL", "l") != -1 {
					t.Errorf("the other owner's lock was touched: %v", all)
				}
				s.Do(t, "DEL", "l")
			},
		},
		"another type": {
			func(t *testing.T, s *testbed.Server) { t.Helper(); s.Do(t, "SET", "l", "data") },
			func(t *testing.T, s *testbed.Server) {
				t.Helper()
				if s.Text(t, "GET", "l") != "data" || s.Int(t, "PTTL", "l") != -1 {
					t.Error("the key was touched")
				}
				s.Do(t, "DEL", "l")
			},
		},
		"flushed":         {func(t *testing.T, s *testbed.Server) { t.Helper(); s.Do(t, "FLUSHALL") }, rlAbsent},
		"evicted":         {rlEvict, rlAbsent},
		"restarted empty": {func(t *testing.T, s *testbed.Server) { t.Helper(); s.Restart(t, testbed.Empty) }, rlAbsent},
	} {
		for mode, opts := range map[string][]redlatch.AcquireOption{
			"watchdog": nil, "fixed": {redlatch.WithLease(time.Minute)},
		} {
			t.Run(name+"/"+mode, func(t *testing.T) {
				t.Parallel()
				s := rlServer(t)
				c := rlClient(t, s.Addr(), rlLease(lease))
				h := rlLock(t, t.Context(), c.RLock("l"), opts...)
				inner := rlLock(t, h.Context(), c.RLock("l"), opts...)
				tc.take(t, s)
				at := time.Now()
				ended := rlLost(t, h, "gone") // not "expired": found by a check
				if mode == "fixed" && ended.Sub(at) > lease/3+rlSlack {
					t.Errorf("noticed after %v", ended.Sub(at))
				}
				rlLost(t, inner, "gone")
				tc.after(t, s)
				rlUnlock(t, rlLock(t, t.Context(), c.RLock("l")))
			})
		}
	}
}

func rlAbsent(t *testing.T, s *testbed.Server) {
	t.Helper()
	if s.Int(t, "EXISTS", "l") != 0 {
		t.Error("the key was created again")
	}
}

func rlEvict(t *testing.T, s *testbed.Server) {
	t.Helper()
	s.Do(t, "CONFIG", "SET", "maxmemory-policy", "allkeys-random")
	s.Do(t, "CONFIG", "SET", "maxmemory", "1")
	rlUntil(t, "eviction", func() bool { return s.Int(t, "EXISTS", "l") == 0 })
	s.Do(t, "CONFIG", "SET", "maxmemory", "0")
}

// A key that was taken away is also noticed by Unlock, before any check.
func TestRLockUnlockOfATakenKey(t *testing.T) {
	s := rlServer(t)
	c := rlClient(t, s.Addr())
	for name, take := range map[string][]string{
		"deleted": {"DEL", "l"}, "replaced": {"SET", "l", "data"},
	} {
		h := rlLock(t, t.Context(), c.RLock("l"))
		s.Do(t, take...)
		err := h.Unlock(t.Context())
		if !errors.Is(err, redlatch.ErrLeaseLost) {
			t.Errorf("%s: Unlock says %v", name, err)
		}
		if h.Context().Err() == nil {
			t.Errorf("%s: the hold's context lives on", name)
		}
		s.Do(t, "DEL", "l")
	}
}
