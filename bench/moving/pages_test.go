package moving

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/redlatch/redlatch/internal/testbed"
)

// before is what the pages of docs/moving and the columns of their table take for granted of a library.
var before = []struct{ library, given string }{
	{"redlatch", "client *redlatch.Client, lock *redlatch.RLock, a, b redlatch.Member, hold redlatch.Hold, oneAttempt, watchdog time.Duration"},
	{"redsync", "rs *redsync.Redsync, mutex *redsync.Mutex, client *redlatch.Client"},
	{"redislock", "locker *redislock.Client, held *redislock.Lock, often redislock.RetryStrategy, names []string, ttl time.Duration, client *redlatch.Client"},
	{"rueidislock", "locker rueidislock.Locker, cancel context.CancelFunc, client *redlatch.Client"},
}

// preamble has an import of each package that is used, and a use of each.
const preamble = `package moving

import (
	"context"
	"errors"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"

	"github.com/redlatch/redlatch"
)

var errBusy error

var _ = []any{errors.Is, time.Now, redislock.New, redsync.New, goredis.NewPool, redis.NewClient, rueidis.NewClient,
	rueidislock.NewLocker, redlatch.New, errBusy}
`

var (
	block = regexp.MustCompile("(?s)```go\n(// before.*?)```")
	code  = regexp.MustCompile("`([^`]+)`")
)

// columns are the cells of the table of calls, by library.
func columns(t *testing.T) map[string][]string {
	t.Helper()
	_, table, found := strings.Cut(page(t, "README"), "## The calls, side by side\n\n")
	if !found {
		t.Fatal("the table of calls is gone")
	}
	table, _, _ = strings.Cut(table, "\n\n")
	cells := map[string][]string{}
	var names []string
	for i, row := range strings.Split(table, "\n") {
		for j, cell := range strings.Split(strings.Trim(row, "|"), "|") {
			if i == 0 {
				name, version, _ := strings.Cut(strings.TrimSpace(cell), " ")
				names = append(names, name)
				// rueidislock is part of rueidis.
				if own := strings.TrimSuffix(name, "lock"); version != "" && name != "Redisson" && !regexp.MustCompile(own+`\S* v`+version).MatchString(read(t, "go.mod")) {
					t.Errorf("%s %s is not what is compiled", name, version)
				}
				continue
			}
			for _, span := range code.FindAllStringSubmatch(cell, -1) {
				cells[names[j]] = append(cells[names[j]], span[1])
			}
		}
	}
	return cells
}

func page(t *testing.T, name string) string { t.Helper(); return read(t, "../docs/moving/"+name+".md") }

// read returns a file of this module, by its path from go.mod.
func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", filepath.FromSlash(path))) // #nosec G304 -- a file of this repository
	testbed.Must(t, err)
	return string(text)
}

// using makes a statement compile that declares what nobody uses.
func using(t *testing.T, statement string) string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "", "package p\nfunc f() {\n"+statement+"\n}", 0)
	testbed.Must(t, err)
	for _, s := range file.Decls[0].(*ast.FuncDecl).Body.List {
		if assign, ok := s.(*ast.AssignStmt); ok && assign.Tok == token.DEFINE {
			for _, name := range assign.Lhs {
				statement += "\n_ = " + name.(*ast.Ident).Name
			}
		}
	}
	return statement
}

// program has a function for each call of the table, and for each block of the pages that is code of another library.
func program(t *testing.T) string {
	t.Helper()
	calls, source, n := columns(t), preamble, 0
	add := func(given, body string) {
		n++
		source += fmt.Sprintf("\nfunc given%d(ctx context.Context, name string, err error, work func(context.Context) error, %s) error {\n"+
			"if ctx.Err() == nil {\n%s\n}\nreturn nil\n}\n", n, given, body)
	}
	for _, library := range before {
		testbed.AtLeast(t, len(calls[library.library]), 5, "calls that the table has of", library.library)
		for _, call := range calls[library.library] {
			if !strings.ContainsAny(call, "(") {
				continue // a name
			}
			add(library.given, using(t, call))
		}
		if library.library == "redlatch" {
			continue
		}
		blocks := block.FindAllStringSubmatch(page(t, library.library), -1)
		testbed.AtLeast(t, len(blocks), 1, "blocks of code on the page of", library.library)
		for _, found := range blocks {
			add(library.given, found[1])
		}
	}
	return source
}

// TestCallsOnThePagesCompile: what docs/moving shows of other libraries is their code, at the versions of go.mod.
func TestCallsOnThePagesCompile(t *testing.T) {
	dir := t.TempDir()
	here, err := os.Getwd()
	testbed.Must(t, err)
	source := filepath.Join(dir, "pages.go")
	overlay := fmt.Sprintf(`{"Replace": {%q: %q}}`, filepath.Join(here, "pages.go"), source)
	testbed.Must(t, os.WriteFile(source, []byte(program(t)), 0o600))
	testbed.Must(t, os.WriteFile(filepath.Join(dir, "overlay.json"), []byte(overlay), 0o600))
	build := exec.CommandContext(t.Context(), "go", "build", "-overlay", filepath.Join(dir, "overlay.json"), ".")
	if out, err := build.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
