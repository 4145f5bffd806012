package main

import (
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/redlatch/redlatch/internal/testbed"
)

// The commands that the documents show exist, with those flags and arguments.
func TestDocumentedCommands(t *testing.T) {
	t.Parallel()
	n := 0
	for _, path := range []string{"docs/OPERATIONS.md", "deploy/README.md", "deploy/redlatch-serve.service", "README.md"} {
		text, err := os.ReadFile(filepath.Join("..", "..", filepath.FromSlash(path)))
		testbed.Must(t, err)
		shown := !strings.HasSuffix(path, ".md") // in a page, what stands in a block of code
		for line := range strings.Lines(string(text)) {
			line = strings.TrimPrefix(strings.TrimSpace(line), "ExecStart=/usr/local/bin/")
			if strings.HasPrefix(line, "```") {
				shown = !shown
			}
			if !shown || !strings.HasPrefix(line, "redlatch ") {
				continue
			}
			line, _, _ = strings.Cut(line, " | ")
			line, _, _ = strings.Cut(line, " #")
			words := strings.Fields(strings.ReplaceAll(line, "'", ""))[1:]
			root := newRoot(&app{std: streams{strings.NewReader(""), io.Discard, io.Discard}})
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
	testbed.AtLeast(t, n, 10, "commands that were found")
}

// Every command says what it is for and shows an example; the help of each is had by the
// words of its line.
func TestEveryCommandHasHelp(t *testing.T) {
	t.Parallel()
	root := newRoot(&app{std: streams{strings.NewReader(""), io.Discard, io.Discard}})
	for _, c := range append(root.Commands(), root) {
		if c.Short == "" || c.Long == "" || c.Args == nil || !strings.Contains(c.Example, "redlatch "+strings.TrimPrefix(c.Name(), "redlatch")) {
			t.Errorf("%s: short %q, example %q, or it does not check its arguments", c.Name(), c.Short, c.Example)
		}
		call(t, nil, strings.Fields(strings.TrimPrefix(c.CommandPath(), "redlatch")+" --help")...).ends(exitOK, "Examples:").warns()
	}
}

// Images are pinned by digest, none runs as root, and what the example shows without a login is for this machine only.
func TestImagesArePinned(t *testing.T) {
	t.Parallel()
	pinned := regexp.MustCompile(`@sha256:[0-9a-f]{64}( AS \w+)?$`)
	for path, users := range map[string]int{"deploy/Containerfile": 1, "deploy/cronjob.yaml": 1, "examples/observability/compose.yaml": 5} {
		text, err := os.ReadFile(filepath.Join("..", "..", filepath.FromSlash(path)))
		testbed.Must(t, err)
		for line := range strings.Lines(string(text)) {
			words := strings.TrimSpace(line)
			image, ok := strings.CutPrefix(words, "image: ")
			if from, is := strings.CutPrefix(words, "FROM "); is {
				image, ok = from, from != "scratch"
			}
			if ok && !pinned.MatchString(image) {
				t.Errorf("%s: %s is pinned by no digest", path, image)
			}
			if strings.HasPrefix(words, "user: ") || strings.HasPrefix(words, "USER ") || words == "runAsNonRoot: true" {
				users--
			}
			if strings.HasPrefix(words, "user: \"0") || strings.HasPrefix(words, "ports:") && !strings.HasPrefix(words, `ports: ["127.0.0.1:`) {
				t.Errorf("%s: %s", path, words)
			}
		}
		testbed.Equal(t, users, 0, "images that say no user in", path)
	}
}
