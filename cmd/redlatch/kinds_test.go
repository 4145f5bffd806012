package main

import (
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/redlatch/redlatch"
)

// A kind of lock has one name, wherever one is written: in tables, JSON, the page, the SDK's list of holds (whose names
// spans have), options, help, and the tables of the docs.
func TestAKindHasOneName(t *testing.T) {
	s := server(t)
	c := client(t, s, named("shop/1"))
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
		var list []redlatch.Inspection
		if _, out, _ := call(t, s, "ls", "-o", "json"); json.Unmarshal([]byte(out), &list) != nil || len(list) != 1 ||
			string(list[0].Kind) != tc.kind || string(list[0].Mode) != tc.mode {
			t.Errorf("%s: %s", tc.of, out)
		}
		_, out, _ := call(t, s, "ls")
		_, out, _ = strings.Cut(out, "\n")
		if row := strings.Fields(out); row[1] != tc.kind || row[2] != tc.mode {
			t.Errorf("%s: %s", tc.of, row)
		}
		_, out, _ = call(t, s, "show", h.Name())
		need(t, out, "kind       "+tc.kind)
		unlock(t, h)
		for _, old := range []string{"plain", "rlock"} {
			if st, _, errs := call(t, s, "run", "--kind", old, "x", "--", "true"); st != exitUsage {
				t.Errorf("run --kind %s: %d %s", old, st, errs)
			}
		}
		if st, _, errs := call(t, s, "run", "--kind", tc.of, "x", "--", "true"); st != 0 {
			t.Errorf("run --kind %s: %d %s", tc.of, st, errs)
		}
	}
	for _, kind := range []string{"reentrant", "fair", "read-write"} {
		if !slices.Contains(needs(), kind) {
			t.Errorf("doctor needs %q", needs())
		}
	}
}

// Nothing that people read calls a kind by one of its old names.
func TestNoOldNamesOfKinds(t *testing.T) {
	old := regexp.MustCompile(`(?m)--?(?:kind|k|need)[ =][a-z,-]*\b(?:rlock|plain)\b|["` + "`" + `|] ?(?:rlock|plain) ?["` + "`" + `|]`)
	find := func(where, text string) {
		for _, found := range old.FindAllString(text, -1) {
			t.Errorf("%s: %s", where, found)
		}
	}
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		find(c.CommandPath(), c.Long+c.Example+c.Flags().FlagUsages())
		for _, sub := range c.Commands() {
			walk(sub)
		}
	}
	walk(newRoot(&app{}))
	for _, dir := range []string{"assets", filepath.Join("..", "..", "docs"), filepath.Join("..", "..", "otel", "dashboards")} {
		err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
			if ext := filepath.Ext(path); err != nil || !slices.Contains([]string{".md", ".js", ".html", ".json"}, ext) {
				return err
			}
			text, err := os.ReadFile(path)
			find(path, string(text))
			return err
		})
		if err != nil {
			t.Error(err)
		}
	}
}
