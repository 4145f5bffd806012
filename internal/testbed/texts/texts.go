// Package texts runs tests that stand in text files: what is done, and what comes of it.
package texts

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// T is what is needed of a *testing.T.
type T[S any] interface {
	Helper()
	Errorf(format string, args ...any)
	Fatal(args ...any)
	Fatalf(format string, args ...any)
	Run(name string, f func(S)) bool
}

// Each plays the files of a pattern, of which there must be at least so many, each in a subtest of its name. play
// returns the text as it must stand in the file. With REDLATCH_REWRITE=1 a file that differs is written anew: read what
// has changed.
func Each[S T[S]](t S, pattern string, least int, play func(t S, text string) string) {
	t.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) < least {
		t.Fatalf("%d files like %s, want %d; %v", len(files), pattern, least, err)
	}
	for _, name := range files {
		t.Run(strings.TrimSuffix(filepath.Base(name), ".txt"), func(t S) {
			text, err := os.ReadFile(name) // #nosec G304 -- of the test's folder
			if err != nil {
				t.Fatal(err)
			}
			switch got := play(t, string(text)); {
			case got == string(text):
			case os.Getenv("REDLATCH_REWRITE") != "":
				if err := os.WriteFile(name, []byte(got), 0o600); err != nil {
					t.Fatal(err)
				}
			default:
				t.Errorf("it goes otherwise:\n%s", difference(string(text), got))
			}
		})
	}
}

// Play goes through a text: what begins with # and blank lines stay, and below each line that begins with > stands, a line
// each, what do returns for its commands, which ; separates.
func Play(text string, do func(commands []string) []string) string {
	var out strings.Builder
	for line := range strings.Lines(text) {
		command, is := strings.CutPrefix(strings.TrimSpace(line), "> ")
		switch {
		case is:
			out.WriteString("> " + command + "\n")
			for _, what := range do(strings.Split(command, "; ")) {
				out.WriteString(what + "\n")
			}
		case strings.HasPrefix(line, "#") || line == "\n":
			out.WriteString(line)
		}
	}
	return out.String()
}

// difference shows the lines of got, with what differs from want above them.
func difference(want, got string) string {
	var out strings.Builder
	expected := strings.Split(want, "\n")
	for line := range strings.SplitSeq(got, "\n") {
		if n := slices.Index(expected, line); n >= 0 {
			for _, missing := range expected[:n] {
				out.WriteString("want " + missing + "\n")
			}
			expected = expected[n+1:]
			out.WriteString("     " + line + "\n")
			continue
		}
		out.WriteString("got  " + line + "\n")
	}
	return out.String()
}
