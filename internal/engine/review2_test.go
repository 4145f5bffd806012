package engine_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlatch/redlatch/internal/conn"
	"github.com/redlatch/redlatch/internal/engine"
	"github.com/redlatch/redlatch/internal/held"
	"github.com/redlatch/redlatch/internal/luascript"
	"github.com/redlatch/redlatch/lock"
	"github.com/redlatch/redlatch/rlock"
)

// An Extend that is refused since its hold has been unlocked asks for nothing, so nothing of it
// may be asked of the server that takes over.
func TestExtendOfAnUnlockedHoldAsksForNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, core := newFake(t, leaseTime)
		outer := take(t, t.Context(), core, "l")
		inner := take(t, outer.Context(), core, "l")
		if err := inner.Unlock(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := inner.Extend(t.Context(), time.Hour); !errors.Is(err, lock.ErrNotHeld) {
			t.Fatal("Extend after Unlock:", err)
		}
		time.Sleep(time.Second)
		core.Moved()
		synctest.Wait()
		f.mu.Lock()
		left := time.Until(f.keys["l"].ends)
		f.mu.Unlock()
		if left > leaseTime {
			t.Errorf("the lock stays for %v if its holder dies now, want at most the LeaseTime of %v", left, leaseTime)
		}
		if err := outer.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// A reader that follows another one of its process, as a part of a MultiLock, ends when the
// whole can't come any more, as one that waits by itself does.
func TestFollowerHearsThatItIsOfNoUse(t *testing.T) {
	for _, follows := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			b, core := newByHand(t)
			l := sharing(core)
			ctx, cancel := context.WithCancel(held.WithOwner(t.Context(), "a"))
			defer cancel()
			var lead *got
			if follows {
				lead = start(func() (lock.Hold, error) { return l.ReadLock().Lock(ctx) })
			}
			quit := make(chan struct{})
			member := start(func() (lock.Hold, error) {
				_, err := engine.AcquireBy(held.WithOwner(context.Background(), "b"),
					[]*engine.Lock{l.ReadLock().Engine()}, -1, 0, time.Time{}, quit)
				return nil, err
			})
			for qs := b.of(luascript.RWRead, ""); len(qs) > 0; qs = b.of(luascript.RWRead, "") {
				b.tell(qs[0], busyRW(0), nil)
			}
			member.waits(t, "the member")
			close(quit)
			synctest.Wait()
			if !member.over || !errors.Is(member.err, lock.ErrClosed) {
				t.Errorf("follows %v: it waits for a lock that is of no use (over: %v, %v)", follows, member.over, member.err)
			}
			cancel()
			if lead != nil {
				synctest.Wait()
			}
			b.tellAll(0)
		})
	}
}

// The break of a connection is remembered when the table of slots names another node for the key:
// that is what follows a break in a cluster.
func TestNothingIsPassedOnAfterABreakAndAFailover(t *testing.T) {
	for _, fails := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			var node atomic.Pointer[string]
			first, second := "10.0.0.1:6379", "10.0.0.2:6379"
			node.Store(&first)
			f, core := newFakeWith(t, func(f *fakeRedis, cfg *engine.Config) {
				cfg.Tenure = 5 * time.Second // as long as a tenure may be is a third of LeaseTime
				f.topo = conn.Topology{Cluster: true, Node: func(uint16) string { return *node.Load() }}
			})
			h := take(t, t.Context(), core, "{s}l")
			got := make(chan error, 1)
			go func() {
				h, err := rlock.New(core, "{s}l").Lock(context.Background())
				if err == nil {
					err = h.Unlock(context.Background())
				}
				got <- err
			}()
			time.Sleep(time.Second)
			synctest.Wait()
			f.onBefore(func(cmd conn.Command) error {
				if cmd.Keys[0] == "{s}other" && cmd.Script == luascript.Acquire {
					return errLost
				}
				return nil
			})
			if _, err := rlock.New(core, "{s}other").TryLock(t.Context(), 0, 0); err == nil {
				t.Error("the server answered")
			}
			if fails {
				node.Store(&second)
			}
			f.mu.Lock()
			delete(f.keys, "{s}l") // the new master has never heard of it
			f.mu.Unlock()
			if err := h.Unlock(context.Background()); !errors.Is(err, lock.ErrLeaseLost) {
				t.Errorf("failover %v: Unlock: %v: passed on with what the dead master had said", fails, err)
			}
			t.Logf("the receiver: %v", <-got)
		})
	}
}

// A re-entry that the old server answered, and whose answer comes after the move was noticed, is
// no more than an Extend or a renewal there: it does not count for the deadline before the new
// server has said the same.
func TestReentryUnderWayAtAMoveDoesNotCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, core := newFake(t, leaseTime)
		job := held.WithOwner(t.Context(), "job")
		outer := take(t, job, core, "l", lock.WithLease(leaseTime))
		time.Sleep(time.Second)
		f.latency = 100 * time.Millisecond
		old := time.Now().Add(leaseTime)
		time.AfterFunc(f.latency*3/2, func() { // it has run, its answer is on its way
			f.mu.Lock()
			f.keys["l"].ends = old
			f.mu.Unlock()
			core.Moved()
			f.onBefore(func(conn.Command) error { return errUnsent }) // the new server can't be reached yet
		})
		inner := take(t, job, core, "l", lock.WithLease(time.Hour))
		work := inner.Context()
		time.Sleep(2 * leaseTime)
		f.mu.Lock()
		k := f.find("l")
		f.mu.Unlock()
		if k == nil && work.Err() == nil {
			t.Errorf("the new server has freed the lock, and the holder believes in it for another %v", time.Until(inner.ValidUntil()))
		}
		f.onBefore(nil)
		_ = inner.Unlock(context.Background())
		_ = outer.Unlock(context.Background())
	})
}

// So it is with a grant: what the old server answered, heard after the move, is no more than what
// the new one says to the check that follows at once.
func TestGrantUnderWayAtAMoveDoesNotCountForLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, core := newFake(t, leaseTime)
		f.latency = 100 * time.Millisecond
		time.AfterFunc(f.latency*3/2, func() {
			f.mu.Lock()
			delete(f.keys, "l") // the new server has never heard of it
			f.mu.Unlock()
			core.Moved()
			f.onBefore(func(conn.Command) error { return errUnsent }) // and can't be reached by us
		})
		h := take(t, t.Context(), core, "l", lock.WithLease(time.Hour))
		work := h.Context()
		time.Sleep(leaseTime)
		if work.Err() == nil {
			t.Errorf("no server that is the master now has said that the lock is held, and the holder believes it for another %v", time.Until(h.ValidUntil()))
		}
		f.onBefore(nil)
		_ = h.Unlock(context.Background())
	})
}

// A server that forgot an Extend (its replica took over in a cluster, or it was started again with
// what it had written a second before) still has the lock, with a shorter lease. The checks that
// find it held must not let the holder count on more than the server has for the rest of an hour.
func TestAnExtendThatTheServerForgot(t *testing.T) {
	for name, opts := range map[string][]lock.AcquireOption{"watchdog": nil, "fixed": {lock.WithLease(leaseTime)}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f, core := newFake(t, leaseTime)
				h := take(t, t.Context(), core, "l", opts...)
				work := h.Context()
				if err := h.Extend(t.Context(), time.Hour); err != nil {
					t.Fatal(err)
				}
				f.mu.Lock()
				f.keys["l"].ends = time.Now().Add(leaseTime) // what it had before
				f.mu.Unlock()
				time.Sleep(leaseTime - time.Second)
				checks := len(f.scripts("renew"))
				f.onBefore(func(conn.Command) error { return errUnsent }) // and now the line is cut
				time.Sleep(2 * leaseTime)
				f.mu.Lock()
				k := f.find("l")
				f.mu.Unlock()
				if k == nil && work.Err() == nil {
					t.Errorf("%d checks found it held; the server has freed the lock, and the holder believes in it for another %v",
						checks, time.Until(h.ValidUntil()))
				}
				f.onBefore(nil)
				_ = h.Unlock(context.Background())
			})
		})
	}
}
