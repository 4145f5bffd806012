package redlatch_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/redlatch/redlatch/internal/testbed"
)

const modulePath = "github.com/redlatch/redlatch"

// allowedModules are the direct dependencies that the SDK may have. A user's
// go.mod gets each of them, so nothing is added for tests or convenience: what
// needs more lives in a module of its own.
var allowedModules = []string{
	"github.com/redis/rueidis",
	"github.com/google/uuid",
	"github.com/cenkalti/backoff/v4",
	"go.opentelemetry.io/otel",
	"go.opentelemetry.io/otel/metric",
	"go.opentelemetry.io/otel/trace",
}

// forbiddenImports are packages that code of the SDK has no use for.
var forbiddenImports = map[string]string{
	"log":                           "a library writes to the *slog.Logger of its Config",
	"math/rand":                     "math/rand/v2 needs no seed and no lock",
	"io/ioutil":                     "deprecated",
	"plugin":                        "not on every system",
	"net/http/pprof":                "registers handlers in the user's process",
	"expvar":                        "registers handlers in the user's process",
	"testing":                       "registers nothing, but has no place in a user's binary",
	"github.com/redis/rueidis/mock": "tests use real servers",
}

var kinds = []string{"rlock", "fairlock", "rwlock", "multilock"}

// engineLayers are the packages of the engine from below, those of one line beside
// each other: imports run upwards in this list only.
var engineLayers = [][]string{
	{"internal/lease", "internal/luascript", "internal/observe", "internal/slots", "otel"},
	{"internal/desk", "internal/pubsub"},
	{"internal/conn"},
	{"internal/kind", "internal/inspect", "internal/telemetry"},
	{"internal/sender"},
	{"internal/batch"},
	{"internal/held"},
	{"internal/engine"},
}

// layer orders the packages: imports run from a higher one to a lower one, never
// to one of the same layer. 0: not known.
func layer(dir string) int {
	switch dir {
	case "internal/acl", "internal/quote", "internal/settings":
		return 1
	case "lock":
		return 2
	}
	for i, level := range engineLayers {
		if slices.Contains(level, dir) {
			return i + 3
		}
	}
	top := len(engineLayers) + 3
	switch first, _, _ := strings.Cut(dir, "/"); {
	case first == "multilock":
		return top + 1
	case slices.Contains(kinds, first):
		return top
	case dir == "":
		return top + 2
	}
	return 0
}

// neverImports are imports that the layers would allow and that would mix two
// concepts: what is held knows nothing of how a lock is acquired or waited for.
var neverImports = map[string]string{
	"internal/held":   "internal/pubsub",
	"internal/sender": "internal/pubsub",
	"internal/batch":  "internal/pubsub",
}

// pure are packages of functions and state machines: whoever calls them tells the time and carries out
// what they decide, so that every order of events can be tried.
var pure = []string{"internal/desk", "internal/lease"}

// impure are imports and names that a pure package has no use for. Without names: all of it.
var impure = map[string][]string{
	"context": nil, "sync": nil, "sync/atomic": nil, "math/rand": nil, "math/rand/v2": nil, "os": nil, "net": nil, "log/slog": nil,
	"time": {"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "NewTimer", "NewTicker", "Tick", "Timer", "Ticker"},
}

// impurities are what makes a file no part of a pure package.
func impurities(file *ast.File) (found []string) {
	for _, spec := range file.Imports {
		imported, err := strconv.Unquote(spec.Path.Value)
		if names, bad := impure[imported]; err != nil || bad && names == nil {
			found = append(found, "import "+imported)
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.SelectorExpr:
			if of, ok := n.X.(*ast.Ident); ok && of.Name == "time" && slices.Contains(impure["time"], n.Sel.Name) {
				found = append(found, "time."+n.Sel.Name)
			}
		case *ast.GoStmt:
			found = append(found, "go")
		case *ast.ChanType:
			found = append(found, "chan")
		}
		return true
	})
	return found
}

// TestImpuritiesAreFound keeps the check of pure packages able to fail.
func TestImpuritiesAreFound(t *testing.T) {
	const dirty = `package p
import ("context"; "sync"; "time")
func f(c chan int) { go f(c); time.Sleep(time.Second); _ = time.Now() }`
	file, err := parser.ParseFile(token.NewFileSet(), "", dirty, 0)
	testbed.Must(t, err)
	if got, want := fmt.Sprint(impurities(file)), "[import context import sync chan go time.Sleep time.Now]"; got != want {
		t.Errorf("found %s, want %s", got, want)
	}
}

// badImport says what is wrong about an import of a file in dir ("" is the
// root), or returns "".
func badImport(dir string, test bool, imported string) string {
	inTestbed := dir == "internal/testbed" || strings.HasPrefix(dir, "internal/testbed/")
	if reason, ok := forbiddenImports[imported]; ok && !test {
		return reason
	}
	own, ours := strings.CutPrefix(imported, modulePath)
	if ours && (own == "" || own[0] == '/') {
		return badOwnImport(dir, test || inTestbed, strings.TrimPrefix(own, "/"))
	}
	if first, _, _ := strings.Cut(imported, "/"); !strings.Contains(first, ".") {
		return "" // the standard library
	}
	for _, module := range allowedModules {
		if imported == module || strings.HasPrefix(imported, module+"/") {
			if inTestbed && module != "github.com/redis/rueidis" {
				return "the test bed needs the standard library and rueidis only"
			}
			return ""
		}
	}
	return "not a dependency that the SDK may have; what needs it belongs into another module"
}

func badOwnImport(dir string, test bool, own string) string {
	if slices.Contains([]string{"integration", "bench", "examples", "redlatchtest"}, strings.Split(own, "/")[0]) {
		return "that is another module"
	}
	if test {
		return "" // an external test may look from above
	}
	if own == "internal/testbed" {
		return "the test bed is for tests, benchmarks and demos"
	}
	from, to := layer(dir), layer(own)
	switch {
	case from == 0 || to == 0:
		return "a package that layer() does not know: give it its place"
	case neverImports[dir] == own:
		return "what is held, and what sends for it, knows nothing of waiting"
	case to >= from:
		return "imports run root -> multilock -> kinds -> engine -> … -> lock"
	}
	return ""
}

// Imports run one way, and a pure package reads no clock, waits for nothing, shares nothing and throws no dice.
func TestImportsRunOneWay(t *testing.T) {
	files, pureFiles := 0, 0
	err := filepath.WalkDir(".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			base := entry.Name()
			if name != "." && (base[0] == '.' || base[0] == '_' || base == "testdata" || isModule(name)) {
				return fs.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(name, ".go") {
			return nil
		}
		files++
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		dir := strings.TrimPrefix(path.Dir(filepath.ToSlash(name)), ".")
		if slices.Contains(pure, dir) && !strings.HasSuffix(name, "_test.go") {
			pureFiles++
			if found := impurities(file); found != nil {
				t.Errorf("%s has %v", name, found)
			}
		}
		for _, spec := range file.Imports {
			imported, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			if bad := badImport(dir, strings.HasSuffix(name, "_test.go"), imported); bad != "" {
				t.Errorf("%s imports %s: %s", name, imported, bad)
			}
		}
		return nil
	})
	testbed.Must(t, err)
	if files < 10 || pureFiles < 10 {
		t.Errorf("only %d files were looked at, %d of pure packages", files, pureFiles)
	}
}

func isModule(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, "go.mod"))
	return err == nil
}

// TestBadImportsAreFound keeps the check above able to fail. Packages of this module are named by their folders, with
// ./ before.
func TestBadImportsAreFound(t *testing.T) {
	for _, tc := range []struct{ dir, good, bad string }{
		{"", "./rlock ./lock", ""},
		{"rlock", "./internal/engine context", ". ./fairlock ./internal/testbed log testing github.com/redis/rueidis/mock github.com/redis/go-redis/v9"},
		{"multilock", "./internal/held ./rlock", ""},
		{"lock", "./internal/quote", ". ./internal/engine"},
		{
			"internal/engine", "./lock ./internal/held ./internal/pubsub ./internal/luascript github.com/redis/rueidis",
			"./rlock ./multilock",
		},
		{"internal/held", "./internal/batch", "./internal/engine ./internal/pubsub"},
		{"internal/kind", "./internal/pubsub", "./internal/sender"},
		{"otel", "go.opentelemetry.io/otel/attribute", ""},
		{"internal/quote", "", "./lock"},
		{"internal/luascript", "", "./fairlock"},
		{"internal/sender", "", "./internal/held"},
		{"internal/batch", "", "./internal/held"},
		{"internal/pubsub", "", "./internal/conn ./multilock"},
		{"internal/inspect", "", "./internal/held"},
		{"internal/telemetry", "", "./internal/engine"},
		{"internal/testbed", "", "github.com/google/uuid"},
		{"surprise", "", "./lock"},
		{"test of rlock", ".", "go.uber.org/goleak"},
		{"test of ", "./internal/testbed", "./integration"},
	} {
		dir, test := strings.CutPrefix(tc.dir, "test of ")
		for imported := range strings.FieldsSeq(tc.good + " " + tc.bad) {
			name := imported
			if own, is := strings.CutPrefix(imported, "."); is {
				name = modulePath + own
			}
			bad := !slices.Contains(strings.Fields(tc.good), imported)
			if got := badImport(dir, test, name); (got != "") != bad {
				t.Errorf("%q (test: %t) imports %s: %q", dir, test, name, got)
			}
		}
	}
}

// The SDK requires no module but the allowed ones, and replaces none: users would not get the replacement.
func TestDirectDependenciesAreTheAllowedOnes(t *testing.T) {
	text, err := exec.CommandContext(t.Context(), "go", "mod", "edit", "-json").Output()
	var mod struct {
		Require []struct {
			Path     string
			Indirect bool
		}
		Replace []any
	}
	if err := errors.Join(err, json.Unmarshal(text, &mod)); err != nil || len(mod.Require) == 0 || len(mod.Replace) > 0 {
		t.Fatalf("%d requirements in go.mod, %d replacements, %v", len(mod.Require), len(mod.Replace), err)
	}
	for _, module := range mod.Require {
		if !module.Indirect && !slices.Contains(allowedModules, module.Path) {
			t.Errorf("go.mod requires %s: not a dependency that the SDK may have", module.Path)
		}
	}
}
