package engine_test

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlatch/redlatch/internal/conn"
	"github.com/redlatch/redlatch/internal/engine"
	"github.com/redlatch/redlatch/internal/luascript"
	"github.com/redlatch/redlatch/internal/testbed"
	"github.com/redlatch/redlatch/lock"
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
		var turns atomic.Int32
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				for time.Now().Before(end) {
					outer := take(t, t.Context(), core, "l")
					inner := take(t, outer.Context(), core, "l")
					turns.Add(1)
					free(t, inner, outer)
				}
			})
		}
		wg.Wait()
		// A tenure, a turn that began before its end, a pause and an acquisition.
		if n := len(f.scripts("acquire")); n < int(long/(4*tenure)) || int(turns.Load()) < 2*n {
			t.Errorf("acquired %d times for %d turns in %v", n, turns.Load(), long)
		}
	})
}

// A break is remembered until the server has answered, and so is that the keys are on another one: also when the table of slots names another
// node for the key by then, which is what follows a break in a cluster, and when no command was
// under way when the connection broke. What another server says, or who is dead anyway, changes
// nothing.
func TestABreakIsRememberedUntilAnAnswer(t *testing.T) {
	readonly := conn.Refusal("READONLY You can't write against a read only replica.")
	for name, tc := range map[string]struct {
		err          error // of a command of another lock
		moves, quiet bool
		told         bool // that the keys are on another server
		passes       bool
	}{
		"none":                                   {passes: true},
		"a lost answer":                          {err: errLost},
		"a lost answer, then a failover":         {err: errLost, moves: true},
		"a command that was not sent":            {err: errUnsent},
		"a server that starts":                   {err: errLoading},
		"a demoted server":                       {err: readonly},
		"a demoted server, then a failover":      {err: readonly, moves: true},
		"a connection without a command":         {quiet: true},
		"the same, and then a failover":          {quiet: true, moves: true},
		"another server":                         {told: true},
		"a slot that moves, nothing else":        {moves: true, passes: true}, // package conn tells of it, as of a connection
		"a refusal that has to do with the name": {err: conn.Refusal("WRONGTYPE Operation against a key"), passes: true},
	} {
		bubble(t, name, func(t *testing.T) {
			var node atomic.Value
			node.Store("10.0.0.1:6379")
			var ended conn.Instant
			f, core := newFakeWith(t, func(f *fakeRedis, cfg *engine.Config) {
				cfg.Tenure = 5 * time.Second // as long as a tenure may be is a third of LeaseTime
				f.topo = conn.Topology{Cluster: true, Node: func(uint16) string { return node.Load().(string) }, Broke: ended.Last}
			})
			h := take(t, t.Context(), core, "{s}l")
			next := locking(t.Context(), core, "{s}l")
			time.Sleep(time.Second)
			if tc.err != nil {
				f.onBefore(fault{script: luascript.Acquire, key: "{s}other", err: tc.err}.hook())
				if _, err := plain(core, "{s}other").TryLock(t.Context(), 0, 0); err == nil {
					t.Error("the server answered")
				}
			}
			if tc.quiet {
				ended.Now()
			}
			if tc.moves {
				node.Store("10.0.0.2:6379")
			}
			if tc.told {
				f.onBefore(fault{script: luascript.Renew, pause: time.Second}.hook()) // nothing is known from there yet
				core.Moved()
			}
			f.forget("{s}l") // the new master has never heard of it
			switch err := h.Unlock(t.Context()); {
			case tc.passes && err != nil:
				t.Errorf("Unlock: %v: it was not passed on", err)
			case !tc.passes && !errors.Is(err, lock.ErrLeaseLost):
				t.Errorf("Unlock: %v: passed on with what the dead master had said", err)
			}
			time.Sleep(time.Minute)
			if h := next.has(t, "the next"); tc.passes {
				_ = h.Unlock(t.Context()) // of what is not there
			} else {
				free(t, h)
			}
		})
	}
}

// A node that was dead when the lock was acquired, or refuses all the time, is no break for the locks
// of the others.
func TestADeadNodeStopsNoPassingOnElsewhere(t *testing.T) {
	for name, failure := range map[string]error{
		"dead": errUnsent, "without replicas": conn.Refusal("NOREPLICAS Not enough good replicas to write."),
	} {
		bubble(t, name, func(t *testing.T) { passesBeside(t, failure) })
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
	f.onBefore(fault{key: "dead", do: func() { asked.Add(1) }, err: failure}.hook())
	ask := start(func() (lock.Hold, error) { return plain(core, "dead").TryLock(t.Context(), 20*time.Second, 0) })
	time.Sleep(5 * time.Second)
	h := take(t, t.Context(), core, "l")
	next := locking(t.Context(), core, "l")
	before := asked.Load()
	time.Sleep(4 * time.Second)
	if asked.Load() == before {
		t.Fatal("nobody asks the dead node: the test tests nothing")
	}
	free(t, h)
	testbed.Equal(t, len(f.scripts("release")), 0, "releases of what is to be passed on")
	free(t, next.has(t, "the next"))
	time.Sleep(20 * time.Second)
	if ask.ends(t); ask.err == nil {
		t.Error("the dead node answered")
	}
}
