package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/testbed"
)

// A kind of lock has one name, wherever one is written: in tables, JSON, the page, the SDK's list of holds (whose names
// spans have), options, help, and the tables of the docs.
func TestAKindHasOneName(t *testing.T) {
	s, c := beside(t, named("shop/1"))
	rw := c.ReadWriteLock("read-write")
	for _, tc := range []struct {
		of         string // what spans and Held say
		kind, mode string // what operators see
		l          redlatch.Locker
	}{
		{"reentrant", "reentrant", "lock", c.RLock("reentrant")},
		{"fair", "reentrant", "lock", c.FairLock("fair")}, // which nobody waits for
		{"read", "read-write", "read", rw.ReadLock()},
		{"write", "read-write", "write", rw.WriteLock()},
	} {
		h := hold(t, tc.l)
		if held := c.Held(); len(held) != 1 || held[0].Type != tc.of {
			t.Errorf("%s: %+v", tc.of, held)
		}
		list := decoded[[]redlatch.Inspection](t, call(t, s, "ls", "-o", "json").out)
		if len(list) != 1 || string(list[0].Kind) != tc.kind || string(list[0].Mode) != tc.mode {
			t.Errorf("%s: %+v", tc.of, list)
		}
		if rows := call(t, s, "ls").rows(); !strings.HasPrefix(rows[0], h.Name()+" "+tc.kind+" "+tc.mode+" ") {
			t.Errorf("%s: %q", tc.of, rows)
		}
		call(t, s, "show", h.Name()).ends(exitOK, "kind       "+tc.kind)
		unlock(t, h)
		call(t, s, "run", "--kind", tc.of, "x", "--", "true").ends(exitOK)
	}
	for _, old := range []string{"plain", "rlock"} {
		call(t, s, "run", "--kind", old, "x", "--", "true").fails(exitUsage)
	}
	for _, kind := range []string{"reentrant", "fair", "read-write"} {
		if !slices.Contains(needs(), kind) {
			t.Errorf("doctor needs %q", needs())
		}
	}
}

// Nothing that people read calls a kind by one of its old names.
func TestNoOldNamesOfKinds(t *testing.T) {
	t.Parallel()
	old := regexp.MustCompile(`(?m)--?(?:kind|k|need)[ =][a-z,-]*\b(?:rlock|plain)\b|["` + "`" + `|] ?(?:rlock|plain) ?["` + "`" + `|]`)
	find := func(where, text string) {
		for _, found := range old.FindAllString(text, -1) {
			t.Errorf("%s: %s", where, found)
		}
	}
	root := newRoot(&app{})
	for _, c := range append(root.Commands(), root) {
		find(c.CommandPath(), c.Long+c.Example+c.Flags().FlagUsages())
	}
	for _, pattern := range []string{"assets/*.js", "assets/*.html", "../../docs/*.md", "../../docs/moving/*.md", "../../otel/dashboards/*.md", "../../otel/dashboards/*.json"} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			t.Errorf("%s: %v, %v", pattern, files, err)
		}
		for _, path := range files {
			text, err := os.ReadFile(path)
			testbed.Must(t, err)
			find(path, string(text))
		}
	}
}
