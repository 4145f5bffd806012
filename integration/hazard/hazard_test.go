package hazard

import (
	"context"
	"errors"
	"math"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
)

// A lease for ever is held, excludes, and lets those who wait sleep.
func TestLongestLease(t *testing.T) {
	s := server(t)
	c, other := dial(t, s.Addr()), dial(t, s.Addr())
	for _, kind := range kinds {
		t.Run(kind.name, func(t *testing.T) {
			for _, lease := range []time.Duration{math.MaxInt64, math.MaxInt64 - time.Millisecond, math.MaxInt64 / 2} {
				name := "long-" + kind.name
				h := take(t, t.Context(), kind.make(c, name), redlatch.WithLease(lease))
				if left := s.Int(t, "PTTL", name); left < 1<<40 {
					t.Fatalf("the key lasts for %d ms", left)
				}
				exclusive := kind.make(other, name)
				if kind.name == "read" {
					exclusive = other.ReadWriteLock(name).WriteLock()
				}
				before := s.CommandStats(t)
				h2, err := exclusive.TryLock(t.Context(), 300*time.Millisecond, 0)
				is(t, "the other's TryLock", err, redlatch.ErrNotAcquired)
				if err == nil {
					unlock(t, h2)
				}
				if n := s.CommandStats(t).Sub(before).Calls["evalsha"]; n > 10 {
					t.Errorf("%d commands to wait for 300 ms", n)
				}
				unlock(t, h)
				short := take(t, t.Context(), kind.make(c, name), redlatch.WithLease(time.Minute))
				if err := short.Extend(t.Context(), lease); err != nil {
					t.Fatal(err)
				}
				if left := s.Int(t, "PTTL", name); left < 1<<40 {
					t.Fatalf("the extended key lasts for %d ms", left)
				}
				unlock(t, short)
			}
		})
	}
}

// Who finds something else at the lock's key has lost the lock, whatever it does
// next, and leaves the other thing alone.
func TestKeyReplacedByAnotherType(t *testing.T) {
	s := server(t)
	c := dial(t, s.Addr(), leaseTime(time.Minute))
	for _, kind := range kinds {
		t.Run(kind.name, func(t *testing.T) {
			for _, step := range []struct {
				name string
				do   func(outer, inner redlatch.Hold, l redlatch.Locker) error
			}{
				{"partial release", func(_, inner redlatch.Hold, _ redlatch.Locker) error { return inner.Unlock(context.Background()) }},
				{"extend", func(outer, _ redlatch.Hold, _ redlatch.Locker) error {
					return outer.Extend(context.Background(), time.Hour)
				}},
				{"re-enter", func(outer, _ redlatch.Hold, l redlatch.Locker) error {
					_, err := l.TryLock(outer.Context(), 0, 0)
					return err
				}},
				{"last release", nil},
			} {
				l := kind.make(c, "replaced")
				outer := take(t, t.Context(), l)
				if step.do == nil {
					s.Do(t, "SET", "replaced", "text")
					is(t, step.name, outer.Unlock(context.Background()), redlatch.ErrLeaseLost)
				} else {
					inner := take(t, outer.Context(), l)
					s.Do(t, "SET", "replaced", "text")
					is(t, step.name, step.do(outer, inner, l), redlatch.ErrLeaseLost)
					select {
					case <-outer.Context().Done():
						is(t, step.name+": the outer context's cause", context.Cause(outer.Context()), redlatch.ErrLeaseLost)
					case <-time.After(time.Second):
						t.Errorf("%s: the outer hold's context does not end", step.name)
					}
					_ = inner.Unlock(context.Background())
					_ = outer.Unlock(context.Background())
				}
				if got := s.Text(t, "GET", "replaced"); got != "text" {
					t.Errorf("%s: the other thing became %q", step.name, got)
				}
				s.Do(t, "FLUSHALL")
			}
		})
	}
}

// Shutdown lets a writer that is inside read, too: it re-enters.
func TestShutdownLetsAWriterRead(t *testing.T) {
	s := server(t)
	c := dial(t, s.Addr())
	rw := c.ReadWriteLock("l")
	w := take(t, t.Context(), rw.WriteLock())
	done := make(chan error, 1)
	go func() { done <- c.Shutdown(context.Background()) }()
	eventually(t, "draining", func() bool {
		h, err := c.RLock("x").TryLock(context.Background(), 0, 0)
		if err == nil {
			unlock(t, h)
		}
		return err != nil
	})
	r, err := rw.ReadLock().TryLock(w.Context(), 0, 0)
	if err != nil {
		t.Errorf("read under the write lock while shutting down: %v", err)
	} else {
		unlock(t, r)
	}
	unlock(t, w)
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// A grant that is confirmed up to its lease does not lengthen a shorter fixed
// lease that re-entered it.
func TestConfirmationLeavesReentriesAlone(t *testing.T) {
	s := server(t)
	c := dial(t, s.Addr())
	f := c.FairLock("l")
	first := take(t, t.Context(), f)
	next := async(t.Context(), c.FairLock("l"))
	eventually(t, "a waiter", func() bool { return s.Int(t, "LLEN", "redisson_lock_queue:{l}") == 1 })
	unlock(t, first)
	outer := await(t, next).hold
	inner := take(t, outer.Context(), f, redlatch.WithLease(3*time.Second))
	ends := inner.ValidUntil()
	eventually(t, "the confirmation", func() bool { return time.Until(outer.ValidUntil()) > 10*time.Second })
	if d := inner.ValidUntil().Sub(ends); d > 0 {
		t.Errorf("the inner hold's lease became %v longer", d)
	}
	_ = inner.Unlock(context.Background())
	unlock(t, outer)
}

// While the server has no memory, whoever waits for a fair lock does not sleep past
// the end of the holder's lease: the lock is handed over, which takes no more memory
// than the place did, and is a lock like any other; or the waiter hears of it.
func TestFairWaiterHearsOfNoMemory(t *testing.T) {
	s := server(t)
	c := dial(t, s.Addr(), leaseTime(2*time.Second))
	holder := dial(t, s.Addr())
	h := take(t, t.Context(), holder.FairLock("l"), redlatch.WithLease(3*time.Second))
	waiting := async(t.Context(), c.FairLock("l"))
	eventually(t, "a waiter", func() bool { return s.Int(t, "LLEN", "redisson_lock_queue:{l}") == 1 })
	s.Do(t, "CONFIG", "SET", "maxmemory", "1")
	<-h.Context().Done()
	r := await(t, waiting)
	if r.err != nil {
		var server *redlatch.ServerError
		if !errors.As(r.err, &server) {
			t.Errorf("%v, want what the server says", r.err)
		}
		s.Do(t, "CONFIG", "SET", "maxmemory", "0")
		return
	}
	until := r.hold.ValidUntil()
	eventually(t, "a renewal", func() bool {
		return r.hold.ValidUntil().After(until.Add(2*time.Second)) || r.hold.Context().Err() != nil
	})
	unlock(t, take(t, r.hold.Context(), c.FairLock("l")))
	unlock(t, r.hold)
	s.Do(t, "CONFIG", "SET", "maxmemory", "0")
	if s.Int(t, "EXISTS", "l") != 0 {
		t.Error("the lock is not free")
	}
}

// Who waits for a fair lock is told when its key holds another type.
func TestFairWaiterHearsOfAnotherType(t *testing.T) {
	s := server(t)
	c := dial(t, s.Addr(), leaseTime(2*time.Second))
	h := take(t, t.Context(), c.FairLock("l"))
	waiting := async(t.Context(), c.FairLock("l"))
	eventually(t, "a waiter", func() bool { return s.Int(t, "LLEN", "redisson_lock_queue:{l}") == 1 })
	s.Do(t, "SET", "l", "text")
	r := await(t, waiting)
	if r.err == nil {
		t.Error("acquired")
	}
	t.Log(r.err)
	is(t, "Unlock", h.Unlock(context.Background()), redlatch.ErrLeaseLost)
	s.Do(t, "FLUSHALL")
}
