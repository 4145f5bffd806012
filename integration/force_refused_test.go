package integration

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/integration/bed"
)

// What a lock of that name would refuse, an operator's call refuses, too: {a} has the queue of a, so a forced unlock
// of it would hand a hold of {a} to the first waiter of a, which takes it for one of a.
func TestForceUnlockRefusesTheNamesThatLocksRefuse(t *testing.T) {
	s := bed.Server(t)
	c, ctx := rlClient(t, s.Addr()), t.Context()
	h := bed.Lock(t, ctx, c.FairLock("a"))
	waiting, stop := context.WithCancel(ctx)
	defer stop()
	second := bed.Async(waiting, c.FairLock("a"))
	inUntil(t, c, "a", func(in redlatch.Inspection) bool { return in.QueueLength == 1 })

	before := strings.Join(s.List(t, "KEYS", "*"), " ")
	for _, name := range []string{"{a}", "", "redisson_lock_queue:{a}", "a:rwlock_timeout:1", strings.Repeat("x", 1025)} {
		_, locked := c.RLock(name).TryLock(ctx, 0, 0)
		if !errors.Is(locked, redlatch.ErrInvalidName) {
			t.Fatalf("TryLock(%.20q): %v", name, locked)
		}
		if was, err := c.ForceUnlock(ctx, name); was || err == nil || err.Error() != locked.Error() {
			t.Errorf("ForceUnlock(%.20q): %v, %v; TryLock: %v", name, was, err, locked)
		}
		if in, err := c.Inspect(ctx, name); err == nil || err.Error() != locked.Error() {
			t.Errorf("Inspect(%.20q): %+v, %v; TryLock: %v", name, in, err, locked)
		}
	}
	rlBlocked(t, second)
	if after := strings.Join(s.List(t, "KEYS", "*"), " "); after != before {
		t.Errorf("keys before: %s\nafter: %s", before, after)
	}
	stop()
	if r := bed.Get(t, second); !errors.Is(r.Err, context.Canceled) {
		t.Errorf("the waiter: %v, %v", r.Hold, r.Err)
	}
	if err := h.Unlock(ctx); err != nil {
		t.Error(err)
	}
}

// What stands there is listed, also under a name that no lock of ours may have.
func TestLocksListsWhatStandsThere(t *testing.T) {
	s := bed.Server(t)
	c := rlClient(t, s.Addr())
	s.Do(t, "HSET", "{a}", "8743c9c0-0795-4907-87fd-6c719a6b4586:42", "1")
	t.Cleanup(func() { s.Do(t, "DEL", "{a}") })
	var names []string
	for in, err := range c.Locks(t.Context(), "") {
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, in.Name)
	}
	if len(names) != 1 || names[0] != "{a}" {
		t.Errorf("listed: %q", names)
	}
}

// A forced unlock by the object of another kind changes nothing: it was meant for another lock.
func TestForceUnlockOfAnotherKindChangesNothing(t *testing.T) {
	s := bed.Server(t)
	c, ctx := rlClient(t, s.Addr()), t.Context()
	plain, reads := bed.Lock(t, ctx, c.RLock("plain")), bed.Lock(t, ctx, c.ReadWriteLock("rw").ReadLock())
	fair := bed.Lock(t, ctx, c.FairLock("fair"))
	waiting, stop := context.WithCancel(ctx)
	defer stop()
	second := bed.Async(waiting, c.FairLock("fair"))
	inUntil(t, c, "fair", func(in redlatch.Inspection) bool { return in.Kind == redlatch.KindFair && in.QueueLength == 1 })
	for what, force := range map[string]func(context.Context) (bool, error){
		"ReadLock of a plain lock":      c.ReadWriteLock("plain").ReadLock().ForceUnlock,
		"WriteLock of a plain lock":     c.ReadWriteLock("plain").WriteLock().ForceUnlock,
		"ReadWriteLock of a plain lock": c.ReadWriteLock("plain").ForceUnlock,
		"ReadWriteLock of a fair lock":  c.ReadWriteLock("fair").ForceUnlock,
		"RLock of a read lock":          c.RLock("rw").ForceUnlock,
		"FairLock of a read lock":       c.FairLock("rw").ForceUnlock,
	} {
		var inv *redlatch.InvalidNameError
		if was, err := force(ctx); was || !errors.As(err, &inv) || !strings.Contains(inv.Reason, "its key is held as a ") {
			t.Errorf("%s: %v, %v", what, was, err)
		}
	}
	rlBlocked(t, second)
	stop()
	if r := bed.Get(t, second); !errors.Is(r.Err, context.Canceled) {
		t.Errorf("the waiter: %v, %v", r.Hold, r.Err)
	}
	for _, h := range []redlatch.Hold{plain, reads, fair} {
		if err := h.Unlock(ctx); err != nil {
			t.Errorf("%s: %v", h.Name(), err)
		}
	}
}

// A read-write lock's own ForceUnlock ends whatever is held, and lets in who waits.
func TestForceUnlockOfAReadWriteLockInEveryMode(t *testing.T) {
	s := bed.Server(t)
	a, b, ctx := rlClient(t, s.Addr()), rlClient(t, s.Addr()), t.Context()
	l := a.ReadWriteLock("l")
	for name, take := range map[string]func() []redlatch.Hold{
		"readers": func() []redlatch.Hold {
			return []redlatch.Hold{bed.Lock(t, ctx, l.ReadLock()), bed.Lock(t, ctx, b.ReadWriteLock("l").ReadLock())}
		},
		"a writer": func() []redlatch.Hold { return []redlatch.Hold{bed.Lock(t, ctx, l.WriteLock())} },
		"a writer that reads": func() []redlatch.Hold {
			w := bed.Lock(t, ctx, l.WriteLock())
			return []redlatch.Hold{w, bed.Lock(t, w.Context(), l.ReadLock())}
		},
	} {
		t.Run(name, func(t *testing.T) {
			holds := take()
			next := bed.Async(ctx, b.ReadWriteLock("l").WriteLock())
			inUntil(t, b, "l", func(in redlatch.Inspection) bool { return in.QueueLength == 1 })
			if was, err := l.ForceUnlock(ctx); !was || err != nil {
				t.Fatalf("%v, %v", was, err)
			}
			r := bed.Get(t, next)
			if r.Err != nil {
				t.Fatal(r.Err)
			}
			for _, h := range holds {
				if err := h.Unlock(ctx); !errors.Is(err, redlatch.ErrLeaseLost) {
					t.Errorf("the evicted one's unlock: %v", err)
				}
			}
			if err := r.Hold.Unlock(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	if was, err := l.ForceUnlock(ctx); was || err != nil {
		t.Errorf("of a free lock: %v, %v", was, err)
	}
	if was, err := a.ReadWriteLock("{l}").ForceUnlock(ctx); was || !errors.Is(err, redlatch.ErrInvalidName) {
		t.Errorf("of a bad name: %v, %v", was, err)
	}
}

// IfOwner of an empty text, say of a variable that was never set, evicts nobody, rather than everybody.
func TestIfOwnerOfNobodyEvictsNobody(t *testing.T) {
	s := bed.Server(t)
	c, ctx := rlClient(t, s.Addr()), t.Context()
	h := bed.Lock(t, ctx, c.RLock("l"))
	var inv *redlatch.InvalidOptionError
	if was, err := c.ForceUnlock(ctx, "l", redlatch.IfOwner("")); was || !errors.As(err, &inv) || inv.Option != "IfOwner" {
		t.Errorf("ForceUnlock: %v, %v", was, err)
	}
	if err := h.Unlock(ctx); err != nil {
		t.Errorf("the holder's unlock: %v", err)
	}
}
