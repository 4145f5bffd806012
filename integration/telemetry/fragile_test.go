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
	"github.com/redlatch/redlatch/internal/luascript"
	"github.com/redlatch/redlatch/internal/testbed"
)

// fragile is a context of a type of the user's that panics after so many calls: once, or from then on.
type fragile struct {
	context.Context
	left   *atomic.Int64
	always bool
}

func (f fragile) called() {
	left := f.left.Add(-1)
	if left == 0 {
		time.Sleep(2 * time.Millisecond) // a command that is under way is answered meanwhile
	}
	if left == 0 || f.always && left < 0 {
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

func (f fragile) Err() error {
	f.called()
	return f.Context.Err()
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

// TestPanicEndsWhatIsTold: a panic of the context of a call, in whichever of the calls of its methods and whether it stays
// so or not, or of a NameMapper, leaves no span without an end, and nobody counted who waits or holds.
func TestPanicEndsWhatIsTold(t *testing.T) {
	r := newRig(t)
	mapped := r.open(func(c *redlatch.Config) { c.NameMapper = func(string) string { panic("code of the user's") } })
	c, far := r.client, r.open(at(testbed.Standalone(t)))
	third := r.open(at(testbed.Standalone(t)))
	fenced := redlatch.QuorumLock(c.RLock("q", redlatch.Fenced()), far.RLock("q", redlatch.Fenced()), third.RLock("q", redlatch.Fenced()))
	bed.Unlock(t, bed.Lock(t, t.Context(), fenced)) // a young server's first copies are all needed
	busy := bed.Lock(t, t.Context(), c.RLock("busy"))
	const wait = 10 * time.Millisecond
	for what, call := range map[string]func(ctx context.Context){
		"a busy lock":      func(ctx context.Context) { _, _ = c.RLock("busy").TryLock(ctx, wait, 0) },
		"a busy fair lock": func(ctx context.Context) { _, _ = c.FairLock("busy").TryLock(ctx, wait, 0) },
		"a busy read lock": func(ctx context.Context) { _, _ = c.ReadWriteLock("busy").ReadLock().TryLock(ctx, wait, 0) },
		"a busy MultiLock": func(ctx context.Context) {
			_, _ = redlatch.MultiLock(far.RLock("free"), c.RLock("busy")).TryLock(ctx, wait, 0)
		},
		"a lock":          func(ctx context.Context) { section(ctx, c.RLock("a")) },
		"a fair lock":     func(ctx context.Context) { section(ctx, c.FairLock("b")) },
		"a fenced quorum": func(ctx context.Context) { section(ctx, fenced) },
		"a MultiLock":     func(ctx context.Context) { section(ctx, redlatch.MultiLock(c.RLock("c"), far.RLock("d"))) },
		"State":           func(ctx context.Context) { _, _ = c.RLock("busy").State(ctx) },
		"ForceUnlock":     func(ctx context.Context) { _, _ = c.RLock("free").ForceUnlock(ctx) },
		"an operator":     func(ctx context.Context) { _, _ = c.ForceUnlock(ctx, "free") },
		"an inspector":    func(ctx context.Context) { _, _ = c.Inspect(ctx, "busy") },
		"a NameMapper":    func(ctx context.Context) { _, _ = mapped.Inspect(ctx, "busy") },
	} {
		for _, always := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/always=%t", what, always), func(t *testing.T) {
				for n, quiet := int64(1), 0; quiet < 2 && n < 100 && !t.Failed(); n++ {
					ctx := fragile{t.Context(), new(atomic.Int64), always}
					ctx.left.Store(n)
					<-calling(new(atomic.Int64), func() { call(ctx) })
					if ctx.left.Swap(math.MaxInt64) > 0 {
						quiet++
					}
					bed.Eventually(t, fmt.Sprintf("the end of all that is told, after a panic in call %d", n), func() bool {
						return r.unended() == 0 && r.sum("lock.waiting") == 0 && r.sum("lock.held") == 1
					})
				}
			})
		}
	}
	bed.Unlock(t, busy)
}

// section acquires, extends and unlocks.
func section(ctx context.Context, l redlatch.Locker) {
	h, err := l.Lock(ctx)
	if err != nil {
		return
	}
	over := false
	defer func() {
		if !over {
			_ = h.Unlock(context.Background())
		}
	}()
	_ = h.Extend(ctx, time.Minute)
	over = true
	_ = h.Unlock(ctx)
}

// opaque is one that the library's contexts know nothing of: what is derived from it asks it in a goroutine.
type opaque struct{ fragile }

func (opaque) Value(any) any { return nil }

// TestPanicOfAContextReachesTheCaller: a context that panics, in whichever call of its methods, while State or ForceUnlock
// asks the server ends no more than that call: it is asked in the caller's goroutine only.
func TestPanicOfAContextReachesTheCaller(t *testing.T) {
	c := bare(t).open()
	for what, call := range map[string]func(ctx context.Context){
		"State":       func(ctx context.Context) { _, _ = c.RLock("l").State(ctx) },
		"ForceUnlock": func(ctx context.Context) { _, _ = c.RLock("l").ForceUnlock(ctx) },
	} {
		t.Run(what, func(t *testing.T) {
			calls := int64(1)
			for ; ; calls++ {
				ctx := opaque{fragile{t.Context(), new(atomic.Int64), false}}
				ctx.left.Store(calls)
				sound := new(atomic.Int64)
				<-calling(sound, func() { call(ctx) })
				if ctx.left.Swap(math.MaxInt64) > 0 {
					break
				}
				testbed.Equal(t, sound.Load(), 0, "calls that went on")
			}
			testbed.AtLeast(t, calls, 3, "calls of its methods")
		})
	}
}

// TestPanicOfAContextUsesUpNoPeriod: a panic of the context of a job of Once, in whichever of the calls of its methods and
// whether it stays so or not, leaves no lock held, and uses up no period unless the run has begun.
func TestPanicOfAContextUsesUpNoPeriod(t *testing.T) {
	for _, always := range []bool{false, true} {
		t.Run(fmt.Sprintf("always=%t", always), func(t *testing.T) {
			r := newRig(t)
			panics := int64(0)
			for panicked := true; panicked && !t.Failed(); panics++ {
				limited, cancel := context.WithCancel(t.Context())
				ctx := fragile{limited, new(atomic.Int64), always}
				ctx.left.Store(panics + 1)
				ran := int64(0)
				<-calling(new(atomic.Int64), func() {
					_, _ = r.client.Once("job").Do(ctx, time.Hour, func(context.Context) error { ran++; return nil })
				})
				panicked = ctx.left.Swap(math.MaxInt64) <= 0
				cancel()
				bed.Eventually(t, fmt.Sprintf("nothing is left but that of a run, after a panic in call %d", panics+1), func() bool {
					return r.server.Int(t, "EXISTS", "job") == 0 && r.server.Int(t, "EXISTS", luascript.OnceKey("job")) == ran
				})
				r.server.Do(t, "DEL", luascript.OnceKey("job"))
			}
			testbed.AtLeast(t, panics, 5, "panics")
		})
	}
}

// TestPanicBesideALateCopy: the context of a quorum's call that has returned, which would panic, is not asked when a copy
// comes late: the copy is the hold's.
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
	time.Sleep(100 * time.Millisecond) // it would be given back by then
	testbed.Equal(t, third.Int(t, "EXISTS", "q"), 1, "late copies")
	m.armed.Store(false)
	testbed.AtMost(t, m.met.Load(), 0, "times that it misbehaved")
	bed.Alive(t, h)
	bed.Unlock(t, h)
	testbed.Equal(t, third.Int(t, "EXISTS", "q"), 0, "late copies after the Unlock")
}
