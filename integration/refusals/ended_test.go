package refusals

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redlatch/redlatch/internal/luascript"
	"github.com/redlatch/redlatch/internal/testbed"
)

// TestEndedReadsOfAWriter: a writer that reads again and again, each time for longer than its lease,
// leaves no pile of ended holds: others are told that the lock is held.
func TestEndedReadsOfAWriter(t *testing.T) {
	s := testbed.Standalone(t)
	id := strings.TrimSuffix(field, "1")
	must(t, s, call{
		script: luascript.RWWrite, keys: []string{
			"r", luascript.VoidKey("r"), luascript.RWLeasesKey("r"), luascript.RWWritersKey("r"), luascript.RWMarksKey("r"), luascript.RWTurnKey("r"),
		},
		args: []string{field, "600000", "0", "", ""},
	})
	for i := range 70 {
		own := id + strconv.Itoa(i+2)
		must(t, s, call{
			script: luascript.RWRead, keys: readKeys("r", own),
			args: []string{own, "1", "", field + ":write", "0", "0", "", ""},
		})
		time.Sleep(2 * time.Millisecond)
	}
	if n := s.Int(t, "HLEN", "r"); n > 13 { // ten at a time
		t.Errorf("%d entries", n)
	}
	got, err := run(s, call{
		script: luascript.RWRead, keys: readKeys("r", id+"x"), args: []string{id + "x", "1000", "", "", "0", "0", "", ""},
	})
	if err != nil || !strings.HasPrefix(got, "[0 ") {
		t.Errorf("another reader: %q %v, want that the lock is held", got, err)
	}
}

// TestAClaimIsGivenBackWithoutMemory: or nobody would run in that period.
func TestAClaimIsGivenBackWithoutMemory(t *testing.T) {
	s := testbed.Standalone(t)
	keys := []string{luascript.OnceKey("o"), luascript.VoidKey("o"), "o"}
	for name, early := range map[string]string{"the first": "0", "an early one": "600000"} {
		s.Do(t, "FLUSHALL")
		if early != "0" {
			must(t, s, call{script: luascript.Once, keys: keys, args: []string{"before", "600000", "0", "0"}})
		}
		must(t, s, call{script: luascript.Once, keys: keys, args: []string{"claim", "600000", early, "0"}})
		s.Do(t, "CONFIG", "SET", "maxmemory", "1")
		for _, want := range []string{"1", "0"} { // once more: nothing to give back
			got, err := run(s, call{script: luascript.OnceUndo, keys: keys[:2], args: []string{"claim", "600000", "1000"}})
			if err != nil || got != want {
				t.Errorf("%s: %q %v, want %s", name, got, err, want)
			}
		}
		s.Do(t, "CONFIG", "SET", "maxmemory", "0")
		if record := text(s.Do(t, "GET", keys[0])); strings.Contains(record, "claim") {
			t.Errorf("%s: the record is %q", name, record)
		}
	}
}
