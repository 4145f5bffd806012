package telemetry

import (
	"context"
	"fmt"
	"math"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/integration/bed"
	"github.com/redlatch/redlatch/internal/testbed"
)

// fragile is a context of a type of the user's that panics after so many calls: once, or from then on.
type fragile struct {
	context.Context
	left   *atomic.Int64
	always bool
}

func (f fragile) called() {
	if left := f.left.Add(-1); left == 0 || f.always && left < 0 {
		panic("code of the user's")
	}
}

func (f fragile) Value(key any) any {
	f.called()
	return f.Context.Value(key)
}

func (f fragile) Done() <-chan struct{} {
	f.called()
	return f.Context.Done()
}

// TestPanicOfAContextLeavesNothingHeld: a panic of the context of a MultiLock's or a quorum's call, in whichever of
// the calls of its methods and whether it stays so or not, ends no more than that call, and what was acquired is given
// back.
func TestPanicOfAContextLeavesNothingHeld(t *testing.T) {
	r := newRig(t)
	second, third := testbed.Standalone(t), testbed.Standalone(t)
	c, far, last := r.client, r.open(at(second)), r.open(at(third))
	for what, l := range map[string]redlatch.Locker{
		"locks of one client": redlatch.MultiLock(c.RLock("a"), c.RLock("b")),
		"locks of three":      redlatch.MultiLock(c.RLock("a"), far.RLock("b"), last.FairLock("c")),
		"a quorum":            redlatch.QuorumLock(c.RLock("q"), far.RLock("q"), last.RLock("q")),
	} {
		bed.Unlock(t, bed.Lock(t, t.Context(), l)) // a young server's first copies are all needed
		for _, always := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/always=%t", what, always), func(t *testing.T) {
				panics := int64(0)
				for ; !t.Failed() && shaken(t, l, panics+1, always); panics++ {
					bed.Eventually(t, "all is free, and nobody at work", func() bool {
						held := int64(0)
						for _, s := range []*testbed.Server{r.server, second, third} {
							held += s.Int(t, "EXISTS", "a", "b", "c", "q")
						}
						return held == 0 && !running("redlatch/multilock.")
					})
				}
				testbed.AtLeast(t, panics, 20, "panics")
			})
		}
	}
}

// shaken acquires, extends and unlocks with a context that panics in its nth call, and reports whether there was one.
func shaken(t *testing.T, l redlatch.Locker, n int64, always bool) bool {
	t.Helper()
	limited, cancel := context.WithCancel(t.Context())
	defer cancel()
	ctx := fragile{limited, new(atomic.Int64), always}
	ctx.left.Store(n)
	var h redlatch.Hold
	var err error
	call := func(f func()) {
		if <-calling(new(atomic.Int64), f); err != nil {
			t.Errorf("panic in call %d: %v", n, err)
		}
	}
	call(func() { h, err = l.Lock(ctx) })
	if h != nil {
		call(func() { err = h.Extend(ctx, time.Minute/4) })
		call(func() { err = h.Unlock(ctx) })
	}
	return ctx.left.Swap(math.MaxInt64) <= 0
}

// TestPanicBesideALateCopy: a panic of the context of a quorum's call that has returned, when a copy comes late, ends
// no goroutine of the client's: the copy is given back.
func TestPanicBesideALateCopy(t *testing.T) {
	r := bare(t)
	second, third := testbed.Standalone(t), testbed.Standalone(t)
	proxy := testbed.NewProxy(t, third.Addr())
	q := redlatch.QuorumLock(r.open().RLock("q"), r.open(at(second)).RLock("q"), r.open(through(proxy)).RLock("q"))
	bed.Unlock(t, bed.Lock(t, t.Context(), q)) // a young server's first copies are all needed
	limited, cancel := context.WithCancel(t.Context())
	defer cancel()
	m := &misbehaving{panics: true}
	trap := proxy.StallReply(testbed.Contains("EVALSHA", "q"))
	h, err := q.Lock(badCtx{limited, m})
	testbed.Must(t, err)
	m.armed.Store(true)
	trap.Release()
	bed.Eventually(t, "the copy is given back", func() bool { return third.Int(t, "EXISTS", "q") == 0 })
	m.armed.Store(false)
	testbed.AtLeast(t, m.met.Load(), 1, "times that it misbehaved")
	bed.Alive(t, h)
	bed.Unlock(t, h)
}
