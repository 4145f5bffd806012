package docs

import (
	"errors"
	"fmt"
	"go/format"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/redlatch/redlatch/internal/testbed"
)

// The Go code of README and of the pages that people copy from compiles, and whole programs run. A block that begins
// with "// before" is code of another library.

// modulePath is the module that the pages are about.
const modulePath = "github.com/redlatch/redlatch"

var goBlock = regexp.MustCompile("(?s)```go\n(.*?)```")

// snippet stands around a block that is no whole program. It has what such a block may take for granted.
const snippet = `package main

import (
%s)

func block(ctx context.Context, client *redlatch.Client, work func(context.Context) error) error {
%s
	return nil
}

func main() { _ = block }
`

// packages are what blocks use, by the name that they use.
var packages = map[string]string{
	"cmp": "cmp", "context": "context", "errors": "errors", "fmt": "fmt", "log": "log", "os": "os", "slog": "log/slog",
	"strings": "strings", "sync": "sync", "time": "time", "rueidis": "github.com/redis/rueidis", "redlatch": modulePath,
}

// program makes a whole program of a block.
func program(block string) string {
	if strings.HasPrefix(block, "package ") {
		return block
	}
	var imports strings.Builder
	used := block + "context. redlatch."
	for _, name := range slices.Sorted(maps.Keys(packages)) {
		if regexp.MustCompile(`\b` + name + `\.`).MatchString(used) {
			fmt.Fprintf(&imports, "\t%q\n", packages[name])
		}
	}
	if declares(block) {
		if !strings.Contains(block, "func main() {") {
			block += "\nfunc main() {}\n"
		}
		return fmt.Sprintf("package main\n\nimport (\n%s)\n\nvar _ context.Context\nvar _ redlatch.Config\n\n%s", &imports, block)
	}
	block = "if ctx.Err() == nil {\n" + block + "}" // its last line may be a return of its own
	return fmt.Sprintf(snippet, &imports, block)
}

var declaration = regexp.MustCompile(`^(//[^\n]*\n)*(func|type) `)

// declares reports whether a block is declarations, not statements.
func declares(block string) bool { return declaration.MatchString(block) }

// leftOut is what pages whose declarations belong together leave out.
var leftOut = map[string]string{
	"docs/TESTING.md": `func (o *Orders) ship(ctx context.Context, _ string) error { return ctx.Err() }
`,
}

// blocksOf are the blocks of a page that must compile, each as a program or a part of one.
func blocksOf(page, text string) []string {
	var blocks []string
	rest, joins := leftOut[page]
	for _, found := range goBlock.FindAllStringSubmatch(text, -1) {
		switch block := found[1]; {
		case strings.HasPrefix(block, "// before"):
		case strings.HasPrefix(block, "func Test"): // package redlatchtest has them
		case joins && declares(block):
			rest = block + "\n" + rest
		default:
			blocks = append(blocks, block)
		}
	}
	if joins {
		blocks = append(blocks, rest)
	}
	return blocks
}

// consumer makes a module that uses this one as a user's does, with the dependencies that this one brings.
func consumer(t *testing.T) string {
	t.Helper()
	here, err := filepath.Abs(root)
	testbed.Must(t, err)
	dir := t.TempDir()
	mod := strings.Replace(read(t, "go.mod"), "module "+modulePath, "module example.com/consumer", 1) +
		"\nrequire " + modulePath + " v0.0.0\n\nreplace " + modulePath + " => " + filepath.ToSlash(here) + "\n"
	put(t, dir, "go.mod", mod)
	put(t, dir, "go.sum", read(t, "go.sum"))
	return dir
}

// put makes a file in a folder that may be new.
func put(t *testing.T, dir, name, text string) {
	t.Helper()
	err := errors.Join(os.MkdirAll(dir, 0o700), os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	testbed.Must(t, err)
}

// goTool runs the go command in a consumer's module.
func goTool(t *testing.T, dir string, args ...string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", args...) // #nosec G204 -- words of this file
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=mod")
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func TestCodeOnThePagesWorks(t *testing.T) {
	dir := consumer(t)
	srv := testbed.Standalone(t)
	whole := map[string]string{}           // program's directory → where it is from
	for _, page := range files(t, ".md") { // in the others code may have gaps
		if !strings.HasPrefix(page, "docs/moving/") && !slices.Contains([]string{"README.md", "docs/COOKBOOK.md", "docs/TESTING.md"}, page) {
			continue
		}
		blocks := blocksOf(page, read(t, page))
		if page == "README.md" {
			testbed.AtLeast(t, len(blocks), 2, "blocks of Go")
		}
		for i, block := range blocks {
			name := fmt.Sprintf("%s%02d", strings.ToLower(strings.TrimSuffix(filepath.Base(page), ".md")), i)
			name = strings.ReplaceAll(name, "-", "")
			if strings.HasPrefix(block, "package main") {
				if formatted, err := format.Source([]byte(block)); err != nil || string(formatted) != block {
					t.Errorf("%s: a program is not formatted as gofmt does it: %v", page, err)
				}
				whole[name] = page
			}
			put(t, filepath.Join(dir, name), "main.go", strings.ReplaceAll(program(block), "redis://127.0.0.1:6379", "redis://"+srv.Addr()))
		}
	}
	if out, err := goTool(t, dir, "vet", "./..."); err != nil {
		t.Fatalf("what is copied from a page does not compile: %v\n%s", err, out)
	}
	testbed.AtLeast(t, len(whole), 1, "whole programs")
	for name, page := range whole {
		out, err := goTool(t, dir, "run", "./"+name)
		t.Logf("%s, %s:\n%s", page, name, out)
		if err != nil {
			t.Errorf("%s: a program copied from it: %v", page, err)
		}
		if page == "README.md" && out != "shipping, and nobody else is\n" {
			t.Errorf("%s: its program printed %q", page, out)
		}
	}
}
