package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/redlatch/redlatch/internal/testbed"
)

var (
	testFunc = regexp.MustCompile(`(?m)^func ((?:Test|Benchmark|Fuzz|Example)\w*)\(`)
	testName = regexp.MustCompile(`\b((?:Test|Benchmark|Fuzz|Example)[A-Z]\w*)(…?)`)
)

// TestNamedTestsExist: a test that a page names is in the code. A name that ends in … stands for all that begin so.
func TestNamedTestsExist(t *testing.T) {
	var tests []string
	for _, file := range files(t, "_test.go") {
		for _, found := range testFunc.FindAllStringSubmatch(read(t, file), -1) {
			tests = append(tests, found[1])
		}
	}
	slices.Sort(tests)
	named := 0
	for _, p := range pages(t) {
		for _, part := range []string{p.prose, p.code} {
			for _, at := range testName.FindAllStringSubmatchIndex(part, -1) {
				name, open := part[at[2]:at[3]], at[4] < at[5]
				if name == "TestName" { // in CONTRIBUTING.md, for any
					continue
				}
				named++
				i, found := slices.BinarySearch(tests, name)
				if open {
					found = i < len(tests) && strings.HasPrefix(tests[i], name)
				}
				if !found {
					t.Errorf("%s names %s, which is not in the code", p.at(part, at[0]), part[at[0]:at[1]])
				}
			}
		}
	}
	testbed.AtLeast(t, named, 100, "names")
}

var (
	sentinel = regexp.MustCompile(`(?m)^\t(Err\w+) += lock\.`)
	detail   = regexp.MustCompile(`(?m)^\t// (\w+Error) (.+)`)
	partOf   = regexp.MustCompile(`^is (?:the detail|one server's part) of `)
)

// TestEachErrorIsInTheTable: COOKBOOK's table says of each sentinel, and of each error that is no sentinel's detail, what
// to do now.
func TestEachErrorIsInTheTable(t *testing.T) {
	_, table, _ := strings.Cut(read(t, "docs/COOKBOOK.md"), "## Which error means what?")
	table, _, _ = strings.Cut(table, "```")
	exports, errs := read(t, "exports.go"), 0
	has := func(name string) {
		errs++
		if !regexp.MustCompile("(?m)^\\| [^|]*`" + regexp.QuoteMeta(name) + "`").MatchString(table) {
			t.Errorf("the table does not have %s", name)
		}
	}
	for _, found := range sentinel.FindAllStringSubmatch(exports, -1) {
		has(found[1])
	}
	for _, found := range detail.FindAllStringSubmatch(exports, -1) {
		if !partOf.MatchString(found[2]) {
			has("*" + found[1])
		}
	}
	testbed.AtLeast(t, errs, 14, "errors")
}

var (
	target   = regexp.MustCompile(`(?m)^([a-z][a-z-]*):`)
	variable = regexp.MustCompile(`(?m)^(?:export +)?([A-Z_]+) *[?:]?=|^export +([A-Z_ ]+)$`)
	call     = regexp.MustCompile(`(?m)(?:^|[ ;&(])make +([a-z][a-z-]*)([^#\n]*)`)
	indented = regexp.MustCompile(`(?m)^    .+`)
	setting  = regexp.MustCompile(`(?:^| )([A-Z_]+)=`)
)

// makefile lists the targets and the variables of the Makefile.
func makefile(t *testing.T) (targets, variables []string) {
	t.Helper()
	text := read(t, "Makefile")
	for _, found := range target.FindAllStringSubmatch(text, -1) {
		targets = append(targets, found[1])
	}
	for _, found := range variable.FindAllStringSubmatch(text, -1) {
		variables = append(variables, strings.Fields(found[1]+" "+found[2])...)
	}
	return targets, variables
}

// TestNamedTargetsExist: where a page says make something, the Makefile has that target, and the variables that are
// set.
func TestNamedTargetsExist(t *testing.T) {
	targets, variables := makefile(t)
	named := 0
	for _, p := range pages(t) {
		check := func(part string, begin, end int) {
			for _, at := range call.FindAllStringSubmatchIndex(part[begin:end], -1) {
				name, rest := part[begin+at[2]:begin+at[3]], part[begin+at[4]:begin+at[5]]
				named++
				if !slices.Contains(targets, name) {
					t.Errorf("%s: the Makefile has no target %s", p.at(part, begin+at[0]), name)
				}
				for _, set := range setting.FindAllStringSubmatch(rest, -1) {
					if !slices.Contains(variables, set[1]) {
						t.Errorf("%s: the Makefile has no variable %s", p.at(part, begin+at[0]), set[1])
					}
				}
			}
		}
		check(p.code, 0, len(p.code))
		for _, span := range p.spans() {
			check(p.prose, span[0], span[1])
		}
		for _, at := range indented.FindAllStringIndex(p.prose, -1) {
			check(p.prose, at[0], at[1])
		}
	}
	testbed.AtLeast(t, named, 30, "calls")
	testbed.AtLeast(t, len(targets), 10, "targets")
	testbed.AtLeast(t, len(variables), 10, "variables")
}

var (
	byDefault = regexp.MustCompile(`(?m)^([A-Z_]+) *\?=`)
	described = regexp.MustCompile(`(?m)^([a-z-]+):.*##(\w*)`)
)

// TestMakefile: no variable has two defaults, of which make would ignore the second without a word, and a target that
// says what it does is in a group that make help knows.
func TestMakefile(t *testing.T) {
	text := read(t, "Makefile")
	seen := map[string]bool{}
	for _, found := range byDefault.FindAllStringSubmatch(text, -1) {
		testbed.Equal(t, seen[found[1]], false, "whether the Makefile gives two defaults to", found[1])
		seen[found[1]] = true
	}
	testbed.AtLeast(t, len(seen), 5, "variables")
	targets := described.FindAllStringSubmatch(text, -1)
	for _, target := range targets {
		if !strings.Contains(text, " '"+target[2]+":") {
			t.Errorf("make help does not list %s: it knows no group %q", target[1], target[2])
		}
	}
	testbed.AtLeast(t, len(targets), 10, "targets")
}

// writers are the functions of the SDK that write to the log; their first text is the message.
var writers = []string{
	"Debug", "Info", "Warn", "Error", "DebugContext", "InfoContext", "WarnContext", "ErrorContext",
	"givenBack", // puts the prefix in front
	"log",       // of the subscriptions
}

const prefix = "redlatch: "

// logged lists the messages that the SDK logs, with the files that do it.
func logged(t *testing.T) map[string]string {
	t.Helper()
	messages := map[string]string{}
	others := []string{"internal/testbed/"}
	for _, mod := range files(t, "/go.mod") {
		others = append(others, strings.TrimSuffix(mod, "go.mod"))
	}
	for _, file := range files(t, ".go") {
		isOther := func(dir string) bool { return strings.HasPrefix(file, dir) }
		if strings.HasSuffix(file, "_test.go") || slices.ContainsFunc(others, isOther) {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, file), nil, parser.SkipObjectResolution)
		testbed.Must(t, err)
		ast.Inspect(parsed, func(n ast.Node) bool {
			if call, ok := n.(*ast.CallExpr); ok {
				if text := message(call); text != "" {
					messages[text] = file
				}
			}
			return true
		})
	}
	return messages
}

// message is what a call writes to the log; "" if it does not.
func message(call *ast.CallExpr) string {
	f, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || !slices.Contains(writers, f.Sel.Name) {
		return ""
	}
	for _, arg := range call.Args {
		if lit, ok := arg.(*ast.BasicLit); ok && lit.Kind == token.STRING {
			text, _ := strconv.Unquote(lit.Value) // which the parser has read
			return prefix + strings.TrimPrefix(text, prefix)
		}
	}
	return ""
}

// TestLogMessages: docs/OBSERVABILITY.md has the messages that the code logs, and no others. One that ends in … stands
// for all that begin so.
func TestLogMessages(t *testing.T) {
	messages := logged(t)
	const path = "docs/OBSERVABILITY.md"
	p := split(path, read(t, path))
	shown := map[string]bool{}
	for _, span := range p.spans() {
		text := p.prose[span[0]:span[1]]
		if !strings.HasPrefix(text, prefix) {
			continue
		}
		begin, open := strings.CutSuffix(text, "…")
		found := false
		for message := range messages {
			if message == text || open && strings.HasPrefix(message, begin) {
				shown[message], found = true, true
			}
		}
		if !found {
			t.Errorf("%s: the code does not log %q", p.at(p.prose, span[0]), text)
		}
	}
	for message, file := range messages {
		if !shown[message] {
			t.Errorf("%s does not have what %s logs: %q", path, file, message)
		}
	}
	testbed.AtLeast(t, len(shown), 10, "messages")
}
