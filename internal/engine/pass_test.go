package engine_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlatch/redlatch/internal/conn"
	"github.com/redlatch/redlatch/internal/engine"
	"github.com/redlatch/redlatch/internal/inspect"
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

// A break is remembered until the server has answered: also when the table of slots names another
// node for the key by then, which is what follows a break in a cluster, and when no command was
// under way when the connection broke. What another server says, or who is dead anyway, changes
// nothing.
func TestABreakIsRememberedUntilAnAnswer(t *testing.T) {
	for name, tc := range map[string]struct {
		err          error // of a command of another lock
		moves, quiet bool
		passes       bool
	}{
		"none":                                   {passes: true},
		"a lost answer":                          {err: errLost},
		"a lost answer, then a failover":         {err: errLost, moves: true},
		"a command that was not sent":            {err: errUnsent},
		"a server that starts":                   {err: conn.Refusal("LOADING Redis is loading the dataset in memory")},
		"a demoted server":                       {err: conn.Refusal("READONLY You can't write against a read only replica.")},
		"a demoted server, then a failover":      {err: conn.Refusal("READONLY You can't write against a read only replica."), moves: true},
		"a connection without a command":         {quiet: true},
		"the same, and then a failover":          {quiet: true, moves: true},
		"a slot that moves, nothing else":        {moves: true, passes: true}, // package conn tells of it, as of a connection
		"a refusal that has to do with the name": {err: conn.Refusal("WRONGTYPE Operation against a key"), passes: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var node atomic.Pointer[string]
				first, second := "10.0.0.1:6379", "10.0.0.2:6379"
				node.Store(&first)
				var ended conn.Instant
				f, core := newFakeWith(t, func(f *fakeRedis, cfg *engine.Config) {
					cfg.Tenure = 5 * time.Second // as long as a tenure may be is a third of LeaseTime
					f.topo = conn.Topology{Cluster: true, Node: func(uint16) string { return *node.Load() }, Broke: ended.Last}
				})
				h := take(t, t.Context(), core, "{s}l")
				next := start(func() (lock.Hold, error) { return engine.Open(new(rlock.RLock), core, "{s}l").Lock(t.Context()) })
				time.Sleep(time.Second)
				if tc.err != nil {
					f.onBefore(func(cmd conn.Command) error {
						if cmd.Keys[0] == "{s}other" && cmd.Script == luascript.Acquire {
							return tc.err
						}
						return nil
					})
					if _, err := engine.Open(new(rlock.RLock), core, "{s}other").TryLock(t.Context(), 0, 0); err == nil {
						t.Error("the server answered")
					}
				}
				if tc.quiet {
					ended.Now()
				}
				if tc.moves {
					node.Store(&second)
				}
				f.mu.Lock()
				delete(f.keys, "{s}l") // the new master has never heard of it
				f.mu.Unlock()
				switch err := h.Unlock(t.Context()); {
				case tc.passes && err != nil:
					t.Errorf("Unlock: %v: it was not passed on", err)
				case !tc.passes && !errors.Is(err, lock.ErrLeaseLost):
					t.Errorf("Unlock: %v: passed on with what the dead master had said", err)
				}
				time.Sleep(time.Minute)
				if h := next.has(t, "the next"); tc.passes {
					_ = h.Unlock(t.Context()) // of what is not there
				} else if err := h.Unlock(t.Context()); err != nil {
					t.Error("the next one's Unlock:", err)
				}
			})
		})
	}
}

// A node that was dead when the lock was acquired, or refuses all the time, is no break for the locks
// of the others.
func TestADeadNodeStopsNoPassingOnElsewhere(t *testing.T) {
	for name, failure := range map[string]error{
		"dead": errUnsent, "without replicas": conn.Refusal("NOREPLICAS Not enough good replicas to write."),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { passesBeside(t, failure) })
		})
	}
}

// passesBeside passes a lock on while another node fails.
func passesBeside(t *testing.T, failure error) {
	t.Helper()
	f, core := newFakeWith(t, func(f *fakeRedis, cfg *engine.Config) {
		cfg.Tenure = 5 * time.Second
		f.topo = conn.Topology{Cluster: true, Node: func(slot uint16) string { return fmt.Sprintf("10.0.0.1:%d", slot) }}
	})
	var asked atomic.Int32
	f.onBefore(func(cmd conn.Command) error {
		if cmd.Keys[0] == "dead" {
			asked.Add(1)
			return failure
		}
		return nil
	})
	ask := start(func() (lock.Hold, error) {
		return engine.Open(new(rlock.RLock), core, "dead").TryLock(t.Context(), 20*time.Second, 0)
	})
	time.Sleep(5 * time.Second)
	h := take(t, t.Context(), core, "l")
	next := start(func() (lock.Hold, error) { return engine.Open(new(rlock.RLock), core, "l").Lock(t.Context()) })
	before := asked.Load()
	time.Sleep(4 * time.Second)
	if asked.Load() == before {
		t.Fatal("nobody asks the dead node: the test tests nothing")
	}
	if err := h.Unlock(t.Context()); err != nil {
		t.Error(err)
	}
	if n := len(f.scripts("release")); n > 0 {
		t.Errorf("%d releases: it was not passed on", n)
	}
	if err := next.has(t, "the next").Unlock(t.Context()); err != nil {
		t.Error(err)
	}
	time.Sleep(20 * time.Second)
	synctest.Wait()
	if !ask.over || ask.err == nil {
		t.Error("the dead node answered")
	}
}

// While a command that takes a lock away by force has no answer, the lock is not passed on,
// whatever another one was answered meanwhile; nor as long as one that has got no answer may
// still run.
func TestNothingIsPassedOnWhileAForcedUnlockMayRun(t *testing.T) {
	for name, force := range map[string]func(core *engine.Core){
		"asked twice": func(core *engine.Core) {
			core.Doubt("l")
			core.Doubt("l")(true, inspect.Evicted{})
		},
		"one without an answer": func(core *engine.Core) {
			first, second := core.Doubt("l"), core.Doubt("l")
			first(false, inspect.Evicted{})
			second(true, inspect.Evicted{})
		},
		"answered": func(core *engine.Core) { core.Doubt("l")(true, inspect.Evicted{}) },
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
