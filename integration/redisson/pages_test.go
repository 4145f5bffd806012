//go:build unix

package redisson

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/redlatch/redlatch/internal/testbed"
)

// TestCallsOnThePagesCompile: what docs/moving shows of Redisson is its code: the last column of the table of calls, and
// the block on its page. (What it shows of the Go libraries, bench/moving compiles.)
func TestCallsOnThePagesCompile(t *testing.T) {
	needJava(t)
	classpath, err := Build(V4)
	testbed.Must(t, err)
	source, calls := "import org.redisson.api.*;\nclass Pages {\n", 0
	add := func(body string) {
		source += strings.ReplaceAll("void given#(RedissonClient redisson, String name, RLock a, RLock b) {\n"+body+"\n}\n", "#", string(rune('a'+calls)))
		calls++
	}
	_, table, _ := strings.Cut(page(t, "README"), "## The calls, side by side\n\n")
	table, _, _ = strings.Cut(table, "\n\n")
	var statements []string
	for _, cell := range regexp.MustCompile("(?m)`([^`|]+;)` \\|$").FindAllStringSubmatch(table, -1) {
		statements = append(statements, cell[1])
	}
	testbed.AtLeast(t, len(statements), 6, "calls of Redisson in the table")
	add(strings.Join(statements, "\n"))
	for _, block := range regexp.MustCompile("(?s)```java\n(.*?)```").FindAllStringSubmatch(page(t, "redisson"), -1) {
		add(block[1])
	}
	testbed.AtLeast(t, calls, 2, "pieces of Redisson's code, with those of its page")
	dir := t.TempDir()
	file := filepath.Join(dir, "Pages.java")
	testbed.Must(t, os.WriteFile(file, []byte(source+"void work() {}\n}\n"), 0o600))
	if out, err := exec.CommandContext(t.Context(), "javac", "-cp", classpath, "-d", dir, file).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s\n%s", err, out, source)
	}
}

func page(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "moving", name+".md"))
	testbed.Must(t, err)
	return string(text)
}
