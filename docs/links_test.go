package docs

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/redlatch/redlatch/internal/testbed"
)

var (
	link      = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	reference = regexp.MustCompile(`(?m)^\[([^\]]+)\]: *(\S+)`)
	referring = regexp.MustCompile(`\]\[([^\]]+)\]`)
	tag       = regexp.MustCompile(`(?:href|src)="([^"]+)"`)
	elsewhere = regexp.MustCompile(`^[a-z]+:`)
	heading   = regexp.MustCompile(`(?m)^#{1,6} +(.+?) *$`)
	linked    = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
)

// anchor is the address that GitHub gives to a heading, the first of its text on a page.
func anchor(text string) string {
	var b strings.Builder
	for _, r := range strings.ToLower(linked.ReplaceAllString(text, "$1")) {
		switch {
		case r == ' ':
			b.WriteByte('-')
		case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsNumber(r):
			b.WriteRune(r)
		}
	}
	return b.String()
}

// anchors are the addresses of the headings of a page.
func (p page) anchors() []string {
	var all []string
	for _, found := range heading.FindAllStringSubmatch(p.prose, -1) {
		name, first := anchor(found[1]), anchor(found[1])
		for n := 1; slices.Contains(all, name); n++ {
			name = fmt.Sprintf("%s-%d", first, n)
		}
		all = append(all, name)
	}
	return all
}

// badLink says what is wrong with a link to a file or heading, or returns "".
func (p page) badLink(target string) string {
	if elsewhere.MatchString(target) {
		return ""
	}
	file, fragment, has := strings.Cut(target, "#")
	at := p.path
	if file != "" {
		at = path.Join(path.Dir(p.path), file)
	}
	if at == ".." || strings.HasPrefix(at, "../") {
		return "it leads out of the repository"
	}
	file = filepath.Join(root, filepath.FromSlash(at))
	if _, err := os.Stat(file); err != nil {
		return "there is no " + at
	} else if !has {
		return ""
	}
	text, err := os.ReadFile(file) // #nosec G304 -- a file of this repository
	if err != nil || !strings.HasSuffix(at, ".md") {
		return "what has headings is a page"
	}
	if !slices.Contains(split(at, string(text)).anchors(), fragment) {
		return at + " has no heading with that address"
	}
	return ""
}

// TestLinks: the file, folder or heading that a page links to is there.
func TestLinks(t *testing.T) {
	links, headings := 0, 0
	for _, p := range pages(t) {
		words := p.words()
		// Each match, then its target.
		found := append(link.FindAllStringSubmatchIndex(words, -1), tag.FindAllStringSubmatchIndex(words, -1)...)
		names := map[string]bool{}
		for _, ref := range reference.FindAllStringSubmatchIndex(words, -1) {
			names[strings.ToLower(words[ref[2]:ref[3]])] = true
			found = append(found, []int{ref[0], ref[1], ref[4], ref[5]})
		}
		for _, at := range found {
			target := words[at[2]:at[3]]
			links++
			if strings.Contains(target, "#") {
				headings++
			}
			if bad := p.badLink(target); bad != "" {
				t.Errorf("%s links to %s: %s", p.at(words, at[2]), target, bad)
			}
		}
		for _, at := range referring.FindAllStringSubmatchIndex(words, -1) {
			if name := words[at[2]:at[3]]; !names[strings.ToLower(name)] {
				t.Errorf("%s links to [%s]: the page does not say where that is", p.at(words, at[2]), name)
			}
		}
	}
	testbed.AtLeast(t, links, 100, "links")
	testbed.AtLeast(t, headings, 5, "links to headings")
}

func TestAnchorsAreThoseOfGitHub(t *testing.T) {
	for text, want := range map[string]string{
		"What was tried":                     "what-was-tried",
		"9. Leases are lost: who held it?":   "9-leases-are-lost-who-held-it",
		"`processes/8x4/1ms`: The same":      "processes8x41ms-the-same",
		"From [go-redis](go-redis.md) – now": "from-go-redis--now",
		"Lock + Unlock, with a_b":            "lock--unlock-with-a_b",
		"Größe":                              "größe",
	} {
		testbed.Equal(t, anchor(text), want, text)
	}
	p := split("x.md", "# A\n## B\n```sh\n# no heading\n```\n### B\n## B\n")
	testbed.Equal(t, fmt.Sprint(p.anchors()), "[a b b-1 b-2]")
}

func TestBadLinksAreFound(t *testing.T) {
	p := page{path: "docs/ACL.md"}
	for target, bad := range map[string]bool{
		"https://example.com/x": false, "SAFETY.md": false, "../lock/": false, "../README.md#for-operators": false,
		"#for-operators": false, "images/trace.svg": false,
		"SECURE.md": true, "../../x": true, "#nowhere": true, "../README.md#nowhere": true,
		"../lock#x": true, "images/trace.svg#x": true,
	} {
		testbed.Equal(t, p.badLink(target) != "", bad, target)
	}
}

// cells counts the cells of a table's row. GitHub takes a | for a border also between backticks.
func cells(row string) int {
	row = strings.ReplaceAll(row, `\|`, "")
	row = strings.TrimSuffix(strings.TrimPrefix(strings.TrimSpace(row), "|"), "|")
	return 1 + strings.Count(row, "|")
}

// TestTables: no row has more or fewer cells than its table's first one; GitHub would drop what is too much.
func TestTables(t *testing.T) {
	rows := 0
	for _, p := range pages(t) {
		width, number := 0, 0
		for line := range strings.Lines(p.prose) {
			number++
			if !strings.HasPrefix(line, "|") {
				width = 0
				continue
			}
			rows++
			if width == 0 {
				width = cells(line)
			}
			testbed.Equal(t, cells(line), width, "cells of a row in a table", p.path, number)
		}
	}
	testbed.AtLeast(t, rows, 100, "rows")
	for row, want := range map[string]int{"| a | b |": 2, "| a | `b\\|c` |\n": 2, "| a | `b|c` |": 3, "|||": 2} {
		testbed.Equal(t, cells(row), want, row)
	}
}
