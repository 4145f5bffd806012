package luascript

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/redlatch/redlatch/internal/testbed"
)

func TestCheckKey(t *testing.T) {
	const uuid = "6d4e6c1a-0000-4000-8000-000000000001"
	for _, tc := range []struct {
		key         string
		one, on     string // part of the reason; "" = it is fine
		explanation string
	}{
		{"orders", "", "", "a plain name"},
		{"orders:17", "", "", "with a colon"},
		{"redlatch", "", "", "only like a prefix"},
		{"my_redlatch_void:{orders}", "", "", "the prefix is not in front"},
		{"redisson_lock_queue", "", "", "a prefix alone"},
		{"{orders}:17", "", "", "a hash tag"},
		{"a{b}c", "", "", "a hash tag inside"},
		{"{a}{b}", "", "", "two tags"},
		{"{a{b}", "", "", "no other name has its derived keys"},
		{strings.Repeat("x", MaxKey), "", "", "as long as may be"},
		{"", "empty", "empty", ""},
		{strings.Repeat("x", MaxKey+1), "longer than 1024", "longer than 1024", ""},
		{"{orders}", `"orders"`, `"orders"`, "orders has the same keys"},
		{"{a}b}", `"a}b"`, `"a}b"`, "so has this"},
		{"{}", "enclose", "enclose", "and this"},
		{"a}b", "", "slots", "the tag ends early"},
		{"a{b", "", "slots", "a tag without an end"},
		{"{}z", "", "slots", "an empty tag"},
		{strings.Repeat("x", MaxKey-1) + "{", "", "slots", "it need not be the first prefix that goes astray"},
		{"redisson_lock__channel:{orders}", "other locks", "other locks", ""},
		{"redisson_lock_queue:{orders}", "other locks", "other locks", ""},
		{"redisson_lock_timeout:{orders}", "other locks", "other locks", ""},
		{"redisson_lock_token:{orders}", "other locks", "other locks", ""},
		{"redisson_unlock_latch:{orders}:x", "other locks", "other locks", ""},
		{"redisson_rwlock:{orders}", "other locks", "other locks", ""},
		{"redlatch_void:{orders}", "other locks", "other locks", ""},
		{"redlatch_rw_turn:{a}b", "other locks", "other locks", ""},
		{"redlatch_of_a_later_version:x", "other locks", "other locks", ""},
		{"{orders}:" + uuid + ":g1-1:rwlock_timeout:1", "rwlock_timeout", "rwlock_timeout", ""},
	} {
		for cluster, want := range map[bool]string{false: tc.one, true: tc.on} {
			got := CheckKey(tc.key, cluster)
			if (got == "") != (want == "") || !strings.Contains(got, want) {
				t.Errorf("%.60q (%s), cluster %v: %q, want %q", tc.key, tc.explanation, cluster, got, want)
			}
		}
	}
}

// Every prefix that a name is built with is known to CheckKey.
func TestPrefixesAreComplete(t *testing.T) {
	for _, source := range []string{"keys.go", "fair.go"} {
		text, err := os.ReadFile(source)
		testbed.Must(t, err)
		found := regexp.MustCompile(`Derive\("(\w+)"`).FindAllStringSubmatch(string(text), -1)
		if len(found) == 0 {
			t.Errorf("%s derives nothing", source)
		}
		for _, m := range found {
			if !slices.Contains(prefixes, m[1]) {
				t.Errorf("%s: %s is not among the prefixes", source, m[1])
			}
		}
	}
}

// Users read in the README which names are refused.
func TestReadmeTellsOfEveryRule(t *testing.T) {
	text, err := os.ReadFile("../../README.md")
	testbed.Must(t, err)
	_, section, _ := strings.Cut(string(text), "\n### Names\n")
	section, _, _ = strings.Cut(section, "\n## ")
	rules := []string{"empty", "1,024 bytes", "`{a}`", "slots", timeoutMark}
	for _, prefix := range prefixes {
		if !strings.HasPrefix(prefix, "redlatch_") {
			rules = append(rules, "`"+prefix+":`")
		}
	}
	for _, rule := range rules {
		if !strings.Contains(section, rule) {
			t.Errorf("the section about names in README.md has no %s", rule)
		}
	}
	if MaxKey != 1024 {
		t.Errorf("it says 1,024 bytes, the limit is %d", MaxKey)
	}
}
