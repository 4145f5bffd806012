// Package docs compares what the pages of the repository say with its other files.
package docs

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/redlatch/redlatch/internal/testbed"
)

// root is the top of the repository.
const root = ".."

// files lists the files whose names have an ending, as paths from the root with slashes. Folders that begin with a dot
// are left out. The test is skipped where the other modules are missing, as in a module's source that was downloaded.
func files(t *testing.T, ending string) []string {
	t.Helper()
	if _, err := os.Stat(filepath.Join(root, "integration")); err != nil {
		t.Skip("not in a clone of the repository")
	}
	var found []string
	err := fs.WalkDir(os.DirFS(root), ".", func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && path != "." && strings.HasPrefix(d.Name(), ".") {
			return fs.SkipDir
		}
		if err == nil && !d.IsDir() && strings.HasSuffix(path, ending) {
			found = append(found, path)
		}
		return err
	})
	testbed.Must(t, err)
	return found
}

// read returns the text of a file.
func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(path))) // #nosec G304 -- a file of this repository
	testbed.Must(t, err)
	return string(text)
}

// write writes a file anew.
func write(t *testing.T, path, text string) {
	t.Helper()
	path = filepath.Join(root, filepath.FromSlash(path))
	testbed.Must(t, os.WriteFile(path, []byte(text), 0o644)) // #nosec G306 -- a page or picture
}

// page is a page in parts. A line that is not of a part is empty there: lines keep their numbers.
type page struct {
	path  string // from the root, with slashes
	prose string // what is in no block of code
	code  string // blocks of code, but not those of Go
}

var fence = regexp.MustCompile("^ *```([a-z]*)")

// split takes a page apart.
func split(path, text string) page {
	var prose, code strings.Builder
	inside, language := false, ""
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		found := fence.FindStringSubmatch(line)
		switch {
		case found != nil:
			inside, language = !inside, found[1]
		case !inside:
			prose.WriteString(line)
		case language != "go":
			code.WriteString(line)
		}
		prose.WriteByte('\n')
		code.WriteByte('\n')
	}
	return page{path, prose.String(), code.String()}
}

// pages are all pages of the repository.
func pages(t *testing.T) []page {
	t.Helper()
	var all []page
	for _, path := range files(t, ".md") {
		all = append(all, split(path, read(t, path)))
	}
	testbed.AtLeast(t, len(all), 20, "pages")
	return all
}

// at says where a page has something, by its place in one of the parts.
func (p page) at(part string, offset int) string {
	return fmt.Sprintf("%s:%d", p.path, 1+strings.Count(part[:offset], "\n"))
}

var (
	paragraph = regexp.MustCompile(`(?:[^\n]+\n)+`)
	inline    = regexp.MustCompile("`[^`]+`")
)

// spans are where the prose has code between backticks, without the backticks. None goes on in the next paragraph.
func (p page) spans() [][2]int {
	var all [][2]int
	for _, part := range paragraph.FindAllStringIndex(p.prose, -1) {
		for _, span := range inline.FindAllStringIndex(p.prose[part[0]:part[1]], -1) {
			all = append(all, [2]int{part[0] + span[0] + 1, part[0] + span[1] - 1})
		}
	}
	return all
}

// words is the prose with blanks in place of what is between backticks.
func (p page) words() string {
	text := []byte(p.prose)
	for _, span := range p.spans() {
		for i := span[0]; i < span[1]; i++ {
			if text[i] != '\n' {
				text[i] = ' '
			}
		}
	}
	return string(text)
}

func TestPagesAreTakenApart(t *testing.T) {
	p := split("x.md", "A `make\nb` `c`.\n\n```go\nmake d\n```\nlone ` here\n\n```sh\nmake `e`\n```\n`f`\n")
	var spans []string
	for _, span := range p.spans() {
		spans = append(spans, p.prose[span[0]:span[1]])
	}
	testbed.Equal(t, fmt.Sprintf("%q", spans), `["make\nb" "c" "f"]`, "spans")
	testbed.Equal(t, strings.TrimSpace(p.code), "make `e`", "code")
	if want := "A `    \n ` ` `.\n"; !strings.HasPrefix(p.words(), want) {
		t.Errorf("words: %q", p.words())
	}
	testbed.Equal(t, p.at(p.code, strings.Index(p.code, "make")), "x.md:10", "where the code is")
}
