package refusals

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch/internal/luascript"
	"github.com/redlatch/redlatch/internal/testbed"
)

const (
	field = "6d4e6c1a-0000-4000-8000-000000000001:g1-1"
	lease = 60_000 // ms: of every hold when the call begins
	kept  = lease - 5000
)

// call is one script of a holder: of a plain lock "l", held twice, of a read lock
// "r" and a write lock "w", held twice, too, or a write lock "d" whose owner also reads.
type call struct {
	script *luascript.Script
	keys   []string
	args   []string
	want   string // the reply when it is done
	// refused is the reply when a server refuses writes, %s for its reason; "": an error
	refused string
	// what is to be seen when it is done: the count and the least lease in ms (0: as it was)
	key, field string
	count      string
	atLeast    int64
}

func calls() map[string]call {
	read := []string{"r", luascript.RWLeasesKey("r"), luascript.RWTimeoutKey("r", field)}
	write := []string{"w", luascript.RWLeasesKey("w"), "w"}
	more := strconv.Itoa(2 * lease)
	free := func(k string, rest ...string) []string { return append([]string{k}, rest...) }
	rwRelease := []string{field, "ch", "PUBLISH", "0", "0", "0", "1"}
	out := map[string]call{
		"re-entry":          {luascript.Reenter, free("l"), []string{field, "3", more}, "1", "", "l", field, "3", lease + 1},
		"shorter re-entry":  {luascript.Reenter, free("l"), []string{field, "3", "1"}, "1", "", "l", field, "3", kept},
		"renewal":           {luascript.Renew, free("l"), []string{field, more}, "[1]", "", "l", field, "2", lease + 1},
		"nothing to raise":  {luascript.Renew, free("l"), []string{field, "1"}, "[1]", "", "l", field, "2", kept},
		"check":             {luascript.Renew, free("l"), []string{field, "0"}, "[1]", "", "l", field, "2", kept},
		"partial release":   {luascript.Release, free("l"), []string{field, "1"}, "1", "", "l", field, "1", kept},
		"nothing to shrink": {luascript.Release, free("l"), []string{field, "2"}, "1", "", "l", field, "2", kept},
		"release":           {luascript.Release, free("l"), []string{field, "0", "ch", "PUBLISH"}, "1", "", "l", field, "", 0},
		"release, late commands refused": {
			luascript.Release, []string{"l", luascript.VoidKey("l"), luascript.WaitKey("l")}, []string{field, "0", "ch", "PUBLISH", "", "1000"}, "1", "", "l", field, "", 0,
		},
		"retry of an acquisition": {
			luascript.Acquire, []string{"l", luascript.VoidKey("l")}, []string{field, more, ""}, "2", "", "l", field, "2", lease + 1,
		},
		"group re-entry": {
			luascript.GroupAcquire, []string{"l"}, []string{more, "1", field, "3", "", ""}, "[1 0]", "", "l", field, "3", lease + 1,
		},
		"group partial release": {
			luascript.GroupRelease, []string{"l"}, []string{"1", field, "1", "", "", "", "", "", ""}, "[1 ]", "[-1 %s]", "l", field, "1", kept,
		},
		"group release": {
			luascript.GroupRelease, []string{"l", luascript.WaitKey("l")}, []string{"2", field, "0", "ch", "PUBLISH", "", "", "", ""},
			"[1 ]", "[-1 %s]", "l", field, "", 0,
		},
		"fair release": {
			luascript.FairRelease, fairKeys("l"), []string{"PUBLISH", "ch:", "ch2:", field, "0", "0", "0"}, "1", "", "l", field, "", 0,
		},
		"retry of a fair acquisition": {
			luascript.FairAcquire, fairKeys("l"), []string{"PUBLISH", "ch:", "ch2:", field, more, "-", "", "0"}, "[2 0 " + field + "]", "", "l", field, "2", lease + 1,
		},
		"read re-entry":    {luascript.RWReenter, read, []string{field, "3", more}, "1", "", "r", field, "3", lease + 1},
		"read renewal":     {luascript.RWRenew, read, []string{field, more}, "[1]", "", "r", field, "2", lease + 1},
		"read, no raise":   {luascript.RWRenew, read, []string{field, "1"}, "[1]", "", "r", field, "2", kept},
		"read check":       {luascript.RWRenew, read, []string{field, "0"}, "[1]", "", "r", field, "2", kept},
		"read partial":     {luascript.Release, free("r"), []string{field, "1"}, "1", "", "r", field, "1", kept},
		"read lease alone": {luascript.RWLease, read[1:2], []string{field, more}, "1", "", "r", field, "2", 0},
		"read free alone":  {luascript.RWFree, free("r"), []string{field}, "1", "", "r", field, "", 0},
		"read release": {
			luascript.RWReadRelease, readReleaseKeys("r", field),
			[]string{field, "ch", "PUBLISH", "0", "{r}", "0", "0", "1"}, "1", "", "r", field, "", 0,
		},
		"read undo": {
			luascript.RWReadRelease, readReleaseKeys("r", field),
			[]string{field, "ch", "PUBLISH", "1000", "{r}", "0", "1", "1"}, "1", "", "r", field, "", 0,
		},
		"write re-entry": {luascript.RWReenter, write, []string{field + ":write", "3", more}, "1", "", "w", field + ":write", "3", lease + 1},
		"write renewal":  {luascript.RWRenew, write, []string{field + ":write", more}, "[1]", "", "w", field + ":write", "2", lease + 1},
		"write check":    {luascript.RWRenew, write, []string{field + ":write", "0"}, "[1]", "", "w", field + ":write", "2", kept},
		"write partial":  {luascript.Release, free("w"), []string{field + ":write", "1"}, "1", "", "w", field + ":write", "1", kept},
		"write release":  {luascript.RWWriteRelease, writeReleaseKeys("w"), rwRelease, "1", "", "w", field + ":write", "", 0},
		"downgrade":      {luascript.RWWriteRelease, writeReleaseKeys("d"), rwRelease, "1", "", "d", "mode", "read", kept},
		"retry of a read": {
			luascript.RWRead, readKeys("r", field), []string{field, more, "", "", "0", "0", "", ""}, "2", "", "r", field, "2", lease + 1,
		},
		"retry of a write": {
			luascript.RWWrite, writeKeys("w"), []string{field, more, "0", "", "", "PUBLISH", "1"}, "2", "", "w", field + ":write", "2", lease + 1,
		},
	}
	// Nothing that a holder sends lowers a lease, late copies of its acquisition included.
	for _, name := range []string{"retry of an acquisition", "retry of a fair acquisition", "retry of a read", "retry of a write", "group re-entry"} {
		c := out[name]
		c.args, c.atLeast = slices.Clone(c.args), kept
		c.args[slices.Index(c.args, more)] = "1000"
		out[name+", shorter"] = c
	}
	// What is gone is only said by a server that takes writes.
	for name, c := range maps.Clone(out) {
		if strings.HasPrefix(name, "retry") || strings.Contains(name, "undo") {
			continue
		}
		c.keys = slices.Clone(c.keys)
		for i := range c.keys {
			c.keys[i] = "gone" + c.keys[i]
		}
		c.want = map[bool]string{true: "[-2 1]", false: strings.Replace(c.want, "1", "0", 1)}[strings.HasPrefix(name, "group re-entry")]
		c.key, c.count, c.atLeast = "gone"+c.key, "", 0
		out["gone: "+name] = c
	}
	return out
}

func fairKeys(key string) []string {
	return []string{
		key, luascript.FairQueueKey(key), luascript.FairTimeoutKey(key), luascript.FairWantsKey(key),
		luascript.TokenKey(key), luascript.TraceKey(key), luascript.VoidKey(key),
	}
}

func writeReleaseKeys(key string) []string {
	return []string{
		key, luascript.VoidKey(key), luascript.RWLeasesKey(key), luascript.RWReadersKey(key), luascript.RWTurnKey(key),
		luascript.RWWritersKey(key), luascript.RWMarksKey(key),
	}
}

// hold makes the holds anew.
func hold(t *testing.T, s *testbed.Server) {
	t.Helper()
	s.Do(t, "FLUSHALL")
	ms := strconv.Itoa(lease)
	s.Do(t, "HSET", "l", field, "2")
	s.Do(t, "HSET", "r", "mode", "read", field, "2")
	s.Do(t, "SET", luascript.RWTimeoutKey("r", field), "1", "PX", ms)
	s.Do(t, "HSET", "w", "mode", "write", field+":write", "2")
	s.Do(t, "HSET", "d", "mode", "write", field, "1", field+":write", "1")
	now := s.List(t, "TIME")
	sec, err := strconv.ParseInt(now[0], 10, 64)
	testbed.Must(t, err)
	ends := strconv.FormatInt(sec*1000+lease, 10)
	s.Do(t, "ZADD", luascript.RWLeasesKey("r"), ends, field)
	s.Do(t, "ZADD", luascript.RWLeasesKey("w"), ends, field+":write")
	s.Do(t, "ZADD", luascript.RWLeasesKey("d"), ends, field, ends, field+":write")
	for _, k := range []string{"l", "r", "w", "d", luascript.RWLeasesKey("r"), luascript.RWLeasesKey("w"), luascript.RWLeasesKey("d")} {
		s.Do(t, "PEXPIRE", k, ms)
	}
}

func run(s *testbed.Server, c call) (string, error) {
	m, err := s.Try(append(append([]string{"EVAL", c.script.Body, strconv.Itoa(len(c.keys))}, c.keys...), c.args...)...)
	if err != nil {
		return "", err
	}
	return text(m), nil
}

func text(m rueidis.RedisMessage) string {
	if list, err := m.ToArray(); err == nil {
		var out []string
		for _, e := range list {
			out = append(out, text(e))
		}
		return "[" + strings.Join(out, " ") + "]"
	}
	if n, err := m.AsInt64(); err == nil {
		return strconv.FormatInt(n, 10)
	}
	s, _ := m.ToString()
	return s
}

// look describes all that stands on the server, to the nearest tenth of a lease.
func look(t *testing.T, s *testbed.Server) string {
	t.Helper()
	var b strings.Builder
	for _, key := range []string{"l", "r", "w", "d"} {
		fmt.Fprintln(&b, key, s.Hash(t, "HGETALL", key), (s.Int(t, "PTTL", key)+lease/20)/(lease/10))
	}
	return b.String()
}

// TestWithoutMemory: everything of a holder works when the server is out of memory.
func TestWithoutMemory(t *testing.T) {
	s := testbed.Standalone(t)
	for name, c := range calls() {
		t.Run(name, func(t *testing.T) {
			hold(t, s)
			s.Do(t, "CONFIG", "SET", "maxmemory", "1")
			defer s.Do(t, "CONFIG", "SET", "maxmemory", "0")
			done(t, s, c)
		})
	}
}

// done runs the call, which is done then, and no hold or key ends earlier than before.
func done(t *testing.T, s *testbed.Server, c call) {
	t.Helper()
	leases := luascript.RWLeasesKey(c.key)
	ends := s.Text(t, "ZSCORE", leases, c.field)
	got, err := run(s, c)
	if err != nil || got != c.want {
		t.Errorf("%q %v, want %q", got, err, c.want)
	}
	testbed.Equal(t, s.Hash(t, "HGETALL", c.key)[c.field], c.count, "count")
	if now := s.Text(t, "ZSCORE", leases, c.field); c.count != "" && now < ends {
		t.Errorf("the hold ends at %s, it did at %s", now, ends)
	}
	for _, key := range []string{c.key, leases, luascript.RWTimeoutKey(c.key, field)} {
		if ttl := s.Int(t, "PTTL", key); c.atLeast > 0 && ttl < c.atLeast && (ttl != -2 || key == c.key) {
			t.Errorf("%s ends in %d ms, want at least %d", key, ttl, c.atLeast)
		}
	}
}

// TestRefusedWrites: a server that takes no writes says so and changes nothing,
// whatever the call has to do; and once it takes them again, the same call is done.
func TestRefusedWrites(t *testing.T) {
	s := testbed.Standalone(t)
	for refusal, set := range map[string][2][]string{
		"NOREPLICAS": {{"CONFIG", "SET", "min-replicas-to-write", "1"}, {"CONFIG", "SET", "min-replicas-to-write", "0"}},
		"READONLY":   {{"REPLICAOF", "127.0.0.1", "1"}, {"REPLICAOF", "NO", "ONE"}},
	} {
		s.Do(t, set[0]...)
		_, err := s.Try("EVAL", "return redis.call('HDEL', KEYS[1], '')", "1", "any")
		s.Do(t, set[1]...)
		if err == nil { // before Redis 6.2 scripts write without replicas, too
			t.Logf("%s: this server does not refuse a script's writes", refusal)
			continue
		}
		for name, c := range calls() {
			t.Run(refusal+" "+name, func(t *testing.T) {
				hold(t, s)
				before := look(t, s)
				s.Do(t, set[0]...)
				got, err := run(s, c)
				after := look(t, s)
				s.Do(t, set[1]...)
				switch {
				case c.refused != "" && err == nil:
					if !strings.HasPrefix(got, strings.Split(c.refused, "%s")[0]) || !strings.Contains(got, refusal) {
						t.Errorf("%q, want %q", got, c.refused)
					}
				case c.refused != "" || err == nil || !strings.Contains(err.Error(), refusal):
					t.Errorf("%q %v, want %s", got, err, refusal)
				}
				if after != before {
					t.Errorf("before:\n%safter:\n%s", before, after)
				}
				done(t, s, c)
			})
		}
	}
}
