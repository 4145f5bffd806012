package hazard

import (
	"context"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/luascript"
	"github.com/redlatch/redlatch/internal/testbed"
)

// raises are the ways in which more than the outer hold's lease may be asked of the
// server, without anybody who holds the lock for that long.
var raises = map[string]func(t *testing.T, p *testbed.Proxy, outer redlatch.Hold, l redlatch.Locker){
	"inner hold": func(t *testing.T, _ *testbed.Proxy, outer redlatch.Hold, l redlatch.Locker) {
		t.Helper()
		unlock(t, take(t, outer.Context(), l, redlatch.WithLease(time.Hour)))
	},
	"late answer": func(t *testing.T, p *testbed.Proxy, outer redlatch.Hold, l redlatch.Locker) {
		t.Helper()
		ctx, cancel := context.WithCancel(outer.Context())
		trap := p.StallReply(reenters)
		got := async(ctx, l, redlatch.WithLease(time.Hour))
		trap.Wait(t)
		cancel()
		is(t, "Lock", await(t, got).err, context.Canceled)
		trap.Release()
	},
	"lost answer": func(t *testing.T, p *testbed.Proxy, outer redlatch.Hold, l redlatch.Locker) {
		t.Helper()
		ctx, cancel := context.WithCancel(outer.Context())
		trap := p.DropReply(reenters)
		p.Refuse()
		var got <-chan result
		testbed.Mark(t.Name(), func() { got = async(ctx, l, redlatch.WithLease(time.Hour)) })
		trap.Wait(t)
		marked(t, t.Name(), "(*acquisition).pause") // it knows
		cancel()
		is(t, "Lock", await(t, got).err, context.Canceled)
		p.Admit(t)
	},
	"extension": func(t *testing.T, p *testbed.Proxy, outer redlatch.Hold, _ redlatch.Locker) {
		t.Helper()
		ctx, cancel := context.WithCancel(t.Context())
		trap := p.StallReply(reenters)
		errs := make(chan error, 1)
		go func() { errs <- outer.Extend(ctx, time.Hour) }()
		trap.Wait(t)
		cancel()
		is(t, "Extend", <-errs, context.Canceled)
		trap.Release()
	},
}

func reenters(args []string) bool {
	return len(args) > 1 && (args[1] == luascript.Reenter.SHA || args[1] == luascript.RWReenter.SHA || args[1] == luascript.GroupAcquire.SHA)
}

// A living process leaves no lease behind: what was asked for beyond the leases of
// the holds, by an inner hold or by what was given up, is given back when the last
// hold's own deadline passes. Until then the holder is alone, and its deadline is as
// it was; and an Unlock before frees the lock at once.
func TestWhatWasAskedForBeyondTheHoldsIsGivenBack(t *testing.T) {
	s := server(t)
	for _, kind := range kinds {
		for what, raise := range raises {
			for _, unlocks := range []bool{false, true} {
				name := kind.name + " " + what
				if unlocks {
					name += ", unlocked"
				}
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					p := testbed.NewProxy(t, s.Addr())
					c, other := dial(t, p.Addr()), dial(t, s.Addr())
					l := kind.make(c, name)
					warm(t, l)
					lease := 5 * time.Second // for what is raised within it, on a busy machine
					if unlocks {
						lease = time.Minute // it must not end before
					}
					outer := take(t, t.Context(), l, redlatch.WithLease(lease))
					promised := outer.ValidUntil()
					raise(t, p, outer, l)
					// A multi-lock's members are extended by a command each: one may not have been sent.
					left := max(lasts(t, s, name), lasts(t, s, "{"+name+"}2"))
					if outer.Context().Err() != nil {
						t.Fatal("the outer lease is over")
					}
					if !outer.ValidUntil().Equal(promised) {
						t.Errorf("the outer hold's end moved by %v", outer.ValidUntil().Sub(promised))
					}
					if left < 59*time.Minute {
						t.Errorf("the key lasts for %v: nothing was asked for, or a lease was lowered", left)
					}
					if unlocks {
						unlock(t, outer)
						if s.Int(t, "EXISTS", name) != 0 {
							t.Error("the last Unlock has not freed the lock")
						}
						return
					}
					next := async(t.Context(), exclusive(other, kind.name, name))
					select {
					case <-outer.Context().Done():
					case <-time.After(patience):
						t.Fatal("the outer hold does not end")
					}
					is(t, "the cause", context.Cause(outer.Context()), redlatch.ErrLeaseLost)
					if early := time.Until(promised); early > 0 {
						t.Errorf("it ended %v too early", early)
					}
					r := await(t, next)
					if r.err != nil {
						t.Fatal(r.err)
					}
					unlock(t, r.hold)
				})
			}
		}
	}
}
