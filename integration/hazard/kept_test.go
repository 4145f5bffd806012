package hazard

import (
	"context"
	"errors"
	"maps"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/fairlock"
	"github.com/redlatch/redlatch/internal/testbed"
)

// reenterAll lets goroutines of a hold's owner re-enter without a pause until stop.
func reenterAll(t *testing.T, h redlatch.Hold, l redlatch.Locker, stop <-chan struct{}, opts ...redlatch.AcquireOption) (wait func() int64) {
	t.Helper()
	var wg sync.WaitGroup
	var n atomic.Int64
	for range 3 {
		wg.Go(func() {
			for h.Context().Err() == nil {
				select {
				case <-stop:
					return
				default:
				}
				inner, err := l.Lock(h.Context(), opts...)
				if err != nil {
					t.Errorf("re-entry: %v", err)
					return
				}
				n.Add(1)
				ends := inner.ValidUntil()
				err = inner.Unlock(context.Background())
				if errors.Is(err, redlatch.ErrLeaseLost) && time.Now().After(ends) && h.Context().Err() == nil {
					continue // a busy machine: its own short lease was over
				}
				if err != nil {
					t.Errorf("inner Unlock: %v", err)
					return
				}
			}
		})
	}
	return func() int64 { wg.Wait(); return n.Load() }
}

// Renewal never waits behind callers: goroutines of one owner that re-enter without
// a pause, so that a command of theirs is always under way, cost it no hold. Their
// leases are too short to keep it; and a writer's reads are holds of their own, which
// don't keep its write hold, whatever their leases.
func TestReenteringInALoopKeepsTheHold(t *testing.T) {
	s := server(t)
	loop := func(kind string, outer, inner func(c *redlatch.Client, name string) redlatch.Locker, opts ...redlatch.AcquireOption) {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			const lease = 1500 * time.Millisecond
			c := dial(t, s.Addr(), leaseTime(lease))
			name := "loop-" + kind
			h := take(t, t.Context(), outer(c, name))
			stop := make(chan struct{})
			wait := reenterAll(t, h, inner(c, name), stop, opts...)
			select {
			case <-h.Context().Done():
				t.Errorf("the hold was lost: %v", context.Cause(h.Context()))
			case <-time.After(3 * lease):
			}
			close(stop)
			t.Logf("%d re-entries", wait())
			unlock(t, h)
		})
	}
	for _, kind := range kinds {
		loop(kind.name, kind.make, kind.make, redlatch.WithLease(100*time.Millisecond))
	}
	loop("write, reads inside",
		func(c *redlatch.Client, name string) redlatch.Locker { return c.ReadWriteLock(name).WriteLock() },
		func(c *redlatch.Client, name string) redlatch.Locker { return c.ReadWriteLock(name).ReadLock() })
}

// A hold of a fair lock that was handed over, and is confirmed by the watchdog alone, lasts as long
// as it was asked for while its owner re-enters in a loop.
func TestReenteringInALoopKeepsAGrant(t *testing.T) {
	s := server(t)
	for name, opts := range map[string][]redlatch.AcquireOption{"fixed": {redlatch.WithLease(time.Minute)}, "renewed": nil} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, other := dial(t, s.Addr()), dial(t, s.Addr())
			const skip = 2 * time.Second
			l := c.FairLock(name, fairlock.WithSkipAfter(skip))
			first := take(t, t.Context(), other.FairLock(name))
			waiting := async(t.Context(), l, opts...)
			eventually(t, "a waiter", func() bool { return s.Int(t, "LLEN", "redisson_lock_queue:{"+name+"}") == 1 })
			unlock(t, first)
			r := await(t, waiting)
			if r.err != nil {
				t.Fatal(r.err)
			}
			stop := make(chan struct{})
			wait := reenterAll(t, r.hold, l, stop, redlatch.WithLease(100*time.Millisecond))
			select {
			case <-r.hold.Context().Done():
				t.Errorf("the hold was lost: %v", context.Cause(r.hold.Context()))
			case <-time.After(2 * skip):
			}
			close(stop)
			t.Logf("%d re-entries", wait())
			unlock(t, r.hold)
		})
	}
}

// Holds of every kind live on, can be extended and re-entered, and are given back,
// while the server has no memory.
func TestHoldsLiveWithoutMemory(t *testing.T) {
	s := server(t)
	const lease = 1500 * time.Millisecond
	c := dial(t, s.Addr(), leaseTime(lease))
	var locks []redlatch.Locker
	var holds []redlatch.Hold
	for _, kind := range kinds {
		l := kind.make(c, "oom-"+kind.name)
		warm(t, l)
		locks, holds = append(locks, l), append(holds, take(t, t.Context(), l))
	}
	s.Do(t, "CONFIG", "SET", "maxmemory", "1")
	defer s.Do(t, "CONFIG", "SET", "maxmemory", "0")
	for end := time.Now().Add(2 * lease); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		for i, h := range holds {
			if h.Context().Err() != nil {
				t.Fatalf("%s: %v", kinds[i].name, context.Cause(h.Context()))
			}
		}
	}
	for i, h := range holds {
		if err := h.Extend(t.Context(), time.Minute); err != nil {
			t.Errorf("%s: Extend: %v", kinds[i].name, err)
		}
		if left := time.Until(h.ValidUntil()); left < 50*time.Second {
			t.Errorf("%s: extended, it counts for %v", kinds[i].name, left)
		}
		if left := lasts(t, s, "oom-"+kinds[i].name); left < time.Until(h.ValidUntil()) {
			t.Errorf("%s: the key lasts for %v, less than the hold", kinds[i].name, left)
		}
		unlock(t, take(t, h.Context(), locks[i]))
		unlock(t, h)
		if s.Int(t, "EXISTS", "oom-"+kinds[i].name) != 0 {
			t.Errorf("%s: not free", kinds[i].name)
		}
	}
}

// A key that holds an application's data is a bad name, said at once whatever its
// size, and is left alone; nobody is told that it is busy.
func TestApplicationDataIsNoLock(t *testing.T) {
	s := server(t)
	c := dial(t, s.Addr())
	args := []string{"HSET", "data"}
	for i := range 20_000 {
		args = append(args, "field"+strconv.Itoa(i), "1")
	}
	s.Do(t, args...)
	s.Do(t, "SET", "text", "x")
	s.Do(t, "HSET", "one", "name", "1")
	for _, key := range []string{"data", "text", "one"} {
		before := content(t, s, key)
		for _, kind := range kinds {
			l := kind.make(c, key)
			r := await(t, async(t.Context(), l))
			is(t, kind.name+" of "+key, r.err, redlatch.ErrInvalidName)
			_, err := l.TryLock(t.Context(), time.Minute, 0)
			is(t, kind.name+" of "+key, err, redlatch.ErrInvalidName)
		}
		if !maps.Equal(content(t, s, key), before) {
			t.Errorf("%q was touched", key)
		}
		s.Do(t, "DEL", key)
	}
}

func content(t *testing.T, s *testbed.Server, key string) map[string]string {
	t.Helper()
	if s.Text(t, "TYPE", key) == "hash" {
		return s.Hash(t, "HGETALL", key)
	}
	return map[string]string{"": s.Text(t, "GET", key)}
}

// A re-entry whose answer is lost while the client shuts down goes on: what is held
// may be re-entered until Close.
func TestReentryDuringShutdownWithALostReply(t *testing.T) {
	s := server(t)
	for _, kind := range kinds {
		t.Run(kind.name, func(t *testing.T) {
			p := testbed.NewProxy(t, s.Addr())
			c := dial(t, p.Addr())
			l := kind.make(c, "down-"+kind.name)
			warm(t, l)
			h := take(t, t.Context(), l)
			done := make(chan error, 1)
			go func() { done <- c.Shutdown(context.Background()) }()
			eventually(t, "draining", func() bool {
				x, err := c.RLock("x-"+kind.name).TryLock(context.Background(), 0, 0)
				if err == nil {
					unlock(t, x)
				}
				return err != nil
			})
			trap := p.DropReply(reenters)
			r := await(t, async(h.Context(), l))
			trap.Wait(t)
			if r.err != nil {
				t.Errorf("re-entry: %v", r.err)
			} else {
				unlock(t, r.hold)
			}
			unlock(t, h)
			is(t, "Shutdown", <-done, nil)
		})
	}
}
