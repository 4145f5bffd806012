package hazard

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/luascript"
	"github.com/redlatch/redlatch/internal/testbed"
)

// The release of an inner hold is lost on the way, repeated, and arrives at last
// when the outer hold has a longer lease: it must not take that away, which nobody
// would notice before the key has gone.
func TestLatePartialReleaseLeavesTheLease(t *testing.T) {
	s := server(t)
	for _, script := range []*luascript.Script{luascript.Release, luascript.GroupRelease} {
		s.Do(t, "SCRIPT", "LOAD", script.Body)
	}
	for _, kind := range kinds {
		t.Run(kind.name, func(t *testing.T) {
			proxy := testbed.NewProxy(t, s.Addr())
			c := dial(t, proxy.Addr())
			l := kind.make(c, "late")
			outer := take(t, t.Context(), l, redlatch.WithLease(5*time.Second))
			inner := take(t, outer.Context(), l, redlatch.WithLease(5*time.Second))
			trap := proxy.DropRequest(testbed.Contains(partial(kind.name).SHA))
			unlock(t, inner)
			trap.Wait(t)
			if err := outer.Extend(t.Context(), time.Minute); err != nil {
				t.Fatal(err)
			}
			trap.Deliver(t)
			key := "late"
			if left := time.Duration(s.Int(t, "PTTL", key)) * time.Millisecond; left < 50*time.Second {
				t.Errorf("%v are left of a lease that counts for %v", left, time.Until(outer.ValidUntil()))
			}
			unlock(t, outer)
		})
	}
}

// An acquisition that too few replicas have is undone, but its caller does not
// wait for that when its ctx has ended.
func TestUndoingForWantOfReplicasDoesNotOutlastCtx(t *testing.T) {
	s := server(t)
	for _, script := range []*luascript.Script{luascript.Acquire, luascript.Release, luascript.GroupAcquire, luascript.GroupRelease} {
		s.Do(t, "SCRIPT", "LOAD", script.Body)
	}
	for _, tc := range []struct {
		name   string
		script *luascript.Script
	}{{"rlock", luascript.Release}, {"multi", luascript.GroupRelease}} {
		t.Run(tc.name, func(t *testing.T) {
			proxy := testbed.NewProxy(t, s.Addr())
			c := dial(t, proxy.Addr(), func(cfg *redlatch.Config) {
				cfg.ReplicaAcks, cfg.ReplicaAckTimeout = 1, 20*time.Millisecond
			})
			var l redlatch.Member = c.RLock("acks")
			if tc.name == "multi" {
				l = redlatch.MultiLock(l, c.RLock("acks2"))
			}
			trap := proxy.StallRequest(testbed.Contains(tc.script.SHA))
			ctx, cancel := context.WithCancel(t.Context())
			done := async(ctx, l)
			trap.Wait(t)
			cancel()
			select {
			case r := <-done:
				is(t, "Lock", r.err, redlatch.ErrReplicaAcks)
			case <-time.After(time.Second):
				t.Error("Lock goes on after its ctx has ended")
			}
			trap.Release()
			eventually(t, "undone", func() bool { return s.Int(t, "EXISTS", "acks") == 0 })
			if t.Failed() {
				<-done
			}
			// With a server that answers it is undone when Lock returns.
			if _, err := l.TryLock(t.Context(), 0, 0); err == nil || s.Int(t, "EXISTS", "acks") != 0 {
				t.Errorf("TryLock: %v; or its key is still there", err)
			}
		})
	}
}

// Lost subscriptions are logged with a waiter of each lock, whatever that waiter
// does meanwhile. It is for the race detector.
func TestSubscriptionsLostWhileGroupsChangeTheirMinds(t *testing.T) {
	s := server(t)
	c := dial(t, s.Addr())
	ctx, cancel := context.WithTimeout(t.Context(), 700*time.Millisecond)
	defer cancel()
	var wg sync.WaitGroup
	for i := range 6 {
		wg.Go(func() {
			locks := []redlatch.Locker{c.RLock("a"), c.RLock("b"), redlatch.MultiLock(c.RLock("a"), c.RLock("b"))}
			for ctx.Err() == nil {
				if h, err := locks[i%3].Lock(ctx); err == nil {
					time.Sleep(200 * time.Microsecond)
					unlock(t, h)
				}
			}
		})
	}
	for ctx.Err() == nil {
		s.Do(t, "CLIENT", "KILL", "TYPE", "pubsub")
		time.Sleep(5 * time.Millisecond)
	}
	wg.Wait()
}

// A command is on its way still when the hold that its retry got is taken away, and found to
// be: it must not take the lock for nobody, any more than after an unlock.
func TestLateAcquireAfterALossTakesNothing(t *testing.T) {
	s := server(t)
	for _, kind := range kinds {
		t.Run(kind.name, func(t *testing.T) {
			proxy := testbed.NewProxy(t, s.Addr())
			c := dial(t, proxy.Addr())
			trap := proxy.DropRequest(testbed.Contains("EVALSHA", "forced"))
			h := take(t, t.Context(), kind.make(c, "forced"), redlatch.WithLease(time.Hour))
			trap.Wait(t)
			if was, err := c.ForceUnlock(t.Context(), "forced"); err != nil || !was {
				t.Fatal(was, err)
			}
			is(t, "Extend", h.Extend(t.Context(), 2*time.Hour), redlatch.ErrLeaseLost)
			is(t, "Unlock", h.Unlock(t.Context()), redlatch.ErrLeaseLost)
			eventually(t, "late commands refused", func() bool { return s.Int(t, "EXISTS", "redlatch_void:{forced}") == 1 })
			reply := trap.Deliver(t)
			if ttl := s.Int(t, "PTTL", "forced"); ttl != -2 {
				t.Errorf("the late command was answered with %q: the lock is held for %v by nobody", reply, time.Duration(ttl)*time.Millisecond)
			}
			s.Do(t, "FLUSHALL")
		})
	}
}

// A command is on its way still when its acquisition waits in line, behind another of its
// process: when it takes the free lock for that one after all, somebody enters soon, not when
// a lease that nobody counts on has ended.
func TestLateAcquireOfOneWhoWaitsInLine(t *testing.T) {
	s := server(t)
	for _, kind := range kinds {
		t.Run(kind.name, func(t *testing.T) {
			proxy := testbed.NewProxy(t, s.Addr())
			c, name := dial(t, proxy.Addr()), "line-"+kind.name
			holder := take(t, t.Context(), kind.make(dial(t, s.Addr()), name))
			trap := proxy.DropRequest(testbed.Contains("EVALSHA", name, ":g=x-")).Times(4)
			var x, y <-chan result
			testbed.Mark(name+" x", func() { x = async(redlatch.WithOwner(t.Context(), "x"), kind.make(c, name)) })
			trap.Wait(t)
			testbed.Mark(name+" y", func() { y = async(t.Context(), kind.make(c, name)) }) // before x has its answer
			for range 3 {
				trap.Wait(t)
			}
			if kind.name != "read" {
				marked(t, name+" x", "(*acquisition).sleep") // both have been refused, and wait
				marked(t, name+" y", "(*acquisition).sleep")
			}
			s.AwaitQuiet(t) // with nothing on its way
			next := proxy.StallRequest(testbed.Contains("EVALSHA", name))
			unlock(t, holder)
			if kind.name != "fair" && kind.name != "read" { // there the grant comes, or both try
				next.Wait(t)
			}
			reply := trap.Deliver(t) // just before
			next.Release()
			begun := time.Now()
			var first result
			select {
			case first = <-x:
			case first = <-y:
			case <-time.After(5 * time.Second):
				t.Errorf("the late command was answered with %q, and nobody is inside after 5s; PTTL %d", reply, s.Int(t, "PTTL", name))
				return
			}
			t.Logf("%q, %v", reply, time.Since(begun))
			unlock(t, first.hold)
			select {
			case first = <-x:
			case first = <-y:
			case <-time.After(5 * time.Second):
				t.Error("nobody is next")
				return
			}
			unlock(t, first.hold)
		})
	}
}
