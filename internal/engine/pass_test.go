package engine_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlatch/redlatch/internal/conn"
	"github.com/redlatch/redlatch/internal/engine"
	"github.com/redlatch/redlatch/internal/luascript"
	"github.com/redlatch/redlatch/lock"
	"github.com/redlatch/redlatch/rlock"
)

const tenure = 10 * time.Millisecond

// newPassing starts a core that passes locks on.
func newPassing(t *testing.T) (*fakeRedis, *engine.Core) {
	t.Helper()
	return newFakeWith(t, func(_ *fakeRedis, cfg *engine.Config) { cfg.Tenure = tenure })
}

// Re-entries of its holders don't make a tenure longer: others would never have the
// lock.
func TestReentriesDoNotProlongATenure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, core := newPassing(t)
		f.latency = 500 * time.Microsecond
		const long = time.Second
		end := time.Now().Add(long)
		turns := 0
		var mu sync.Mutex
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				for time.Now().Before(end) {
					outer := take(t, t.Context(), core, "l")
					inner := take(t, outer.Context(), core, "l")
					mu.Lock()
					turns++
					mu.Unlock()
					if err := inner.Unlock(context.Background()); err != nil {
						t.Error(err)
					}
					if err := outer.Unlock(context.Background()); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		// A tenure, a turn that began before its end, a pause and an acquisition.
		if n := len(f.scripts("acquire")); n < int(long/(4*tenure)) || turns < 2*n {
			t.Errorf("acquired %d times for %d turns in %v", n, turns, long)
		}
	})
}

// After a command that got no answer, or that of a server that is not what it was, nothing is
// passed on before there is a new one: the node may be another one by now.
func TestNothingIsPassedOnAfterABreak(t *testing.T) {
	for what, failure := range map[string]error{
		"nothing": nil, "no answer": errLost, "not sent": errUnsent,
		"restarted": conn.Refusal("LOADING Redis is loading the dataset in memory"),
		"demoted":   conn.Refusal("READONLY You can't write against a read only replica."),
	} {
		synctest.Test(t, func(t *testing.T) {
			f, core := newPassing(t)
			h := take(t, t.Context(), core, "l")
			got := make(chan error, 1)
			go func() {
				h, err := rlock.New(core, "l").Lock(context.Background())
				if err == nil {
					err = h.Unlock(context.Background())
				}
				got <- err
			}()
			time.Sleep(tenure / 2)
			synctest.Wait()
			if failure != nil {
				f.onBefore(func(cmd conn.Command) error {
					if cmd.Keys[0] == "other" && cmd.Script == luascript.Acquire {
						return failure
					}
					return nil
				})
				if _, err := rlock.New(core, "other").TryLock(t.Context(), 0, 0); err == nil {
					t.Error("the server answered")
				}
			}
			f.mu.Lock()
			delete(f.keys, "l") // the new master has never heard of it
			f.mu.Unlock()
			err := h.Unlock(context.Background())
			if passed := err == nil; passed != (failure == nil) {
				t.Errorf("%s: Unlock: %v", what, err)
			}
			t.Logf("the receiver: %v", <-got)
		})
	}
}

// While a command that takes a lock away by force has no answer, the lock is not passed on,
// whatever another one was answered meanwhile; nor as long as one that has got no answer may
// still run.
func TestNothingIsPassedOnWhileAForcedUnlockMayRun(t *testing.T) {
	for name, force := range map[string]func(core *engine.Core){
		"asked twice": func(core *engine.Core) {
			core.Doubt("l")
			core.Doubt("l")(true)
		},
		"one without an answer": func(core *engine.Core) {
			first, second := core.Doubt("l"), core.Doubt("l")
			first(false)
			second(true)
		},
		"answered": func(core *engine.Core) { core.Doubt("l")(true) },
	} {
		synctest.Test(t, func(t *testing.T) {
			f, core := newPassing(t)
			force(core)
			time.Sleep(time.Millisecond)
			h := take(t, t.Context(), core, "l")
			next := make(chan lock.Hold)
			go func() { next <- take(t, t.Context(), core, "l") }()
			synctest.Wait()
			if err := h.Unlock(t.Context()); err != nil {
				t.Error(err)
			}
			g := <-next
			if sent := len(f.scripts("release")); (sent == 0) != (name == "answered") {
				t.Errorf("%s: %d releases were sent", name, sent)
			}
			if err := g.Unlock(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}
