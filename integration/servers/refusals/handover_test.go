package refusals

import (
	"strconv"
	"strings"
	"testing"

	"github.com/redlatch/redlatch/internal/luascript"
	"github.com/redlatch/redlatch/internal/testbed"
)

func fairCall(s *luascript.Script, args ...string) call {
	return call{script: s, keys: fairKeys("f"), args: append([]string{"PUBLISH", "grants:", "foreign:"}, args...)}
}

func must(t *testing.T, s *testbed.Server, c call) string {
	t.Helper()
	got, err := run(s, c)
	if err != nil {
		t.Fatalf("%s: %v", c.script.Name, err)
	}
	return got
}

// When the server refuses what the next waiter wants, its token, the lock is free all the same, the
// release says that it is done and what was refused, and the waiter keeps its place until a refresh
// hands the lock over.
func TestHandOverRefused(t *testing.T) {
	token, wants := luascript.TokenKey("f"), luascript.FairWantsKey("f")
	for name, spoil := range map[string][2][][]string{
		"another type":  {{{"RPUSH", token, "x"}}, {{"DEL", token}}},
		"not a number":  {{{"SET", token, "x"}}, {{"DEL", token}}},
		"another queue": {{{"RENAME", wants, "aside"}, {"SET", wants, "x"}}, {{"DEL", wants}, {"RENAME", "aside", wants}}},
	} {
		t.Run(name, func(t *testing.T) {
			s := testbed.Standalone(t)
			ms := strconv.Itoa(lease)
			if got := must(t, s, fairCall(luascript.FairAcquire, field, ms, "-", "", "0")); got != "[1 0]" {
				t.Fatal(got)
			}
			must(t, s, fairCall(luascript.FairAcquire, waiter, ms, ms, "", ms, "nonce"))
			for _, command := range spoil[0] {
				s.Do(t, command...)
			}
			got := must(t, s, fairCall(luascript.FairRelease, field, "0", "0", "0"))
			if !strings.HasPrefix(got, "[2 ") {
				t.Errorf("the release: %q, want 2 and the reason", got)
			}
			if s.Int(t, "EXISTS", "f") != 0 {
				t.Error("the lock is not free")
			}
			for _, command := range spoil[1] {
				s.Do(t, command...)
			}
			if list, whole := queue(t, s); len(list) != 1 || !whole {
				t.Errorf("the waiter lost its place: %q, in all parts: %v", list, whole)
			}
			if got := must(t, s, fairCall(luascript.FairRefresh, waiter, ms)); !strings.HasPrefix(got, "[1 ") {
				t.Errorf("the refresh: %q", got)
			}
			testbed.Equal(t, s.Hash(t, "HGETALL", "f")[waiter], "1", "the count, if the refresh has handed the lock over")
		})
	}
}

// TestARefreshBehindManyDead: a refresh keeps its waiter's place behind more dead ones than a run drops, while clients of
// Redisson wait as well.
func TestARefreshBehindManyDead(t *testing.T) {
	s := testbed.Standalone(t)
	k, ms := fairKeys("f"), strconv.Itoa(lease)
	must(t, s, fairCall(luascript.FairAcquire, field, ms, "-", "", "0"))
	// their places ended in 1970
	s.Do(t, "EVAL", `for i = 1, 700 do
		local f = ARGV[1] .. i
		redis.call('RPUSH', KEYS[1], f)
		redis.call('ZADD', KEYS[2], 200000000000, f)
		redis.call('HSET', KEYS[3], f, '0000000001000 1 5000 30000 - nonce ')
	end
	redis.call('RPUSH', KEYS[1], ARGV[2])
	redis.call('ZADD', KEYS[2], 200000000000, ARGV[2])`,
		"3", k[1], k[2], k[3], waiter+"dead", "6d4e6c1a-0000-4000-8000-00000000000a:17")
	must(t, s, fairCall(luascript.FairAcquire, waiter, ms, "-", "", ms, "nonce"))
	for range 3 {
		if got := must(t, s, fairCall(luascript.FairRefresh, waiter, ms)); !strings.HasPrefix(got, "[1 ") {
			t.Errorf("the refresh: %q, want that it waits", got)
		}
	}
	testbed.AtMost(t, s.Int(t, "LLEN", k[1]), 2, "waiters")
}

// The release of a group tells of each member, and all are free before the first message goes out.
func TestGroupReleaseTellsOfEach(t *testing.T) {
	s := testbed.Standalone(t)
	for _, k := range []string{"a", "c", "d"} {
		s.Do(t, "HSET", k, field, "2")
	}
	s.Do(t, "SET", "b", "replaced")
	member := func(count, channel, publish string) []string {
		return []string{"2", field, count, channel, publish, "", "", "", ""}
	}
	args := append(append(member("0", "ch", "NOSUCH"), member("0", "ch", "PUBLISH")...), member("1", "", "")...)
	args = append(args, member("0", "ch", "PUBLISH")...)
	args = append(args, member("0", "ch", "PUBLISH")...)
	var keys []string
	for _, k := range []string{"a", "b", "c", "d", "e"} {
		keys = append(keys, k, luascript.WaitKey(k))
	}
	got := must(t, s, call{script: luascript.GroupRelease, keys: keys, args: args})
	if !strings.HasPrefix(got, "[2 ") || !strings.HasSuffix(got, " 0  1  1  0 ]") {
		t.Errorf("%q", got)
	}
	testbed.Equal(t, s.Int(t, "EXISTS", "a", "d"), 0, "are held")
	testbed.Equal(t, s.Hash(t, "HGETALL", "c")[field], "1", "count")
}
