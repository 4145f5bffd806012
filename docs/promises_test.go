package docs

import (
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/redlatch/redlatch/internal/testbed"
)

const (
	promisesPage  = "docs/PROMISES.md"
	promisesBegin = "<!-- From here: the tests' own words, by make promises. -->\n"
	promisesEnd   = "<!-- To here. -->\n"
)

var update = flag.Bool("update", false, "write the page anew")

var promising = regexp.MustCompile(`^(Test|Fuzz)[A-Z]`)

var sentence = regexp.MustCompile(`^.*?[.!?]["')]*(?:\s|$)`)

// promise is the first sentence of a test's comment, as users read it; "" if it tells them nothing.
func promise(test, comment string) string {
	text := strings.Join(strings.Fields(strings.TrimPrefix(comment, test+": ")), " ")
	text = strings.TrimSpace(sentence.FindString(text))
	if text == "" || strings.HasPrefix(text, test) || strings.HasPrefix(strings.ToLower(text), "the same") {
		return ""
	}
	if word, _, _ := strings.Cut(text, " "); strings.Contains(word, "/") {
		return text // a file's name
	}
	r, size := utf8.DecodeRuneInString(text)
	return string(unicode.ToUpper(r)) + text[size:]
}

// wrapped is a list's entry in lines of at most 120 columns.
func wrapped(text string) string {
	lines, width := "-", 1
	for word := range strings.FieldsSeq(text) {
		if n := len([]rune(word)); width+1+n > 120 {
			lines, width = lines+"\n  "+word, 2+n
		} else {
			lines, width = lines+" "+word, width+1+n
		}
	}
	return lines + "\n"
}

// promises are the chapters of the page: a folder of integration/ each, with a section per file.
func promises(t *testing.T) string {
	t.Helper()
	tests := slices.DeleteFunc(files(t, "_test.go"), func(file string) bool { return !strings.HasPrefix(file, "integration/") })
	order := func(file string) string { // the tables of all kinds first
		return strings.Replace(path.Dir(file)+"/ "+file, "integration/promises/", "integration/ /", 1)
	}
	slices.SortFunc(tests, func(a, b string) int { return strings.Compare(order(a), order(b)) })
	var page strings.Builder
	chapter := ""
	for _, file := range tests {
		parsed, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, file), nil, parser.ParseComments|parser.SkipObjectResolution)
		testbed.Must(t, err)
		section := ""
		for _, decl := range parsed.Decls {
			f, ok := decl.(*ast.FuncDecl)
			if !ok || !promising.MatchString(f.Name.Name) || f.Name.Name == "TestMain" {
				continue
			}
			text := promise(f.Name.Name, f.Doc.Text())
			if text == "" {
				t.Errorf("%s: the first sentence of %s's comment is no promise", file, f.Name.Name)
			}
			section += wrapped(text + " `" + f.Name.Name + "`")
		}
		if path.Base(file) == "scenes_test.go" {
			section += scenes(t, path.Dir(file))
		}
		if section == "" {
			continue
		}
		if dir := path.Dir(file); dir != chapter {
			chapter = dir
			fmt.Fprintf(&page, "\n## %s\n", dir)
		}
		fmt.Fprintf(&page, "\n### [%s](../%s)\n\n%s", strings.TrimSuffix(path.Base(file), "_test.go"), file, section)
	}
	return page.String() + "\n"
}

// scenes are the promises of the texts that a test plays: the first sentence of each one's comment.
func scenes(t *testing.T, dir string) (section string) {
	t.Helper()
	for _, file := range files(t, ".txt") {
		if name, is := strings.CutPrefix(file, dir+"/testdata/"); is {
			comment, _, _ := strings.Cut(strings.TrimPrefix(read(t, file), "# "), "\n>")
			text := promise("TestScenes", strings.ReplaceAll(comment, "\n#", ""))
			if text == "" {
				t.Errorf("%s: the first sentence of its comment is no promise", file)
			}
			section += wrapped(text + " `TestScenes/" + strings.TrimSuffix(name, ".txt") + "`")
		}
	}
	return section
}

// TestPromises: docs/PROMISES.md has the promise of each test of integration/; make promises writes it.
func TestPromises(t *testing.T) {
	want := promises(t)
	text := read(t, promisesPage)
	head, rest, found := strings.Cut(text, promisesBegin)
	_, tail, ends := strings.Cut(rest, promisesEnd)
	if !found || !ends {
		t.Fatalf("%s has lost its marks", promisesPage)
	}
	want = head + promisesBegin + want + promisesEnd + tail
	if *update {
		write(t, promisesPage, want)
	} else if text != want {
		t.Errorf("%s is out of date: run make promises", promisesPage)
	}
}

func TestWhatIsNoPromiseIsFound(t *testing.T) {
	for comment, want := range map[string]string{
		"TestX: a lock\nexcludes. It does.": "A lock excludes.",
		"A lock (of 7.4) excludes.":         "A lock (of 7.4) excludes.",
		"docs/ACL.md is enough.":            "docs/ACL.md is enough.",
		"Holds \"are kept.\" More.":         "Holds \"are kept.\"",
		"":                                  "", "TestX locks.": "", "no sentence": "", "The same for others.": "", "TestX: The same.": "",
	} {
		testbed.Equal(t, promise("TestX", comment), want, comment)
	}
}
