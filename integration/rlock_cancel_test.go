package integration

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/luascript"
	"github.com/redlatch/redlatch/internal/testbed"
)

// ctx ends at every point at which an acquisition waits: it returns at once and
// leaves nothing behind.

// An acquisition whose ctx ends returns at once wherever it waits, leaves nothing on the server and
// holds up nobody.
func TestRLockContextEndsAtEveryAwaitPoint(t *testing.T) {
	t.Parallel()
	type scene struct {
		s      *testbed.Server
		p      *testbed.Proxy
		c      *redlatch.Client // through the proxy
		holder *redlatch.Client
	}
	nothing := func() {}
	hold := func(t *testing.T, x scene) func() {
		t.Helper()
		h := rlLock(t, t.Context(), x.holder.RLock("l"), redlatch.WithLease(10*time.Minute))
		return func() { rlUnlock(t, h) }
	}
	owned := func(ctx context.Context) context.Context { return redlatch.WithOwner(ctx, "one") }
	for name, point := range map[string]func(t *testing.T, x scene, start func()) (arrived, after func()){
		"the request is on its way": func(t *testing.T, x scene, start func()) (func(), func()) {
			t.Helper()
			trap := x.p.StallRequest(rlRuns(luascript.Acquire, "l"))
			start()
			return func() { trap.Wait(t) }, trap.Release
		},
		"the reply is on its way": func(t *testing.T, x scene, start func()) (func(), func()) {
			t.Helper()
			trap := x.p.StallReply(rlRuns(luascript.Acquire, "l"))
			start()
			return func() { trap.Wait(t) }, trap.Release
		},
		"the pause after an error": func(t *testing.T, x scene, start func()) (func(), func()) {
			t.Helper()
			x.p.Refuse()
			x.p.Cut()
			start()
			return func() { rlMarked(t, "(*acquisition).pause") }, func() { x.p.Admit(t) }
		},
		"the reply was lost, the pause after it": func(t *testing.T, x scene, start func()) (func(), func()) {
			t.Helper()
			x.p.Refuse()
			trap := x.p.DropReply(rlRuns(luascript.Acquire, "l"))
			start()
			return func() { trap.Wait(t) }, func() { x.p.Admit(t) }
		},
		"the subscription is not confirmed": func(t *testing.T, x scene, start func()) (func(), func()) {
			t.Helper()
			free := hold(t, x)
			trap := x.p.StallReply(testbed.Contains("SUBSCRIBE", rlCalls("l")))
			start()
			return func() { trap.Wait(t) }, func() { trap.Release(); free() }
		},
		"at the head of the line": func(t *testing.T, x scene, start func()) (func(), func()) {
			t.Helper()
			free := hold(t, x)
			start()
			return func() { rlSubscribed(t, x.s, "l", 1); rlQuiet(t, x.s) }, free
		},
		"behind another waiter": func(t *testing.T, x scene, start func()) (func(), func()) {
			t.Helper()
			free := hold(t, x)
			first := rlAsync(context.Background(), x.c.RLock("l"))
			rlSubscribed(t, x.s, "l", 1)
			start()
			return func() { rlMarked(t, "(*acquisition).sleep") }, func() {
				free()
				rlUnlock(t, rlGet(t, first).hold)
			}
		},
		"the try after a message": func(t *testing.T, x scene, start func()) (func(), func()) {
			t.Helper()
			free := hold(t, x)
			start()
			rlSubscribed(t, x.s, "l", 1)
			rlQuiet(t, x.s)
			trap := x.p.StallReply(rlRuns(luascript.Acquire, "l"))
			free()
			return func() { trap.Wait(t) }, trap.Release
		},
		"another command of the same owner": func(t *testing.T, x scene, start func()) (func(), func()) {
			t.Helper()
			h := rlLock(t, owned(context.Background()), x.c.RLock("l"))
			trap := x.p.StallReply(rlRuns(luascript.Reenter, "l"))
			second := rlAsync(owned(context.Background()), x.c.RLock("l"))
			trap.Wait(t)
			start()
			return func() { rlMarked(t, "(*Gate).Enter") }, func() {
				trap.Release()
				rlUnlock(t, rlGet(t, second).hold)
				rlUnlock(t, h)
			}
		},
		"the reply to a re-entry": func(t *testing.T, x scene, start func()) (func(), func()) {
			t.Helper()
			h := rlLock(t, owned(context.Background()), x.c.RLock("l"))
			trap := x.p.StallReply(rlRuns(luascript.Reenter, "l"))
			start()
			return func() { trap.Wait(t) }, func() { trap.Release(); rlUnlock(t, h) }
		},
		"before it began": func(_ *testing.T, _ scene, start func()) (func(), func()) { start(); return nothing, nothing },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var x scene
			x.s, x.p, x.c = rlProxied(t)
			x.holder = rlClient(t, x.s.Addr())
			rlUnlock(t, rlLock(t, t.Context(), x.c.RLock("warm")))
			ctx, cancel := context.WithCancel(owned(t.Context()))
			defer cancel()
			var got <-chan rlAttempt
			arrived, after := point(t, x, func() {
				if name == "before it began" {
					cancel()
				}
				testbed.Mark(t.Name(), func() { got = rlAsync(ctx, x.c.RLock("l")) })
			})
			arrived()
			cancelled := time.Now()
			cancel()
			r := rlGet(t, got)
			rlWant(t, r.err, context.Canceled)
			if !waited(r.err) { // unavailable, not busy, in the pause after an error
				t.Error(r.err)
			}
			if took := r.at.Sub(cancelled); took > rlSlack {
				t.Errorf("returned %v after ctx had ended", took)
			}
			after()
			rlUntil(t, "nothing left on the server", func() bool {
				return x.s.Int(t, "EXISTS", "l") == 0 && rlSubscriptions(t, x.s, "l") == 0
			})
			rlUnlock(t, rlLock(t, owned(t.Context()), x.c.RLock("l")))
		})
	}
}

// An acquisition whose ctx ends leaves nothing, at whichever of 1,000 random moments that is, on a
// network with random delays, by owners of their own and by one that the goroutines share.
func TestRLockContextEndsAtRandomMoments(t *testing.T) {
	s, p, c := rlProxied(t)
	stop := make(chan struct{})
	var shaker sync.WaitGroup
	shaker.Go(func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(5 * time.Millisecond):
			}
			p.Delay(testbed.Replies, time.Duration(rand.IntN(3))*time.Millisecond)
			p.Delay(testbed.Requests, time.Duration(rand.IntN(3))*time.Millisecond)
			if rand.IntN(100) == 0 {
				p.Cut()
			}
		}
	})
	rlUnlock(t, rlLock(t, t.Context(), c.RLock("warm")))
	goroutines := runtime.NumGoroutine()
	var wg sync.WaitGroup
	var mu sync.Mutex
	acquired, ended := 0, 0
	for g := range 8 {
		wg.Go(func() {
			for i := range 125 {
				ctx := t.Context()
				if g%2 == 0 {
					ctx = redlatch.WithOwner(ctx, "one")
				}
				ctx, cancel := context.WithTimeout(ctx, time.Duration(rand.Int64N(int64(12*time.Millisecond))))
				l := c.RLock(fmt.Sprintf("l%d", i%3))
				h, err := l.Lock(ctx)
				switch {
				case err == nil:
					err = h.Unlock(ctx)
				case errors.Is(err, context.DeadlineExceeded) && waited(err):
					err = nil
				}
				if err != nil {
					t.Errorf("round %d: %v", i, err)
				}
				mu.Lock()
				if h != nil {
					acquired++
				} else {
					ended++
				}
				mu.Unlock()
				cancel()
			}
		})
	}
	wg.Wait()
	close(stop)
	shaker.Wait()
	t.Logf("%d acquired, %d ended", acquired, ended)
	if acquired == 0 || ended == 0 {
		t.Error("one of the outcomes was not tried")
	}
	rlUntil(t, "nothing left on the server", func() bool {
		return s.Int(t, "EXISTS", "l0", "l1", "l2") == 0 && rlSubscriptions(t, s, "l0")+rlSubscriptions(t, s, "l1")+rlSubscriptions(t, s, "l2") == 0
	})
	rlUntil(t, "no goroutine left", func() bool { return runtime.NumGoroutine() <= goroutines+4+8 /* the proxy's */ })
	rlUntil(t, "two connections", func() bool { all, _ := rlConnections(t, s); return all <= 2 })
	for i := range 3 {
		rlUnlock(t, rlLock(t, t.Context(), c.RLock(fmt.Sprintf("l%d", i))))
	}
}

// More acquisitions than may be under way at once, on a server that does not
// answer: each hears its ctx, and those that had not sent anything never do.
func TestRLockContextEndsBehindAStuckServer(t *testing.T) {
	t.Parallel()
	s := rlServer(t)
	rlLoad(t, s)
	c := rlClient(t, s.Addr(), rlLease(time.Minute), func(c *redlatch.Config) {
		c.Redis.ConnWriteTimeout = 20 * time.Second
	})
	rlUnlock(t, rlLock(t, t.Context(), c.RLock("warm")))
	s.Freeze(t)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for i := range 1500 {
		wg.Go(func() {
			if _, err := c.RLock(fmt.Sprintf("l%d", i)).Lock(ctx); !errors.Is(err, context.Canceled) {
				t.Errorf("Lock: %v", err)
			}
		})
	}
	rlUntil(t, "all under way", func() bool {
		return testbed.GoroutinesIn("(*Call).Wait") >= 1500
	})
	cancelled := time.Now()
	cancel()
	wg.Wait()
	// Who waited for an answer would wait until the connection is given up, after ConnWriteTimeout.
	if took := time.Since(cancelled); took > 6*time.Second {
		t.Errorf("1,500 acquisitions returned %v after ctx had ended", took)
	}
	s.Thaw(t)
	rlUntil(t, "nothing left", func() bool {
		return len(s.List(t, "KEYS", "l*")) == 0 && testbed.GoroutinesIn("(*giving).run") == 0
	})
	rlUnlock(t, rlLock(t, t.Context(), c.RLock("l1")))
}
