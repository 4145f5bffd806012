package promises

import (
	"context"
	"errors"
	"math"
	"strconv"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/integration/bed"
	"github.com/redlatch/redlatch/internal/luascript"
	"github.com/redlatch/redlatch/internal/testbed"
)

// What a caller does with a lock, and whose commands the network then loses.
type scene struct {
	name string
	run  func(t *testing.T, ctx context.Context, x *bed.Site, l redlatch.Locker, name string)
}

var scenes = []scene{
	{"lock and unlock", func(t *testing.T, ctx context.Context, x *bed.Site, l redlatch.Locker, name string) {
		h := bed.Lock(t, ctx, l)
		if token := h.Token(); token != 0 && x.Servers[0].Int(t, "GET", luascript.TokenKey(name)) != int64(token) { //nolint:gosec // far below
			t.Errorf("the token is %d, and not the counter's last", token)
		}
		refused(t, x.Beside(name))
		bed.Unlock(t, h)
	}},
	{"re-enter", func(t *testing.T, ctx context.Context, x *bed.Site, l redlatch.Locker, name string) {
		outer := bed.Lock(t, ctx, l)
		inner := bed.Lock(t, outer.Context(), l)
		exact := x.Kind.Servers < 3 // else the last copies come later
		if exact {
			counted(t, x, name, 2)
		}
		bed.Unlock(t, inner)
		if exact {
			counted(t, x, name, 1)
		}
		refused(t, x.Beside(name))
		bed.Unlock(t, outer)
	}},
	{"extend", func(t *testing.T, ctx context.Context, x *bed.Site, l redlatch.Locker, name string) {
		h := bed.Lock(t, ctx, l)
		if err := h.Extend(ctx, bed.Lease); err != nil {
			t.Errorf("Extend: %v", err)
		}
		refused(t, x.Beside(name))
		bed.Unlock(t, h)
	}},
	{"wait, lock and unlock", func(t *testing.T, ctx context.Context, x *bed.Site, l redlatch.Locker, name string) {
		before := bed.Lock(t, t.Context(), x.Beside(name))
		got := begun(t, ctx, x, name, l)
		bed.Unlock(t, before)
		a := entered(t, got)
		refused(t, x.Beside(name))
		bed.Unlock(t, a.Hold)
	}},
	{"lose it", func(t *testing.T, ctx context.Context, x *bed.Site, l redlatch.Locker, name string) {
		h := bed.Lock(t, ctx, l, redlatch.WithLease(bed.Lease))
		forceOpen(t, x, name)
		want(t, "Extend", h.Extend(t.Context(), 2*bed.Lease), redlatch.ErrLeaseLost)
		want(t, "Unlock", h.Unlock(t.Context()), redlatch.ErrLeaseLost)
		for _, key := range x.Servers[0].List(t, "KEYS", "*"+name+"*rwlock_timeout*") {
			x.Servers[0].Do(t, "DEL", key) // that of a reader would end with its lease
		}
	}},
	{"wait and give up", func(t *testing.T, ctx context.Context, x *bed.Site, l redlatch.Locker, name string) {
		before := bed.Lock(t, t.Context(), x.Beside(name))
		ctx, leave := context.WithCancel(ctx)
		defer leave()
		got := begun(t, ctx, x, name, l)
		leave()
		if a := bed.Get(t, got); !errors.Is(a.Err, context.Canceled) {
			t.Errorf("Lock: %v, want one that ended with its ctx", a.Err)
		}
		bed.Unlock(t, before)
	}},
}

// What the network does to a command, the n-th of those that match.
type fault struct {
	name string
	set  func(p *testbed.Proxy, n int64, m testbed.Match) *testbed.Trap
	// free says that what was caught comes when the lock should be free, held when somebody holds it again, own that
	// this is the same owner, else another one; twice, that the server had answered.
	free, held, own, twice bool
}

func nth(set func(*testbed.Proxy, testbed.Match) *testbed.Trap) func(*testbed.Proxy, int64, testbed.Match) *testbed.Trap {
	return func(p *testbed.Proxy, n int64, m testbed.Match) *testbed.Trap { return set(p, bed.Nth(n, m)) }
}

var (
	lostRequest = nth((*testbed.Proxy).DropRequest)
	copied      = nth((*testbed.Proxy).CopyRequest)
)

var faults = []fault{
	{name: "the request is lost", set: lostRequest},
	{name: "the reply is lost", set: nth((*testbed.Proxy).DropReply)},
	{name: "the reply is lost three times", set: func(p *testbed.Proxy, n int64, m testbed.Match) *testbed.Trap {
		return p.DropReply(bed.From(n, 3, m)).Times(3)
	}},
	{name: "the request comes when the lock is free", set: lostRequest, free: true},
	{name: "the request comes when another holds the lock", set: lostRequest, held: true},
	{name: "the request comes when its owner holds the lock again", set: lostRequest, held: true, own: true},
	{name: "the request comes again when another holds the lock", set: copied, held: true, twice: true},
	{name: "the request comes again when its owner holds the lock again", set: copied, held: true, own: true, twice: true},
	{name: "the reply is late", set: func(p *testbed.Proxy, n int64, m testbed.Match) *testbed.Trap {
		trap := p.StallReply(bed.Nth(n, m))
		time.AfterFunc(150*time.Millisecond, trap.Release)
		return trap
	}},
}

// A command that the network loses, doubles or delays changes nothing: every call comes to what it
// would have come to, the lock is free afterwards for the next one at once, and the next one's hold
// stays untouched.
func TestALostCommandChangesNothing(t *testing.T) {
	t.Parallel()
	for _, k := range bed.Kinds() {
		t.Run(k.Name, func(t *testing.T) {
			t.Parallel()
			x := bed.NewSite(t, k)
			for _, scene := range scenes {
				for _, fault := range faults {
					if fault.twice && fault.own && k.Shared {
						continue // a reader's request that was answered, and comes again, finds the lock open for readers
					}
					for n := int64(0); ; n++ {
						caught := false
						t.Run(scene.name+"/"+fault.name+"/"+ordinal(n), func(t *testing.T) {
							caught = loseOne(t, x, scene, fault, n)
						})
						if t.Failed() || !caught {
							break // the scene has no n-th command
						}
					}
				}
			}
		})
	}
}

// loseOne reports whether the scene had an n-th command to lose.
func loseOne(t *testing.T, x *bed.Site, scene scene, fault fault, n int64) (caught bool) {
	t.Helper()
	name := bed.Name(t.Name())
	ctx := redlatch.WithOwner(t.Context(), "one")
	trap := fault.set(x.Proxies[0], n, bed.Of(name))
	l := x.Kind.Lasting(x.Through, name)
	if fault.twice {
		l = x.Lock(name) // whose place, made once more when it was given up, ends soon
	}
	scene.run(t, ctx, x, l, name)
	if caught = len(trap.Hits()) > 0; caught && fault.free {
		trap.DeliverAll(t)
	}
	trap.Times(0)
	var next redlatch.Hold
	beside := x.Lock(name)
	if fault.own {
		next, beside = x.Everywhere(t, ctx, x.Lock(name), name, x.Through), x.Beside(name)
	} else {
		next = x.Everywhere(t, t.Context(), x.Beside(name), name, x.Direct)
	}
	if caught && fault.held {
		trap.DeliverAll(t)
	}
	switch {
	case x.Kind.Shared: // a request of one who gave up is another reader's until it is taken back
		bed.Eventually(t, "one holder", func() bool { return miscounted(t, x, name, 1) == "" })
	case x.Kind.Servers < 3:
		counted(t, x, name, 1)
	}
	if err := next.Extend(t.Context(), time.Millisecond); err != nil {
		t.Errorf("the next one's hold: %v", err)
	}
	refused(t, beside)
	bed.Unlock(t, next)
	bed.Eventually(t, "no key left", func() bool { return len(x.Keys(t, name)) == 0 })
	return caught
}

// A command that was lost comes when another holds the lock, the hold of its retry has been lost, too, and the command
// that makes the server refuse late ones is not there yet: the place that it makes goes with that.
func TestALateCommandOfALostHoldKeepsNoPlace(t *testing.T) {
	t.Parallel()
	for _, k := range bed.Kinds() {
		if !k.Queues {
			continue
		}
		t.Run(k.Name, func(t *testing.T) {
			t.Parallel()
			x := bed.NewSite(t, k)
			name := bed.Name(t.Name())
			late := x.Proxies[0].DropRequest(bed.Nth(0, bed.Of(name)))
			h := bed.Lock(t, t.Context(), k.Lasting(x.Through, name))
			forceOpen(t, x, name)
			next := bed.Lock(t, t.Context(), x.Beside(name))
			refusal := x.Proxies[0].DropRequest(bed.From(1, math.MaxInt32, bed.Of(name))).Times(math.MaxInt32)
			want(t, "Extend", h.Extend(t.Context(), time.Minute), redlatch.ErrLeaseLost)
			refusal.Wait(t)
			late.DeliverAll(t)
			refusal.Times(0)
			bed.Eventually(t, "late commands are refused", func() bool { return x.Servers[0].Int(t, "EXISTS", luascript.VoidKey(name)) == 1 })
			want(t, "Unlock", h.Unlock(t.Context()), redlatch.ErrLeaseLost)
			bed.Unlock(t, next)
			if again, err := x.Beside(name).TryLock(t.Context(), 0, 0); err != nil {
				t.Errorf("the free lock is kept for nobody: %v", err)
			} else {
				bed.Unlock(t, again)
			}
			bed.Eventually(t, "no key left", func() bool { return len(x.Keys(t, name)) == 0 })
		})
	}
}

// A server that stood still for longer than a lease runs, when it goes on, what it got before, an attempt or the refresh of
// a place: the lock that it takes for somebody who had left is given back, and keeps nobody out for a lease.
func TestALateCommandAfterALongSilence(t *testing.T) {
	t.Parallel()
	const length = 4 * time.Second
	left := func(t *testing.T, asks <-chan bed.Attempt) {
		t.Helper()
		want(t, "TryLock", bed.Get(t, asks).Err, redlatch.ErrNotAcquired, redlatch.ErrUnavailable)
	}
	tries := func(t *testing.T, l redlatch.Locker, wait time.Duration) <-chan bed.Attempt {
		t.Helper()
		return bed.Run(func() (redlatch.Hold, error) { return l.TryLock(t.Context(), wait, 0) })
	}
	// goesOn has the servers go on after so long, and somebody else enter.
	goesOn := func(t *testing.T, x *bed.Site, name string, after time.Duration) {
		t.Helper()
		time.Sleep(after)
		for _, s := range x.Servers {
			s.Thaw(t)
		}
		bed.Unlock(t, bed.HoldWithin(t, length*3/4, bed.Async(t.Context(), x.Kind.Excluded(x.Through, name))))
	}
	stop := func(t *testing.T, x *bed.Site) {
		t.Helper()
		for _, s := range x.Servers {
			s.Freeze(t)
		}
	}
	overKinds(t, []func(*redlatch.Config){func(c *redlatch.Config) { c.LeaseTime = length }}, cases{
		"an attempt": func(t *testing.T, x *bed.Site, name string) {
			var opts []redlatch.Option
			if x.Kind.Queues {
				opts = append(opts, redlatch.WithSkipAfter(time.Second))
			}
			l := x.Kind.New(x.Direct, name, opts...)
			bed.Unlock(t, bed.Lock(t, t.Context(), l)) // the servers know the scripts
			stop(t, x)
			left(t, tries(t, l, 100*time.Millisecond))
			goesOn(t, x, name, 2*length+length/2) // the connections end, and so does the lease
		},
		"a refresh": func(t *testing.T, x *bed.Site, name string) {
			if x.Kind.Name != "fair" {
				return // the places of others end with their keys
			}
			_ = bed.Lock(t, t.Context(), x.Lock(name)) // which is lost
			waits := tries(t, x.Kind.New(x.Direct, name, redlatch.WithSkipAfter(length)), 2*length)
			bed.Eventually(t, "a refresh", func() bool {
				known := x.Servers[0].Do(t, "SCRIPT", "EXISTS", luascript.FairRefresh.SHA)
				have, err := known.AsIntSlice()
				return err == nil && have[0] == 1
			})
			stop(t, x)
			left(t, waits)
			goesOn(t, x, name, length+length/2)
		},
	})
}

func ordinal(n int64) string { return "command " + strconv.FormatInt(n+1, 10) }
