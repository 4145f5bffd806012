package hostile

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/integration/bed"
	"github.com/redlatch/redlatch/internal/luascript"
	"github.com/redlatch/redlatch/internal/testbed"
)

// How many entries a neighbour leaves at a key: enough that a script shows that reads them by one
// command, or that asks for each.
const (
	entries = 1_000_000
	each    = 100_000
)

// The bounds of one call of the SDK: commands that its scripts ran, and the server's own time for all
// (of its CPU, so that another process on the machine adds none) without that of freeing keys, which
// costs what somebody has written, once. A script that walks a million entries takes two to ten times
// as long.
const (
	mostCalls = 8000
	mostTime  = 250 * time.Millisecond
)

// fill adds n items to a key by a command, with %d in an item replaced by its number.
func fill(t *testing.T, s *testbed.Server, n int, command, key string, item ...string) {
	t.Helper()
	const step = 100_000
	for from := 0; from < n; from += step {
		s.Do(t, append([]string{"EVAL", `
local parts = {}
for k = 3, #ARGV do parts[k - 2] = {string.match(ARGV[k], '^(.*)%%d(.*)$')} end
local i, to = tonumber(ARGV[1]), tonumber(ARGV[2])
while i < to do
  local all = {}
  for _ = i, math.min(i + 500, to) - 1 do
    local n = string.format('%012d', i)
    for k, p in ipairs(parts) do all[#all + 1] = p[1] and p[1] .. n .. p[2] or ARGV[k + 2] end
    i = i + 1
  end
  redis.call(KEYS[1], KEYS[2], unpack(all))
end`, "2", command, key, strconv.Itoa(from), strconv.Itoa(min(from+step, n))}, item...)...)
	}
}

// leaving is what a neighbour does to the keys of a lock.
type leaving = func(t *testing.T, s *testbed.Server)

func filled(n int, command, key string, item ...string) leaving {
	return func(t *testing.T, s *testbed.Server) { fill(t, s, n, command, key, item...) }
}

func done(args ...string) leaving {
	return func(t *testing.T, s *testbed.Server) { s.Do(t, args...) }
}

// together leaves one after the other.
func together(f ...leaving) leaving {
	return func(t *testing.T, s *testbed.Server) {
		for _, f := range f {
			f(t, s)
		}
	}
}

// mess is what a neighbour leaves at the keys of the lock "l".
type mess struct {
	before func(t *testing.T, c *redlatch.Client) func(context.Context) error // takes a hold first; its release is measured
	leave  leaving
}

// messes are by name.
func messes() map[string]mess {
	const l, past, future = "l", "1000000000000", "4000000000000"
	rw := func(mode, count string) leaving {
		return together(done("HSET", l, "mode", mode), filled(60, "HSET", l, java+"%d", count), done("PEXPIRE", l, "60000"))
	}
	zset := func(score, key string) leaving { return filled(each, "ZADD", key, score, java+"g%d-kkkk.1") }
	list := func(item string) leaving { return filled(each, "RPUSH", luascript.FairQueueKey(l), item) }
	line := java + "g1-kkkk.1 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01\n"
	trace := done("SET", luascript.TraceKey(l), strings.Repeat(line, 20<<20/len(line)))
	leases, writers, marks := luascript.RWLeasesKey(l), luascript.RWWritersKey(l), luascript.RWMarksKey(l)
	readers, turn, queue, wants := luascript.RWReadersKey(l), luascript.RWTurnKey(l), luascript.FairQueueKey(l), luascript.FairWantsKey(l)
	reads := func(t *testing.T, c *redlatch.Client) func(context.Context) error {
		return hold(t, c.ReadWriteLock(l).ReadLock())
	}
	both := func(t *testing.T, c *redlatch.Client) func(context.Context) error {
		w := bed.Lock(t, t.Context(), c.ReadWriteLock(l).WriteLock(), redlatch.WithLease(time.Minute))
		bed.Lock(t, w.Context(), c.ReadWriteLock(l).ReadLock(), redlatch.WithLease(time.Minute))
		return w.Unlock
	}
	plain := func(t *testing.T, c *redlatch.Client) func(context.Context) error { return hold(t, c.RLock(l)) }
	fields := filled(entries, "HSET", l, java+"%d", "1")
	many := together(done("HSET", l, "mode", "read"), fields, done("PEXPIRE", l, "60000"))
	return map[string]mess{
		"readers that hold 3,000,000 times":         {nil, rw("read", "3000000")},
		"readers that hold 1,000 times":             {nil, rw("read", "1000")},
		"readers that hold too often to tell":       {nil, rw("read", "99999999999999")},
		"readers without a number":                  {nil, rw("read", "1e308")},
		"writers that hold 3,000,000 times":         {nil, rw("write", "3000000")},
		"beside a reader":                           {reads, rw("read", "1000")},
		"beside a writer that reads":                {both, rw("write", "1000")},
		"many readers":                              {nil, many},
		"many beside a reader":                      {reads, many},
		"many beside a writer that reads":           {both, fields},
		"leases that are over":                      {reads, zset(past, leases)},
		"leases of a writer that are over":          {both, zset(past, leases)},
		"leases of readers that are over":           {nil, together(many, zset(past, leases))},
		"leases to come":                            {reads, zset(future, leases)},
		"writers without marks":                     {nil, zset("1", writers)},
		"writers with a mark apart":                 {nil, together(zset("1", writers), done("ZADD", marks, future, "x"))},
		"writers that are dead":                     {nil, together(zset("1", writers), zset(past, marks))},
		"writers that live":                         {nil, together(zset("1", writers), zset(future, marks))},
		"readers that are dead":                     {plain, together(zset(past, readers), zset(past, turn))},
		"readers that wait":                         {nil, together(zset(future, readers), zset(future, turn))},
		"void":                                      {nil, filled(each, "SADD", luascript.VoidKey(l), "x%d")},
		"a hash":                                    {nil, filled(entries, "HSET", l, "x%d", "1")},
		"a text":                                    {nil, done("SET", l, strings.Repeat("x", 20<<20))},
		"a long owner":                              {nil, done("HSET", l, java+strings.Repeat("x", 5<<20), "1")},
		"a long owner that reads":                   {nil, done("HSET", l, "mode", "read", java+strings.Repeat("x", 5<<20), "1")},
		"a long count":                              {nil, done("HSET", l, java+"1", strings.Repeat("1", 5<<20))},
		"a long trace":                              {plain, trace},
		"a long trace of readers":                   {nil, together(rw("read", "1"), done("ZADD", leases, future, java+"000000000001"), trace)},
		"a queue of the dead":                       {plain, list(java + "g%d-kkkk.1")},
		"a queue of foreigners":                     {plain, list(java + "%d")},
		"a queue of the dead, and the lock is free": {nil, list(java + "g%d-kkkk.1")},
		"a queue of foreigners, and it is free":     {nil, list(java + "%d")},
		"a queue that lives": {plain, together(list(java+"g%d-kkkk.1"),
			filled(each, "HSET", wants, java+"g%d-kkkk.1", "9999999999999 1 5000 30000 - nonce "),
			zset(future, luascript.FairTimeoutKey(l)))},
		"a queue of long words": {plain, done("RPUSH", queue, java+"g"+strings.Repeat("x", 5<<20))},
		"a want of many words": {plain, together(
			done("RPUSH", queue, java+"g1-x.1"), done("HSET", wants, java+"g1-x.1", strings.Repeat("9", 5<<20)))},
		"a long counter": {nil, done("SET", luascript.TokenKey(l), strings.Repeat("9", 20<<20))},
		"a long record":  {nil, done("SET", luascript.OnceKey(l), strings.Repeat("9", 20<<20))},
		"long words":     {nil, done("SET", luascript.OnceKey(l), "1 "+strings.Repeat("x", 20<<20)+" 0")},
	}
}

// hold takes a lock for a minute and returns its release.
func hold(t *testing.T, l redlatch.Locker) func(context.Context) error {
	t.Helper()
	return bed.Lock(t, t.Context(), l, redlatch.WithLease(time.Minute)).Unlock
}

// TestScriptsHaveABound: whatever stands at the keys of a lock, no call makes the server run more
// commands, or for longer, than for a lock with a thousand holders, and no answer is long.
func TestScriptsHaveABound(t *testing.T) {
	s := testbed.Standalone(t)
	all := messes()
	for _, name := range slices.Sorted(maps.Keys(all)) {
		t.Run(name, func(t *testing.T) {
			s.Do(t, "FLUSHALL")
			c := bed.Client(t, s.Addr())
			var release func(context.Context) error
			if before := all[name].before; before != nil {
				release = before(t, c)
			}
			all[name].leave(t, s)
			for _, op := range operations(c, release) {
				s.Do(t, "CONFIG", "RESETSTAT")
				before := s.CommandStats(t)
				err := op.do(bed.Within(t, 20*time.Second))
				bounded(t, s, op.name, before, err)
			}
		})
	}
}

func bounded(t *testing.T, s *testbed.Server, op string, before testbed.Stats, err error) {
	t.Helper()
	st := s.CommandStats(t).Sub(before)
	calls := int64(0)
	for _, n := range st.Calls {
		calls += n
	}
	if took := st.CPU - st.Time["del"]; calls > mostCalls || took > mostTime {
		t.Errorf("%s: %d commands, %v: %v", op, calls, took, st.Calls)
	}
	sent, _ := strconv.Atoi(s.Info(t, "stats")["total_net_output_bytes"])
	testbed.AtMost(t, sent, 400_000, op, "bytes that the server answered with")
	if err != nil && len(err.Error()) > 1000 {
		t.Errorf("%s: an error of %d bytes: %.200s", op, len(err.Error()), err)
	}
}

type operation struct {
	name string
	do   func(context.Context) error
}

// operations are all that a client does with the lock "l". None waits, and the last ones end what
// is held.
func operations(c *redlatch.Client, release func(context.Context) error) []operation {
	const l = "l"
	rw := c.ReadWriteLock(l, redlatch.Fenced())
	type kind interface {
		redlatch.Locker
		State(ctx context.Context) (redlatch.State, error)
	}
	kinds := map[string]kind{
		"plain": c.RLock(l, redlatch.Fenced()), "read": rw.ReadLock(), "write": rw.WriteLock(),
		"fair": c.FairLock(l, redlatch.Fenced()), "multi": redlatch.MultiLock(c.RLock(l), c.RLock("m")),
	}
	ops := []operation{
		{"inspect", func(ctx context.Context) error { _, err := c.Inspect(ctx, l); return err }},
		{"list", func(ctx context.Context) error {
			for _, err := range c.Locks(ctx, "l*") {
				if err != nil {
					return err
				}
			}
			return nil
		}},
	}
	for _, name := range slices.Sorted(maps.Keys(kinds)) {
		k := kinds[name]
		ops = append(ops, operation{"state " + name, func(ctx context.Context) error { _, err := k.State(ctx); return err }},
			operation{"try " + name, func(ctx context.Context) error { return attempt(ctx, k, 0) }})
	}
	ops = append(ops, operation{"once", func(ctx context.Context) error {
		_, err := c.Once(l).Do(ctx, time.Hour, func(context.Context) error { return nil })
		return err
	}}, operation{"reset", func(ctx context.Context) error { _, err := c.Once(l).Reset(ctx); return err }})
	if release != nil {
		ops = append(ops, operation{"unlock", release})
	}
	return append(ops, operation{"evict", func(ctx context.Context) error {
		_, err := c.ForceUnlock(ctx, l, redlatch.IfOwner(java+"000000000001"))
		return err
	}}, operation{"evict readers", func(ctx context.Context) error { _, err := rw.ReadLock().ForceUnlock(ctx); return err }},
		operation{"evict all", func(ctx context.Context) error { _, err := c.ForceUnlock(ctx, l); return err }})
}
