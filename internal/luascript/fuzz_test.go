package luascript_test

import (
	"net/url"
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
		luascript.WaitKey(name), luascript.CallChannel(name),
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

// field is a holder's in a lock's hash, with its owner escaped as the client does it.
func field(owner string) string {
	return "6ba7b810-9dad-11d1-80b4-00c04fd430c8:g" + url.QueryEscape(owner) + "-1"
}

// FuzzDistinctNames: two locks share no key and no channel, whoever holds them, and none has a
// key that another lock's name is; in a cluster all that belongs to a lock is in its slot. What is a name is for
// CheckKey to say.
func FuzzDistinctNames(f *testing.F) {
	for _, a := range names {
		for _, b := range names[:6] {
			f.Add(a, b, "1-2", "=job")
		}
	}
	f.Add("{a}:x", "a", "1", "x:1")
	f.Add("{a}:c:g1-1:rwlock_timeout:1", "a", "1", "x:1")
	f.Fuzz(func(t *testing.T, a, b, ownerA, ownerB string) {
		all := map[string]bool{a: true}
		for _, key := range derived(a, field(ownerA)) {
			all[key] = true
		}
		if a != b && luascript.CheckKey(a, false) == "" && luascript.CheckKey(b, false) == "" {
			for _, key := range append(derived(b, field(ownerB)), b) {
				if all[key] {
					t.Errorf("%q and %q share %q", a, b, key)
				}
			}
		}
		if luascript.CheckKey(a, true) != "" {
			return
		}
		if luascript.CheckKey(a, false) != "" {
			t.Errorf("%q is fine in a cluster only", a)
		}
		for key := range all {
			if luascript.Slot(key) != luascript.Slot(a) {
				t.Errorf("%q is in slot %d, and %q, which belongs to it, in %d", a, luascript.Slot(a), key, luascript.Slot(key))
			}
		}
	})
}
