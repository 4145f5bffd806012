package docs

import (
	"path"
	"regexp"
	"strings"
	"testing"

	"github.com/redlatch/redlatch/internal/testbed"
)

// screen is how many lines of an example there are to read at most, imports left out.
const screen = 60

// toRead counts the lines of a program without its imports.
func toRead(source string) int {
	n, imports := 0, false
	for line := range strings.Lines(source) {
		imports = imports || strings.HasPrefix(line, "import (")
		if !imports {
			n++
		}
		imports = imports && !strings.HasPrefix(line, ")")
	}
	return n
}

// TestExamplesFitOnAScreen: each program in examples/ is short, imports what everybody can, and the two tables list it.
// Those with a star are tools, not examples to copy.
func TestExamplesFitOnAScreen(t *testing.T) {
	found := 0
	for _, file := range files(t, "main.go") {
		name := path.Base(path.Dir(file))
		if path.Dir(path.Dir(file)) != "examples" {
			continue
		}
		found++
		for _, table := range []string{"docs/COOKBOOK.md", "examples/README.md"} {
			if !strings.Contains(read(t, table), "["+name+"](") {
				t.Errorf("%s does not list %s", table, name)
			}
		}
		if strings.Contains(read(t, "docs/COOKBOOK.md"), "["+name+"](../"+file+")*") {
			continue
		}
		if n := toRead(read(t, file)); n > screen || strings.Contains(read(t, file), "/internal/") {
			t.Errorf("%s has %d lines to read, more than %d, or imports what only this repository can", file, n, screen)
		}
	}
	testbed.AtLeast(t, found, 10, "examples")
	testbed.Equal(t, toRead("package p\n\nimport (\n\t\"a\"\n)\n\nfunc f() {\n}\n"), 5, "lines")
}

var waits = regexp.MustCompile(`Try(?:Lock|Do)\(.*, (\d|[^,]*time\.)[^,]*,? .*\)|Try(?:Lock|Do)\(.*, \d+\)`)

// TestExamplesNameDurations: who reads TryLock(ctx, wait, lease) sees which is which.
func TestExamplesNameDurations(t *testing.T) {
	calls := 0
	for _, file := range files(t, ".go") {
		example := strings.HasPrefix(path.Base(file), "example") && strings.HasSuffix(file, "_test.go")
		if !example && (!strings.HasPrefix(file, "examples/") || strings.HasSuffix(file, "_test.go")) {
			continue
		}
		for line := range strings.Lines(read(t, file)) {
			if strings.Contains(line, "TryLock(") || strings.Contains(line, "TryDo(") {
				calls++
			}
			if waits.MatchString(line) {
				t.Errorf("%s: wait and lease have no names: %s", file, strings.TrimSpace(line))
			}
		}
	}
	testbed.AtLeast(t, calls, 10, "calls")
	for call, bad := range map[string]bool{
		"TryLock(ctx, 0, 0)": true, "TryDo(ctx, wait, 0, work)": true, "TryLock(ctx, time.Second, lease)": true,
		"TryDo(ctx, 5*time.Millisecond, watchdog, busy(1))": true, "TryLock(ctx, wait, 0)": true,
		"TryLock(ctx, wait, watchdog)": false, "TryDo(ctx, wait, watchdog, busy(1))": false,
	} {
		testbed.Equal(t, waits.MatchString(call), bad, call)
	}
}

var howLong = regexp.MustCompile(`\b(minutes?|look up|looking up)\b`)

// TestPagesSayHowLongTheyTake: the first paragraph of a page says whom it is for, and how long it takes to read.
func TestPagesSayHowLongTheyTake(t *testing.T) {
	for _, file := range files(t, ".md") {
		if !strings.HasPrefix(file, "docs/") {
			continue
		}
		_, text, _ := strings.Cut(read(t, file), "\n\n")
		first, _, _ := strings.Cut(text, "\n\n")
		if !howLong.MatchString(first) || !regexp.MustCompile(`^(For|From)\b`).MatchString(first) {
			t.Errorf("%s begins with %q", file, first)
		}
	}
}
