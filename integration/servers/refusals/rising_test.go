package refusals

import (
	"strconv"
	"testing"

	"github.com/redlatch/redlatch/internal/luascript"
	"github.com/redlatch/redlatch/internal/testbed"
)

const other = "6d4e6c1a-0000-4000-8000-000000000003:g1-3"

func readKeys(key, f string) []string {
	return []string{
		key, luascript.VoidKey(key), luascript.RWLeasesKey(key), luascript.RWTimeoutKey(key, f), luascript.RWWritersKey(key),
		luascript.RWMarksKey(key), luascript.RWReadersKey(key), luascript.RWTurnKey(key),
	}
}

func readReleaseKeys(key, f string) []string {
	return append(readKeys(key, f)[:4:4], luascript.RWReadersKey(key), luascript.RWTurnKey(key), luascript.RWWritersKey(key), luascript.RWMarksKey(key))
}

// TestLeasesOnlyRise: nothing that a holder sends lowers a lease, late copies of its
// acquisition included; leaving a read-write lock lowers its TTL to what others need.
func TestLeasesOnlyRise(t *testing.T) {
	s := testbed.Standalone(t)
	all := calls()
	for _, name := range []string{
		"shorter re-entry", "nothing to raise", "check", "partial release", "group partial release", "read, no raise",
		"read check", "read partial", "write check", "write partial",
	} {
		hold(t, s)
		must(t, s, all[name])
		if ttl := s.Int(t, "PTTL", all[name].key); ttl < lease-5000 {
			t.Errorf("%s: the lease ends in %d ms", name, ttl)
		}
	}
	for _, name := range []string{"retry of an acquisition", "retry of a fair acquisition", "retry of a read", "retry of a write", "group re-entry"} {
		hold(t, s)
		c := all[name]
		c.args = append([]string(nil), c.args...)
		for i, a := range c.args {
			if a == strconv.Itoa(2*lease) {
				c.args[i] = "1000"
			}
		}
		ends := s.Text(t, "ZSCORE", luascript.RWLeasesKey(c.key), c.field)
		must(t, s, c)
		if now := s.Text(t, "ZSCORE", luascript.RWLeasesKey(c.key), c.field); now != ends {
			t.Errorf("%s with a short lease: the hold ends at %s, it did at %s", name, now, ends)
		}
		if ttl := s.Int(t, "PTTL", c.key); ttl < lease-5000 {
			t.Errorf("%s with a short lease: the lease ends in %d ms", name, ttl)
		}
		for _, k := range []string{"r", "w"} {
			if ttl := s.Int(t, "PTTL", luascript.RWLeasesKey(k)); ttl < lease-5000 {
				t.Errorf("%s: the set of leases ends in %d ms", name, ttl)
			}
		}
		if ttl := s.Int(t, "PTTL", luascript.RWTimeoutKey("r", field)); ttl < lease-5000 {
			t.Errorf("%s: the timeout key ends in %d ms", name, ttl)
		}
	}

	// Two readers: when the longer one leaves wholly, the lock lasts as long as the other.
	s.Do(t, "FLUSHALL")
	for f, ms := range map[string]string{field: "600000", other: "20000"} {
		must(t, s, call{script: luascript.RWRead, keys: readKeys("r", f), args: []string{f, ms, "", "", "0", "0", "", ""}})
	}
	k := readKeys("r", field)
	before := s.CommandStats(t)
	must(t, s, call{
		script: luascript.RWReadRelease, keys: readReleaseKeys("r", field),
		args: []string{field, "ch", "PUBLISH", "0", "{r}", "0", "0", "1"},
	})
	if ttl := s.Int(t, "PTTL", "r"); ttl > 20_000 || ttl < 15_000 {
		t.Errorf("after the longer reader has left the lock lasts for %d ms, want 20 s", ttl)
	}
	// A writer was told ten minutes; Redisson's sleeps until a message, and leaves no mark.
	if n := s.CommandStats(t).Sub(before).Calls["publish"]; n != 1 {
		t.Errorf("%d messages, want one", n)
	}
	// One reader's own key alone frees nothing while another is inside.
	if got := must(t, s, call{script: luascript.RWRead, keys: k, args: []string{field, "20000", "", "", "0", "0", "", ""}}); got != "1" {
		t.Fatal(got)
	}
	if got := must(t, s, call{script: luascript.RWFree, keys: k[:1], args: []string{field}}); got != "1" {
		t.Errorf("freeing by one key: %q", got)
	}
	if n := s.Int(t, "HLEN", "r"); n != 3 {
		t.Errorf("%d fields, want the mode and both readers", n)
	}
}
