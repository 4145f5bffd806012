package promises

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/integration/bed"
	"github.com/redlatch/redlatch/internal/testbed"
)

// An acquisition that too few replicas have is undone, but its caller does not wait for that when its ctx has ended.
func TestUndoingForWantOfReplicasDoesNotOutlastCtx(t *testing.T) {
	t.Parallel()
	acks := func(c *redlatch.Config) { c.ReplicaAcks, c.ReplicaAckTimeout = 1, 20*time.Millisecond }
	overKinds(t, nil, cases{
		"on its way": func(t *testing.T, x *bed.Site, name string) {
			if parted(x) {
				return
			}
			l, stands := x.Kind.New(x.Fresh(t, acks), name), func() bool { return x.Servers[0].Int(t, "EXISTS", x.Kind.Names(name)[0]) == 1 }
			trap := x.Proxies[0].StallRequest(bed.Nth(1, bed.Of(name))) // what takes it back
			ctx, leave := context.WithCancel(t.Context())
			done := bed.Async(ctx, l)
			trap.Wait(t)
			leave()
			want(t, "Lock", bed.Get(t, done).Err, redlatch.ErrReplicaAcks)
			if !stands() {
				t.Error("it has been undone: the test tests nothing")
			}
			trap.Release()
			bed.Eventually(t, "undone", func() bool { return !stands() })
			_, err := l.TryLock(t.Context(), 0, 0)
			if want(t, "TryLock", err, redlatch.ErrReplicaAcks); stands() {
				t.Error("a server that answers has not undone it when TryLock returns")
			}
		},
	})
}

// Lost subscriptions are logged with a waiter of each lock, whatever that waiter
// does meanwhile. It is for the race detector.
func TestSubscriptionsLostWhileGroupsChangeTheirMinds(t *testing.T) {
	t.Parallel()
	s := bed.Server(t)
	c := bed.Client(t, s.Addr())
	ctx, cancel := context.WithTimeout(t.Context(), 700*time.Millisecond)
	defer cancel()
	var wg sync.WaitGroup
	for i := range 6 {
		wg.Go(func() {
			locks := []redlatch.Locker{c.RLock("a"), c.RLock("b"), redlatch.MultiLock(c.RLock("a"), c.RLock("b"))}
			for ctx.Err() == nil {
				if h, err := locks[i%3].Lock(ctx); err == nil {
					time.Sleep(200 * time.Microsecond)
					bed.Unlock(t, h)
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

// A command of an acquisition that waits in line by now is late: when it takes the free lock for the one who waits
// after all, somebody enters soon, not when a lease that nobody counts on has ended.
func TestALateCommandOfOneWhoWaitsInLine(t *testing.T) {
	t.Parallel()
	overKinds(t, nil, cases{
		"takes the lock": func(t *testing.T, x *bed.Site, name string) {
			if parted(x) {
				return // nobody stands in line with a command of his own
			}
			proxy, l := x.Proxies[0], x.Lock(name)
			holder := bed.Lock(t, t.Context(), x.Kind.New(x.Direct, name))
			trap := proxy.DropRequest(testbed.Contains("EVALSHA", name, ":g=job-")).Times(4)
			var first, second <-chan bed.Attempt
			testbed.Mark(name+"1", func() { first = bed.Async(redlatch.WithOwner(t.Context(), "job"), l) })
			trap.Wait(t)
			testbed.Mark(name+"2", func() { second = bed.Async(t.Context(), l) }) // before the first has its answer
			for range 3 {
				trap.Wait(t)
			}
			sent := time.Now()
			if !x.Kind.Shared { // both have been refused, and wait
				bed.Eventually(t, "two sleep", func() bool {
					return testbed.MarkedIn(name+"1", "(*acquisition).sleep") > 0 && testbed.MarkedIn(name+"2", "(*acquisition).sleep") > 0
				})
			}
			quiet(t, x) // with nothing on its way
			next := proxy.StallRequest(testbed.Contains("EVALSHA", name))
			bed.Unlock(t, holder)
			if x.Kind.Name != "fair" && !x.Kind.Shared { // there the grant comes, or both try
				next.Wait(t)
			}
			reply := trap.Deliver(t)                                // just before
			if time.Since(sent) > 4*time.Second && !x.Kind.Queues { // a server refuses it for five: this machine was slower
				evict(t, x, name, x.Through)
			}
			next.Release()
			next.Times(0)
			t.Logf("the late command was answered with %q", reply)
			for range 2 { // far below the lease
				bed.Unlock(t, either(t, first, second))
			}
		},
	})
}
