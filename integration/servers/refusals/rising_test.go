package refusals

import (
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

// Leaving a read-write lock lowers its TTL to what others need, and tells those who wait: when the longer of two readers
// leaves wholly, the lock lasts as long as the other.
func TestALeavingReaderLowersTheTTL(t *testing.T) {
	s := testbed.Standalone(t)
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
	testbed.Equal(t, s.CommandStats(t).Sub(before).Calls["publish"], 1, "messages")
	// One reader's own key alone frees nothing while another is inside.
	if got := must(t, s, call{script: luascript.RWRead, keys: k, args: []string{field, "20000", "", "", "0", "0", "", ""}}); got != "1" {
		t.Fatal(got)
	}
	testbed.Equal(t, must(t, s, call{script: luascript.RWFree, keys: k[:1], args: []string{field}}), "1", "freeing by one key")
	testbed.Equal(t, s.Int(t, "HLEN", "r"), 3, "fields, the mode and both readers")
}
