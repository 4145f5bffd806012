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
	"github.com/redlatch/redlatch/integration/bed"
	"github.com/redlatch/redlatch/internal/luascript"
	"github.com/redlatch/redlatch/internal/testbed"
)

// What a neighbour leaves at the keys of a fair lock's queue.
type queueMess struct {
	leave leaving
	// ends: what is left is dropped, in as many runs as it takes, and the lock is free. Else somebody may stand in
	// front who lives, as far as anybody knows.
	ends bool
}

func queueMesses() map[string]queueMess {
	const past, future, far = "1000000000000", "4000000000000", "1e300"
	const ours, dead = java + "g%d-kkkk.1", "1000000000000 1 1 1 - n "
	huge := strings.Repeat("9", 400)
	list := func(n int, item string) leaving { return filled(n, "RPUSH", luascript.FairQueueKey("l"), item) }
	zset := func(n int, score, item string) leaving {
		return filled(n, "ZADD", luascript.FairTimeoutKey("l"), score, item)
	}
	hash := func(n int, item, want string) leaving {
		return filled(n, "HSET", luascript.FairWantsKey("l"), item, want)
	}
	both := func(n int, score, item string) leaving { return together(list(n, item), zset(n, score, item)) }
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

// TestFairScriptsHaveABound: whatever stands at the keys of a fair lock's queue, no run of a script makes more commands,
// or takes longer, than for a thousand waiters; no call ends in an error of a script; and what is no living waiter is
// dropped, so that the lock is acquired in the end.
func TestFairScriptsHaveABound(t *testing.T) {
	s := testbed.Standalone(t)
	all := queueMesses()
	for _, name := range slices.Sorted(maps.Keys(all)) {
		t.Run(name, func(t *testing.T) {
			s.Do(t, "FLUSHALL", "ASYNC")
			c := bed.Client(t, s.Addr())
			l := c.FairLock("l", redlatch.Fenced(), redlatch.WithSkipAfter(time.Second))
			release := hold(t, l)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			waits := make(chan error, 1)
			go func() {
				err := redlatch.Do(ctx, l, func(context.Context) error { return nil })
				if errors.Is(err, redlatch.ErrLeaseLost) { // the eviction met it, handed over by the unlock before
					err = nil
				}
				waits <- err
			}()
			bed.Eventually(t, "a waiter", func() bool { return s.Int(t, "LLEN", luascript.FairQueueKey("l")) > 0 })
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
				err := op.do(bed.Within(t, time.Minute))
				if _, waited := errors.AsType[*redlatch.NotAcquiredError](err); err != nil && !waited {
					t.Errorf("%s: %.300v", op.name, err)
				}
				boundedRuns(t, s, op.name)
			}
			if all[name].ends {
				if err := attempt(bed.Within(t, time.Minute), l, 50*time.Second); err != nil {
					t.Errorf("the lock can't be acquired: %.300v", err)
				}
				boundedRuns(t, s, "lock")
			}
		})
	}
}

// attempt acquires and releases.
func attempt(ctx context.Context, l redlatch.Locker, wait time.Duration) error {
	return redlatch.TryDo(ctx, l, wait, time.Minute, func(context.Context) error { return nil })
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
