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
		script: luascript.RWWrite, keys: writeKeys("r"), args: []string{field, "600000", "0", "", "", "PUBLISH", "1"},
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
		script: luascript.RWRead, keys: readKeys("r", id+"x"), args: []string{id + "x", "1000", "", "", "0", "0", "", "", "PUBLISH", "1"},
	})
	if err != nil || !strings.HasPrefix(got, "[0 ") {
		t.Errorf("another reader: %q %v, want that the lock is held", got, err)
	}
}

// TestAReadUnlockEndsAWriter: a read unlock that finds its writer's lease ended wakes all who wait, as
// the writer's unlock would have.
func TestAReadUnlockEndsAWriter(t *testing.T) {
	s := testbed.Standalone(t)
	must(t, s, call{
		script: luascript.RWWrite, keys: writeKeys("r"), args: []string{field, "20", "0", "", "", "PUBLISH", "1"},
	})
	k := readKeys("r", field)
	must(t, s, call{script: luascript.RWRead, keys: k, args: []string{field, "600000", "", field + ":write", "0", "0", "", ""}})
	time.Sleep(30 * time.Millisecond)
	// The message is left in a key.
	must(t, s, call{script: luascript.RWReadRelease, keys: readReleaseKeys("r", field), args: []string{field, "told", "SET", "0", "{r}", "0", "0", "1"}})
	testbed.Equal(t, text(s.Do(t, "GET", "told")), "1", "told")
}

// A writer beside a read lock without a TTL looks when the last reader's lease ends, not all the
// time.
func TestAWriterBesideALockWithoutATTL(t *testing.T) {
	s := testbed.Standalone(t)
	must(t, s, call{script: luascript.RWRead, keys: readKeys("r", field), args: []string{field, "600000", "", "", "0", "0", "", ""}})
	s.Do(t, "PERSIST", "r")
	got := must(t, s, call{script: luascript.RWWrite, keys: writeKeys("r"), args: []string{strings.TrimSuffix(field, "1") + "2", "1000", "0", "", "", "PUBLISH", "1"}})
	f := strings.Fields(strings.Trim(got, "[]"))
	if look, err := strconv.Atoi(f[len(f)-1]); err != nil || look < 300_000 {
		t.Errorf("it is told %s, want a look in ten minutes", got)
	}
}

// TestAWriterWhoseNameBeginsAnother: an attempt without waiting stands back for every writer that came first. That the
// name of its acquisition begins that of another one does not make it the same.
func TestAWriterWhoseNameBeginsAnother(t *testing.T) {
	s := testbed.Standalone(t)
	s.Do(t, "ZADD", luascript.RWWritersKey("w"), "1", field+"0")
	s.Do(t, "ZADD", luascript.RWMarksKey("w"), "99999999999999", field+"0")
	got := must(t, s, call{
		script: luascript.RWWrite, keys: writeKeys("w"), args: []string{field, "1000", "0", "", "", "PUBLISH", "0"},
	})
	if !strings.HasPrefix(got, "[0 ") {
		t.Errorf("%q, want that it stands back", got)
	}
}

func writeKeys(key string) []string {
	return []string{
		key, luascript.VoidKey(key), luascript.RWLeasesKey(key), luascript.RWWritersKey(key), luascript.RWMarksKey(key), luascript.RWTurnKey(key),
	}
}

// A claim is given back without memory, or nobody would run in that period.
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
