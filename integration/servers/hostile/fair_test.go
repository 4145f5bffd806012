package hostile

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/luascript"
	"github.com/redlatch/redlatch/internal/testbed"
)

// What a neighbour leaves at the keys of a fair lock's queue.
type queueMess struct {
	leave func(t *testing.T, s *testbed.Server)
	// ends: what is left is dropped, in as many runs as it takes, and the lock is free. Else somebody may stand in
	// front who lives, as far as anybody knows.
	ends bool
}

func queueMesses() map[string]queueMess {
	const past, future, far = "1000000000000", "4000000000000", "1e300"
	queue, scores, wants := luascript.FairQueueKey("l"), luascript.FairTimeoutKey("l"), luascript.FairWantsKey("l")
	const ours, dead = java + "g%d-kkkk.1", "1000000000000 1 1 1 - n "
	huge := strings.Repeat("9", 400)
	list := func(n int, item string) func(*testing.T, *testbed.Server) {
		return func(t *testing.T, s *testbed.Server) { fill(t, s, n, "RPUSH", queue, item) }
	}
	zset := func(n int, score, item string) func(*testing.T, *testbed.Server) {
		return func(t *testing.T, s *testbed.Server) { fill(t, s, n, "ZADD", scores, score, item) }
	}
	hash := func(n int, item, want string) func(*testing.T, *testbed.Server) {
		return func(t *testing.T, s *testbed.Server) { fill(t, s, n, "HSET", wants, item, want) }
	}
	both := func(n int, score, item string) func(*testing.T, *testbed.Server) {
		return together(list(n, item), zset(n, score, item))
	}
	return map[string]queueMess{
		"waiters of ours that died":       {together(both(each, future, ours), hash(each, ours, dead)), true},
		"dead behind one of Redisson's":   {together(both(1, past, java+"%d"), both(3000, "9000000000000", ours), hash(3000, ours, dead)), true},
		"dead without scores":             {list(entries, ours), true},
		"waiters of Redisson's that died": {both(each, past, java+"%d"), true},
		"waiters of Redisson's that live": {both(each, future, java+"%d"), false},
		"waiters that left":               {both(each, "0", ours), true},
		"no waiters":                      {both(each, future, "x%d"), true},
		"no waiters, no scores":           {list(entries, "x%d"), true},
		"scores alone":                    {zset(entries, future, java+"%d"), true},
		"wants alone":                     {hash(entries, ours, dead), true},
		"wants that can't be read":        {together(both(3000, future, ours), hash(3000, ours, "x")), true},
		"empty wants":                     {together(both(3000, future, ours), hash(3000, ours, "")), true},
		"wants of half a line":            {together(both(3000, future, ours), hash(3000, ours, "9999999999999 1")), true},
		"long wants":                      {together(both(100, future, ours), hash(100, ours, strings.Repeat("9", 100_000))), true},
		"huge numbers in wants": {
			together(both(100, far, ours), hash(100, ours, "9999999999999 "+huge+" "+huge+" "+huge+" - n ")), false,
		},
		"wants of other fields": {together(both(100, far, "a:gb"), hash(100, "a:gb", "9999999999999 1 1000 1000 - n ")), true},
		"endless scores":        {both(3000, "inf", ours), true},
		"scores before time":    {both(3000, "-inf", java+"%d"), true},
		"scores without end":    {both(3000, far, java+"%d"), false},
		"one entry, often":      {both(each, future, java+"g1-kkkk.1"), true},
		"an empty entry":        {both(1, "inf", ""), true},
		"a long entry":          {both(1, "inf", java+"g"+strings.Repeat("x", 5<<20)+"-1"), true},
	}
}

// together leaves one after the other.
func together(f ...func(*testing.T, *testbed.Server)) func(*testing.T, *testbed.Server) {
	return func(t *testing.T, s *testbed.Server) {
		for _, f := range f {
			f(t, s)
		}
	}
}

// TestFairScriptsHaveABound: whatever stands at the keys of a fair lock's queue, no run of a script makes more commands,
// or takes longer, than for a thousand waiters; no call ends in an error of a script; and what is no living waiter is
// dropped, so that the lock is acquired in the end.
func TestFairScriptsHaveABound(t *testing.T) {
	s := testbed.Standalone(t)
	all := queueMesses()
	for _, name := range slices.Sorted(maps.Keys(all)) {
		t.Run(name, func(t *testing.T) {
			s.Do(t, "FLUSHALL", "ASYNC")
			c := dial(t, s.Addr())
			l := c.FairLock("l", redlatch.Fenced(), redlatch.WithSkipAfter(time.Second))
			release := hold(t, l)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			waits := make(chan error, 1)
			go func() {
				h, err := l.Lock(ctx)
				if err == nil {
					err = h.Unlock(ctx)
				}
				if errors.Is(err, redlatch.ErrLeaseLost) { // the eviction met it, handed over by the unlock before
					err = nil
				}
				waits <- err
			}()
			for s.Int(t, "LLEN", luascript.FairQueueKey("l")) == 0 {
				time.Sleep(time.Millisecond)
			}
			all[name].leave(t, s)
			for _, op := range []operation{
				{"state", func(ctx context.Context) error { _, err := l.State(ctx); return err }},
				{"inspect", func(ctx context.Context) error { _, err := c.Inspect(ctx, "l"); return err }},
				{"try", func(ctx context.Context) error { return attempt(ctx, l, 0) }},
				{"wait and leave", func(ctx context.Context) error { return attempt(ctx, l, 20*time.Millisecond) }},
				{"refresh", func(ctx context.Context) error { return attempt(ctx, l, 500*time.Millisecond) }},
				{"unlock", release},
				{"evict", func(ctx context.Context) error { _, err := l.ForceUnlock(ctx); return err }},
				{"try", func(ctx context.Context) error { return attempt(ctx, l, 0) }},
				{"wait and leave", func(ctx context.Context) error { return attempt(ctx, l, 20*time.Millisecond) }},
				{"leave", func(context.Context) error {
					if all[name].ends {
						return <-waits // it has acquired the lock, or does now
					}
					cancel()
					if err := <-waits; err != nil && !errors.Is(err, context.Canceled) {
						return err
					}
					return nil
				}},
			} {
				s.Do(t, "CONFIG", "RESETSTAT")
				err := op.do(within(t, time.Minute))
				if _, waited := errors.AsType[*redlatch.NotAcquiredError](err); err != nil && !waited {
					t.Errorf("%s: %.300v", op.name, err)
				}
				boundedRuns(t, s, op.name)
			}
			if all[name].ends {
				if err := attempt(within(t, time.Minute), l, 50*time.Second); err != nil {
					t.Errorf("the lock can't be acquired: %.300v", err)
				}
				boundedRuns(t, s, "lock")
			}
		})
	}
}

// attempt acquires and releases.
func attempt(ctx context.Context, l redlatch.Locker, wait time.Duration) error {
	h, err := l.TryLock(ctx, wait, time.Minute)
	if err == nil {
		err = h.Unlock(ctx)
	}
	return err
}

// boundedRuns is bounded for an operation of several runs, of which each has the bound.
func boundedRuns(t *testing.T, s *testbed.Server, op string) {
	t.Helper()
	st := s.CommandStats(t)
	calls, runs, took := int64(0), st.Calls["evalsha"]+st.Calls["eval"], time.Duration(0)
	for name, n := range st.Calls {
		calls += n
		switch name {
		case "eval", "evalsha":
			took += st.Time[name]
		case "del":
			took -= st.Time[name]
		}
	}
	if runs = max(runs, 1); calls/runs > mostCalls || took/time.Duration(runs) > mostTime {
		t.Errorf("%s: %d commands and %v in each of %d runs: %v", op, calls/runs, took/time.Duration(runs), runs, st.Calls)
	}
}

// When a key of a fair lock holds something else, every call says which key it is and what to do,
// and once that is done the lock works, without a restart.
func TestAKeyOfAFairLockThatHoldsSomethingElse(t *testing.T) {
	s := testbed.Standalone(t)
	for _, key := range []string{
		luascript.FairQueueKey("l"), luascript.FairTimeoutKey("l"), luascript.FairWantsKey("l"), luascript.VoidKey("l"),
	} {
		t.Run(key, func(t *testing.T) {
			s.Do(t, "FLUSHALL")
			l := dial(t, s.Addr()).FairLock("l", redlatch.WithSkipAfter(time.Second))
			release := hold(t, l)
			s.Do(t, "SET", key, "x")
			named := func(op string, err error) {
				t.Helper()
				var refused *redlatch.ServerError
				if !errors.As(err, &refused) || !strings.Contains(err.Error(), key) || !strings.Contains(err.Error(), "delete") {
					t.Errorf("%s: %v", op, err)
				}
			}
			named("waiting", attempt(within(t, 20*time.Second), l, 10*time.Second))
			if err := release(t.Context()); err != nil {
				t.Errorf("unlock: %v", err)
			}
			if key != luascript.FairWantsKey("l") && key != luascript.FairTimeoutKey("l") { // a free lock without a queue does without
				named("the free lock", attempt(within(t, 20*time.Second), l, 0))
			}
			s.Do(t, "DEL", key)
			if err := attempt(within(t, 20*time.Second), l, 10*time.Second); err != nil {
				t.Errorf("after the DEL: %v", err)
			}
		})
	}
}
