package integration

import (
	"errors"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/integration/bed"
	"github.com/redlatch/redlatch/internal/testbed"
)

// A forced unlock takes away whatever kind of lock stands there, and lets in who waits, long before
// a lease could end.
func TestForceUnlockOfWhateverKind(t *testing.T) {
	s := bed.Server(t)
	a, b, op := rlClient(t, s.Addr()), rlClient(t, s.Addr()), rlClient(t, s.Addr())
	ctx := t.Context()
	for _, tc := range []struct {
		name       string
		hold, wait redlatch.Locker
	}{
		{"plain", a.RLock("plain"), b.RLock("plain")},
		{"fair", a.FairLock("fair"), b.FairLock("fair")},
		{"write-read", a.ReadWriteLock("wr").WriteLock(), b.ReadWriteLock("wr").ReadLock()},
		{"write-write", a.ReadWriteLock("ww").WriteLock(), b.ReadWriteLock("ww").WriteLock()},
		{"read-write", a.ReadWriteLock("rw").ReadLock(), b.ReadWriteLock("rw").WriteLock()},
	} {
		t.Run(tc.name, func(t *testing.T) {
			name := tc.hold.(interface{ Name() string }).Name()
			h := bed.Lock(t, ctx, tc.hold)
			got := bed.Async(ctx, tc.wait)
			in := inUntil(t, op, name, func(in redlatch.Inspection) bool {
				return in.Processes == 1 && (in.Kind == redlatch.KindPlain || in.QueueLength == 1)
			})
			owner := in.Holders[0].Owner

			var other *redlatch.OtherOwnerError
			was, err := op.ForceUnlock(ctx, name, redlatch.IfOwner(owner+"x"))
			if was || !errors.Is(err, redlatch.ErrOtherOwner) || !errors.As(err, &other) || other.Holder != owner || other.Name != name {
				t.Fatalf("another owner: %v, %v", was, err)
			}
			if in := inLook(t, op, name); in.HolderCount != 1 || in.Holders[0].Owner != owner {
				t.Fatalf("after a refusal: %+v", in)
			}
			was, err = op.ForceUnlock(ctx, name, redlatch.IfOwner(owner))
			if !was || err != nil {
				t.Fatalf("%v, %v", was, err)
			}
			r := bed.Get(t, got)
			if r.Err != nil {
				t.Fatal(r.Err)
			}
			if in := inLook(t, op, name); in.HolderCount != 1 || in.Holders[0].ClientID != b.ID() {
				t.Fatalf("after it: %+v", in)
			}
			// A second command for the first owner finds the next holder, and leaves it.
			if was, err := op.ForceUnlock(ctx, name, redlatch.IfOwner(owner)); was || !errors.Is(err, redlatch.ErrOtherOwner) {
				t.Errorf("again: %v, %v", was, err)
			}
			if err := h.Unlock(ctx); !errors.Is(err, redlatch.ErrLeaseLost) {
				t.Errorf("the evicted one's unlock: %v", err)
			}
			if err := r.Hold.Unlock(ctx); err != nil {
				t.Error(err)
			}
			if was, err := op.ForceUnlock(ctx, name, redlatch.IfOwner(owner)); was || err != nil {
				t.Errorf("of a free lock: %v, %v", was, err)
			}
		})
	}
}

// One of several readers is evicted, the others stay; the lock lasts as long as they
// need, no longer.
func TestForceUnlockOfOneReader(t *testing.T) {
	s := bed.Server(t)
	a, b, ctx := rlClient(t, s.Addr()), rlClient(t, s.Addr()), t.Context()
	long := bed.Lock(t, ctx, a.ReadWriteLock("rw").ReadLock(), redlatch.WithLease(time.Hour))
	short := bed.Lock(t, ctx, b.ReadWriteLock("rw").ReadLock(), redlatch.WithLease(20*time.Second))
	in := inLook(t, a, "rw")
	if in.HolderCount != 2 || in.Remaining < 59*time.Minute {
		t.Fatalf("%+v", in)
	}
	owner := in.Holders[0].Owner
	if in.Holders[0].ClientID != a.ID() {
		owner = in.Holders[1].Owner
	}
	if was, err := b.ForceUnlock(ctx, "rw", redlatch.IfOwner(owner)); !was || err != nil {
		t.Fatalf("%v, %v", was, err)
	}
	in = inLook(t, a, "rw")
	if in.HolderCount != 1 || in.Holders[0].ClientID != b.ID() || in.Remaining > 20*time.Second || in.Remaining < 10*time.Second {
		t.Errorf("%+v", in)
	}
	if err := long.Unlock(ctx); !errors.Is(err, redlatch.ErrLeaseLost) {
		t.Error(err)
	}
	if err := short.Unlock(ctx); err != nil {
		t.Error(err)
	}
}

// A DEL by hand tells nobody; a forced unlock of the free lock wakes who waits.
func TestForceUnlockAfterDelByHand(t *testing.T) {
	s := bed.Server(t)
	p := testbed.NewProxy(t, s.Addr())
	a, b, ctx := rlClient(t, s.Addr()), rlClient(t, p.Addr()), t.Context()
	for name, l := range map[string][2]redlatch.Locker{
		"plain": {a.RLock("plain"), b.RLock("plain")},
		"rw":    {a.ReadWriteLock("rw").WriteLock(), b.ReadWriteLock("rw").WriteLock()},
	} {
		h := bed.Lock(t, ctx, l[0], redlatch.WithLease(10*time.Minute))
		got := bed.Async(ctx, l[1])
		inUntil(t, a, name, func(in redlatch.Inspection) bool { return in.Processes == 1 })
		p.Pause(testbed.Requests) // else it could look just after the DEL, as it does when it has subscribed
		s.Do(t, "DEL", name)
		if was, err := a.ForceUnlock(ctx, name); was || err != nil {
			t.Fatalf("%v, %v", was, err)
		}
		p.Resume(testbed.Requests)
		r := bed.Get(t, got)
		if r.Err != nil {
			t.Fatal(r.Err)
		}
		if err := h.Unlock(ctx); !errors.Is(err, redlatch.ErrLeaseLost) {
			t.Error(err)
		}
		if err := r.Hold.Unlock(ctx); err != nil {
			t.Error(err)
		}
	}
}

// Who frees a lock by hand as docs/OPERATIONS.md says, by a DEL and a message, lets in who waits at
// once.
func TestFreeingByHand(t *testing.T) {
	s := bed.Server(t)
	a, b, ctx := rlClient(t, s.Addr()), rlClient(t, s.Addr()), t.Context()
	for _, tc := range []struct {
		name       string
		hold, wait redlatch.Locker
		commands   [][]string
	}{
		{"plain", a.RLock("plain"), b.RLock("plain"), [][]string{{"DEL", "plain"}, {"PUBLISH", "redisson_lock__channel:{plain}", "0"}}},
		{"fair", a.FairLock("fair"), b.FairLock("fair"), [][]string{{"DEL", "fair"}}},
		{"rw", a.ReadWriteLock("rw").WriteLock(), b.ReadWriteLock("rw").ReadLock(), [][]string{{"DEL", "rw", "redlatch_rw_leases:{rw}"}, {"PUBLISH", "redisson_rwlock:{rw}", "1"}}},
		{"rw2", a.ReadWriteLock("rw2").ReadLock(), b.ReadWriteLock("rw2").WriteLock(), [][]string{{"DEL", "rw2", "redlatch_rw_leases:{rw2}"}, {"PUBLISH", "redisson_rwlock:{rw2}", "1"}}},
	} {
		h := bed.Lock(t, ctx, tc.hold, redlatch.WithLease(10*time.Minute))
		got := bed.Async(ctx, tc.wait)
		inUntil(t, a, tc.name, func(in redlatch.Inspection) bool { return in.Processes == 1 })
		for _, c := range tc.commands {
			s.Do(t, c...)
		}
		r := bed.Get(t, got)
		if r.Err != nil {
			t.Fatal(r.Err)
		}
		if err := h.Unlock(ctx); !errors.Is(err, redlatch.ErrLeaseLost) {
			t.Error(err)
		}
		if err := r.Hold.Unlock(ctx); err != nil {
			t.Error(err)
		}
	}
}

// A read lock without a TTL (an operator's PERSIST): who is not evicted keeps it.
func TestForceUnlockOfOneReaderOfALockWithoutTTL(t *testing.T) {
	s := bed.Server(t)
	a, b, op := rlClient(t, s.Addr()), rlClient(t, s.Addr()), rlClient(t, s.Addr())
	const name = "persisted"
	h := bed.Lock(t, t.Context(), a.ReadWriteLock(name).ReadLock())
	owner := inLook(t, op, name).Holders[0].Owner
	stays := bed.Lock(t, t.Context(), b.ReadWriteLock(name).ReadLock())
	s.Do(t, "PERSIST", name)
	if was, err := op.ForceUnlock(t.Context(), name, redlatch.IfOwner(owner)); !was || err != nil {
		t.Fatalf("%v, %v", was, err)
	}
	if ttl := s.Int(t, "PTTL", name); ttl != -1 && ttl < 10_000 {
		t.Errorf("PTTL %d: a writer enters beside the reader; the reader's context: %v", ttl, stays.Context().Err())
	}
	_, _ = h.Unlock(t.Context()), stays.Unlock(t.Context())
}
