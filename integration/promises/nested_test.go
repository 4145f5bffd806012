package promises

import (
	"context"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/integration/bed"
	"github.com/redlatch/redlatch/internal/testbed"
)

// An owner's holds don't harm each other: leases on the server only rise, no hold counts for longer than the keys
// stand, and the last living one frees the lock, whatever the others were.
func TestNestedHolds(t *testing.T) {
	t.Parallel()
	all := cases{
		"a release of an inner one that comes late": func(t *testing.T, x *bed.Site, name string) {
			outer := bed.Lock(t, t.Context(), x.Lock(name), redlatch.WithLease(40*time.Second))
			inner := bed.Lock(t, outer.Context(), x.Lock(name), redlatch.WithLease(time.Minute))
			quiet(t, x) // a quorum's last copy has come
			promised := outer.ValidUntil()
			late := x.Proxies[0].DropRequest(bed.Of(name))
			bed.Unlock(t, inner)
			late.Wait(t)
			testbed.AtLeast(t, stands(t, x, name), 50*time.Second, "the inner Unlock has cut the lease to")
			bed.Eventually(t, "each count is 1", func() bool { return miscounted(t, x, name, 1) == "" })
			if !outer.ValidUntil().Equal(promised) {
				t.Errorf("the inner Unlock has moved the outer hold's end by %v", outer.ValidUntil().Sub(promised))
			}
			again := bed.Lock(t, outer.Context(), x.Lock(name), redlatch.WithLease(time.Hour))
			late.Deliver(t)
			testbed.AtLeast(t, stands(t, x, name), asked(x, time.Hour)-10*time.Second, "the late release has cut the lease of the next hold to")
			bed.Unlock(t, again)
			bed.Unlock(t, outer)
		},
	}
	for what, lease := range map[string]time.Duration{"a long lease": 20 * time.Second, "a lease that ends": 4 * time.Second} {
		all["a release of an inner one without an answer, "+what] = func(t *testing.T, x *bed.Site, name string) {
			l := x.Kind.New(x.Fresh(t, func(c *redlatch.Config) { c.UnlockTimeout = 2 * time.Second }), name)
			outer := bed.Lock(t, t.Context(), l)
			inner := bed.Lock(t, outer.Context(), l, redlatch.WithLease(lease))
			ends := lease < 5*time.Second
			if !ends { // else nobody hears of a quorum's last copy, which keeps its count until the outer Unlock
				quiet(t, x)
			}
			cutOff(x)
			want(t, "Unlock", inner.Unlock(context.Background()), redlatch.ErrUnavailable)
			if ends {
				time.Sleep(lease) // nothing of it is left
			}
			counted(t, x, name, 2) // nothing has changed before the server can be reached again
			admit(t, x)
			if ends {
				want(t, "the second Unlock", inner.Unlock(context.Background()), redlatch.ErrUnavailable)
			} else {
				bed.Eventually(t, "the release", func() bool { return miscounted(t, x, name, 1) == "" })
				want(t, "the second Unlock", inner.Unlock(context.Background()), nil)
			}
			want(t, "the third Unlock", inner.Unlock(context.Background()), redlatch.ErrNotHeld)
			bed.Alive(t, outer)
			bed.Unlock(t, outer)
		}
	}
	for refusal, set := range map[string][2][]string{
		"NOREPLICAS": {{"CONFIG", "SET", "min-replicas-to-write", "1"}, {"CONFIG", "SET", "min-replicas-to-write", "0"}},
		"READONLY":   {{"REPLICAOF", "127.0.0.1", "1"}, {"REPLICAOF", "NO", "ONE"}},
		"OOM":        {{"CONFIG", "SET", "maxmemory", "1"}, {"CONFIG", "SET", "maxmemory", "0"}},
	} {
		all["a release of an inner one that is refused: "+refusal] = func(t *testing.T, x *bed.Site, name string) {
			type nested struct {
				name         string
				outer, inner redlatch.Hold
			}
			var both []nested
			for what, opts := range map[string][]redlatch.AcquireOption{"fixed": {redlatch.WithLease(15 * time.Second)}, "renewed": nil} {
				l := x.Lock(name + what)
				outer := bed.Lock(t, t.Context(), l, opts...)
				both = append(both, nested{name + what, outer, bed.Lock(t, outer.Context(), l, opts...)})
			}
			time.Sleep(500 * time.Millisecond) // what a release would move on
			onAll(t, x, set[0]...)
			for _, n := range both {
				bed.Unlock(t, n.inner)
				believes(t, x, n.name, n.outer)
				bed.Alive(t, n.outer)
			}
			onAll(t, x, set[1]...)
			for _, n := range both {
				bed.Unlock(t, n.outer)
			}
		}
	}
	for what, first := range map[string]bool{"the inner": false, "the outer": true} {
		all["one whose lease ended keeps nothing, "+what] = func(t *testing.T, x *bed.Site, name string) {
			job, l := redlatch.WithOwner(t.Context(), "job"), x.Lock(name)
			var lives redlatch.Hold
			if !first {
				lives = bed.Lock(t, job, l)
			}
			ends := bed.Lock(t, job, l, redlatch.WithLease(brief(x)))
			if first {
				lives = bed.Lock(t, job, l)
			}
			ended(t, ends, redlatch.ErrLeaseLost)
			bed.Alive(t, lives)
			refused(t, x.Beside(name))
			if parted(x) {
				want(t, "Unlock of what ended", ends.Unlock(t.Context()), redlatch.ErrLeaseLost)
				refused(t, x.Beside(name))
			}
			bed.Unlock(t, lives)
			next := bed.Lock(t, t.Context(), x.Beside(name))
			if !parted(x) {
				want(t, "the late Unlock", ends.Unlock(t.Context()), redlatch.ErrLeaseLost)
			}
			bed.Unlock(t, next)
		}
	}
	for what, raise := range raises {
		all["what was asked for beyond the holds is given back: "+what] = func(t *testing.T, x *bed.Site, name string) {
			const lease = 5 * time.Second // for what is raised within it, on a busy machine
			outer := raised(t, x, name, lease, raise)
			promised := outer.ValidUntil()
			next := bed.Async(t.Context(), x.Beside(name))
			ended(t, outer, redlatch.ErrLeaseLost)
			testbed.AtMost(t, time.Until(promised), 0, "it ended too early by")
			if parted(x) {
				want(t, "Unlock", outer.Unlock(t.Context()), redlatch.ErrLeaseLost)
			}
			bed.Unlock(t, bed.Hold(t, next))
		}
		all["an Unlock frees what was asked for beyond it: "+what] = func(t *testing.T, x *bed.Site, name string) {
			bed.Unlock(t, raised(t, x, name, 50*time.Second, raise))
			bed.Unlock(t, bed.Lock(t, t.Context(), x.Beside(name)))
		}
	}
	overKinds(t, nil, all)
}

// believes fails if the hold counts for longer than the lock stands. The hold's deadline may move on while that is
// looked at. A slow look is on its side: the answer tells what was left before it came.
func believes(t *testing.T, x *bed.Site, name string, h redlatch.Hold) {
	t.Helper()
	until := h.ValidUntil()
	if h.Context().Err() != nil {
		return
	}
	left := stands(t, x, name)
	if over := until.Sub(time.Now().Add(max(left, 0) + time.Millisecond)); over > 0 {
		t.Fatalf("the hold counts for %v longer than the lock stands", over)
	}
}

// raised takes the lock, and asks the server for an hour that no hold has.
func raised(t *testing.T, x *bed.Site, name string, lease time.Duration, raise func(t *testing.T, x *bed.Site, name string, outer redlatch.Hold)) redlatch.Hold {
	t.Helper()
	outer := bed.Lock(t, t.Context(), x.Lock(name), redlatch.WithLease(lease))
	promised := outer.ValidUntil()
	raise(t, x, name, outer)
	_, longest := x.Left(t, name) // one member may not have been asked
	bed.Alive(t, outer)
	if !quorum(x) && !outer.ValidUntil().Equal(promised) {
		t.Errorf("the outer hold's end moved by %v", outer.ValidUntil().Sub(promised))
	}
	testbed.AtLeast(t, longest, asked(x, time.Hour)-time.Minute/10, "nothing was asked for, or a lease was lowered: the key lasts for")
	return outer
}

// raises are the ways in which more than the outer hold's lease may be asked of the server, without anybody who
// holds the lock for that long.
var raises = map[string]func(t *testing.T, x *bed.Site, name string, outer redlatch.Hold){
	"by an inner hold": func(t *testing.T, x *bed.Site, name string, outer redlatch.Hold) {
		bed.Unlock(t, bed.Lock(t, outer.Context(), x.Lock(name), redlatch.WithLease(time.Hour)))
	},
	"a late answer": func(t *testing.T, x *bed.Site, name string, outer redlatch.Hold) {
		ctx, leave := context.WithCancel(outer.Context())
		caught, release := stalled((*testbed.Proxy).StallReply, bed.Of)(t, x, 0, name)
		got := bed.Async(ctx, x.Lock(name), redlatch.WithLease(time.Hour))
		bed.Eventually(t, "an answer on its way", caught)
		leave()
		want(t, "Lock", bed.Get(t, got).Err, context.Canceled)
		release()
	},
	"a lost answer": func(t *testing.T, x *bed.Site, name string, outer redlatch.Hold) {
		ctx, leave := context.WithCancel(outer.Context())
		var lost, again []*testbed.Trap
		for _, p := range x.Proxies {
			lost = append(lost, p.DropReply(bed.Of(name)))
			again = append(again, p.DropRequest(bed.Of(name)).Times(-1))
		}
		got := bed.Async(ctx, x.Lock(name), redlatch.WithLease(time.Hour))
		bed.Eventually(t, "a lost answer, and another try", func() bool { return hit(again) || quorum(x) && hit(lost) })
		leave()
		want(t, "Lock", bed.Get(t, got).Err, context.Canceled)
		for i := range lost {
			lost[i].Times(0)
			again[i].Times(0)
		}
	},
	"an extension": func(t *testing.T, x *bed.Site, name string, outer redlatch.Hold) {
		ctx, leave := context.WithCancel(t.Context())
		caught, release := stalled((*testbed.Proxy).StallReply, bed.Of)(t, x, 0, name)
		errs := make(chan error, 1)
		go func() { errs <- outer.Extend(ctx, time.Hour) }()
		bed.Eventually(t, "an answer on its way", caught)
		leave()
		want(t, "Extend", <-errs, context.Canceled)
		release()
	},
}

// hit reports whether one of the traps has caught something.
func hit(traps []*testbed.Trap) bool {
	for _, trap := range traps {
		if len(trap.Hits()) > 0 {
			return true
		}
	}
	return false
}
