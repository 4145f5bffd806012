package engine_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlatch/redlatch/internal/engine"
	"github.com/redlatch/redlatch/internal/held"
	"github.com/redlatch/redlatch/internal/luascript"
	"github.com/redlatch/redlatch/internal/testbed"
	"github.com/redlatch/redlatch/lock"
)

// A panic in a user's code that the caller recovers from, as net/http does, costs that call: not
// the other waiters of the lock, nor its owner's next calls, nor Close. The lock is free then.
func TestPanicOfAnObserver(t *testing.T) {
	points := map[string][]string{
		"lock": {"context", "acquire", "trace", "attempt", "link", "held", "end", "command:acquire", "command end:acquire"},
		// of one who waits: at "busy" and "wait" before it sleeps
		"waiter": {"acquire", "trace", "attempt", "busy", "wait", "link", "held", "end", "command:acquire", "command end:acquire"},
		"unlock": {atRelease, "command:release", "command end:release", "ended:released:l", atReleaseEnd},
		"extend": {atExtend, "command:reenter", "command end:reenter", atExtendEnd},
	}
	for call, all := range points {
		for _, where := range all {
			for _, tenure := range []time.Duration{0, time.Second} { // whether locks are passed on
				bubble(t, call+" "+where+" "+tenure.String(), func(t *testing.T) { panicsAt(t, call, where, tenure) })
			}
		}
	}
}

func panicsAt(t *testing.T, call, where string, tenure time.Duration) {
	type rough struct{}
	var bad atomic.Bool
	var armed atomic.Bool
	o := &users{func(ctx context.Context, at string, _ error) {
		if where == "context" && at == "command:acquire" && bad.CompareAndSwap(true, false) {
			armed.Store(true)
		}
		mine := ctx.Value(rough{}) != nil || strings.HasPrefix(at, "ended:") || at == "held"
		if at == where && mine && bad.CompareAndSwap(true, false) {
			panic("a span processor of the user's")
		}
	}}
	f, core := newFakeWith(t, func(_ *fakeRedis, cfg *engine.Config) {
		cfg.Observer, cfg.Tenure = o, tenure
	})
	job := held.WithOwner(t.Context(), "job")
	var mine context.Context = roughContext{context.WithValue(job, rough{}, true), &armed}
	recovered := func(f func()) (what any) {
		defer func() { what = recover() }()
		f()
		return nil
	}
	locks := func() { // its hold is dropped, if it got one
		if h, err := plain(core, "l").Lock(mine); err == nil {
			_ = h.Unlock(mine)
		}
	}
	var next *got
	queue := func() {
		next = start(func() (lock.Hold, error) { return plain(core, "l").Lock(t.Context()) })
	}
	switch call {
	case "lock":
		bad.Store(true)
		recovered(locks)
	case "waiter":
		h := take(t, t.Context(), core, "l")
		bad.Store(true)
		go recovered(locks)
		synctest.Wait()
		queue()
		free(t, h)
	case "unlock":
		h := take(t, mine, core, "l")
		if tenure == 0 {
			queue() // else it is passed on without a command
		}
		bad.Store(true)
		recovered(func() { _ = h.Unlock(mine) })
		if h.Context().Err() == nil {
			t.Error("the hold that is being unlocked has not ended")
		}
	case "extend":
		h := take(t, mine, core, "l")
		bad.Store(true)
		recovered(func() { _ = h.Extend(mine, time.Minute) })
		free(t, h) // which was not extended
	}
	time.Sleep(time.Second)
	synctest.Wait()
	if bad.Load() || armed.Load() {
		t.Fatal("nothing panicked")
	}
	if next == nil {
		queue()
	}
	free(t, next.has(t, "the next one"))
	again := start(func() (lock.Hold, error) { return plain(core, "l").TryLock(job, 0, 0) })
	free(t, again.has(t, "the same owner"))
	synctest.Wait()
	testbed.Equal(t, f.count("l"), 0, "whether the lock is held by nobody")
	testbed.Equal(t, core.Holding(), 0, "holds that are counted")
	closes(t, core)
}

// Nor does the panic of a reader that follows another one of its process cost the others that do.
func TestPanicOfAFollower(t *testing.T) {
	for _, where := range []string{"busy", "wait", "link"} {
		bubble(t, where, func(t *testing.T) {
			type rough struct{}
			var bad atomic.Bool
			b, core := newByHand(t, &users{func(ctx context.Context, at string, _ error) {
				if ctx.Value(rough{}) != nil && at == where && bad.CompareAndSwap(true, false) {
					panic("a span processor of the user's")
				}
			}})
			l := sharing(core)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			read := func(ctx context.Context) *got {
				return start(func() (lock.Hold, error) { return l.ReadLock().Lock(ctx) })
			}
			lead := read(ctx)
			bad.Store(true)
			panicked := start(func() (lock.Hold, error) {
				defer func() { _ = recover() }()
				_, _ = l.ReadLock().Lock(context.WithValue(t.Context(), rough{}, true))
				return nil, nil
			})
			behind := read(t.Context())
			b.tell(b.only(luascript.RWRead, ""), busyRW(0), nil) // those who follow hear of it
			cancel()                                             // the next one leads
			lead.ends(t)
			for range 8 { // whoever leads is let in, and brings in the others
				b.tellAll(1)
				time.Sleep(2 * time.Second)
			}
			if panicked.ends(t); bad.Load() {
				t.Error("no panic")
			}
			behind.has(t, "the reader behind")
			closed := start(func() (lock.Hold, error) {
				core.Close()
				core.Wait()
				return nil, nil
			})
			for range 10 {
				b.tellAll(0)
				time.Sleep(time.Second)
			}
			closed.ends(t)
		})
	}
}

// roughContext is a context of a user's own type: it panics once when it is asked for what a
// command that is under way waits for.
type roughContext struct {
	context.Context
	armed *atomic.Bool
}

func (c roughContext) Done() <-chan struct{} {
	if c.armed.CompareAndSwap(true, false) {
		panic("a context of the user's")
	}
	return c.Context.Done()
}
