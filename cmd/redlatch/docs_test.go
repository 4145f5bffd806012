package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The commands that the documents show exist, with those flags and arguments.
func TestDocumentedCommands(t *testing.T) {
	n := 0
	for _, path := range []string{"docs/OPERATIONS.md", "deploy/README.md", "deploy/redlatch-serve.service", "README.md"} {
		text, err := os.ReadFile(filepath.Join("..", "..", filepath.FromSlash(path)))
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			line = strings.TrimPrefix(strings.TrimSpace(line), "ExecStart=/usr/local/bin/")
			if !strings.HasPrefix(line, "redlatch ") || strings.HasPrefix(line, "redlatch run on") {
				continue
			}
			line, _, _ = strings.Cut(line, " | ")
			line, _, _ = strings.Cut(line, " #")
			words := strings.Fields(strings.ReplaceAll(line, "'", ""))[1:]
			root := newRoot(&app{std: streams{strings.NewReader(""), &bytes.Buffer{}, &bytes.Buffer{}}})
			c, rest, err := root.Find(words)
			if err == nil && c == root && words[0] != "help" {
				t.Errorf("%s: %q is no command", path, line)
				continue
			}
			if err == nil {
				err = c.ParseFlags(rest)
			}
			if err == nil && c.Args != nil {
				err = c.Args(c, c.Flags().Args())
			}
			if err != nil {
				t.Errorf("%s: %q: %v", path, line, err)
			}
			n++
		}
	}
	if n < 10 {
		t.Errorf("only %d commands were found", n)
	}
}

// Every command says what it is for and shows an example; the help of each is had by the
// words of its line.
func TestEveryCommandHasHelp(t *testing.T) {
	root := newRoot(&app{std: streams{strings.NewReader(""), &bytes.Buffer{}, &bytes.Buffer{}}})
	for _, c := range append(root.Commands(), root) {
		if c.Short == "" || c.Long == "" || !strings.Contains(c.Example, "redlatch "+strings.TrimPrefix(c.Name(), "redlatch")) {
			t.Errorf("%s: short %q, example %q", c.Name(), c.Short, c.Example)
		}
		status, out, errs := call(t, nil, strings.Fields(strings.TrimPrefix(c.CommandPath(), "redlatch")+" --help")...)
		if status != exitOK || !strings.Contains(out, "Examples:") || errs != "" {
			t.Errorf("%s --help: status %d\n%s%s", c.CommandPath(), status, out, errs)
		}
	}
}
