package luascript_test

import (
	"strings"
	"testing"

	"github.com/redlatch/redlatch/internal/luascript"
	"github.com/redlatch/redlatch/internal/testbed"
)

// names are where the search for bad ones begins: tags that are open, empty, nested or
// closed too early, what encloses all, what looks like a key of our own, bytes that are
// no text.
var names = []string{
	"", "a", "orders:42", "{a}", "{a}b", "a{b}c", "a{b", "a}b", "}a{", "{}a", "a{}", "{{a}}", "a{{b}c}", "{a}{b}",
	"redlatch_void:{a}", "redisson_lock_queue:{a}", "a:b", "a\x00b", "\xff\xfe", "{\x00}", " a ", strings.Repeat("x", 3000) + "{",
}

// derived are all keys and channels that belong to a lock.
func derived(name, field string) []string {
	return []string{
		luascript.LockChannel(name), luascript.TokenKey(name), luascript.VoidKey(name), luascript.TraceKey(name),
		luascript.RWChannel(name), luascript.RWTimeoutKey(name, field), luascript.RWLeasesKey(name), luascript.RWWritersKey(name),
		luascript.RWMarksKey(name), luascript.RWReadersKey(name), luascript.RWTurnKey(name), luascript.FairQueueKey(name),
		luascript.FairTimeoutKey(name), luascript.FairWantsKey(name), luascript.GrantChannel(name),
	}
}

// FuzzSlot: the slot is the one that the cluster specification gives, by the test bed's
// own, slower reading of it.
func FuzzSlot(f *testing.F) {
	for _, name := range names {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, key string) {
		if got, want := int(luascript.Slot(key)), testbed.Slot(key); got != want {
			t.Errorf("slot of %q: %d, want %d", key, got, want)
		}
	})
}

// stays tells whether a name keeps its slot behind a prefix: its tag is its own.
func stays(name string) bool {
	open := strings.IndexByte(name, '{')
	if open < 0 {
		return name != "" && name[0] != '}' && !strings.Contains(name, "}")
	}
	return strings.IndexByte(name[open+1:], '}') > 0
}

// FuzzDerivedKeys: whatever belongs to a lock with a sound name is in its slot.
func FuzzDerivedKeys(f *testing.F) {
	for _, name := range names {
		f.Add(name, "6ba7b810-9dad-11d1-80b4-00c04fd430c8:g1-2")
	}
	f.Fuzz(func(t *testing.T, name, field string) {
		if !stays(name) {
			return
		}
		slot := luascript.Slot(name)
		for _, key := range derived(name, field) {
			if luascript.Slot(key) != slot {
				t.Errorf("%q is in slot %d, and %q, which belongs to it, in %d", name, slot, key, luascript.Slot(key))
			}
		}
	})
}

// FuzzDistinctNames: two locks share no key and no channel, except a name and the same
// in braces, one of which is therefore no name.
func FuzzDistinctNames(f *testing.F) {
	for _, a := range names {
		for _, b := range names[:6] {
			f.Add(a, b)
		}
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		if a == b || a == "{"+b+"}" || b == "{"+a+"}" || a == "" || b == "" {
			return
		}
		all := map[string]bool{}
		for _, key := range derived(a, "") {
			all[key] = true
		}
		for _, key := range derived(b, "") {
			if all[key] {
				t.Errorf("%q and %q share %q", a, b, key)
			}
		}
	})
}
