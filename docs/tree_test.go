package docs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/redlatch/redlatch/internal/testbed"
)

// git runs git in the root of the repository; the test is skipped where there is none, as in a module's source that was
// downloaded.
func git(t *testing.T, args ...string) (string, error) {
	t.Helper()
	if _, err := os.Stat(filepath.Join(root, ".git")); err != nil {
		t.Skip("not in a git repository")
	}
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("git is not installed")
	}
	out, err := exec.CommandContext(t.Context(), "git", append([]string{"-C", root}, args...)...).Output()
	return string(out), err
}

var programClause = regexp.MustCompile(`(?m)^package main$`)

// What go build leaves of each program can't be added by accident.
func TestBuiltProgramsAreIgnored(t *testing.T) {
	dirs := map[string]bool{}
	for _, file := range files(t, ".go") {
		if !strings.HasSuffix(file, "_test.go") && programClause.MatchString(read(t, file)) {
			dirs[path.Dir(file)] = true
		}
	}
	testbed.AtLeast(t, len(dirs), 10, "programs")
	for dir := range dirs {
		name := path.Base(dir)
		for _, path := range []string{dir + "/" + name, dir + "/" + name + ".exe", name} { // the last one is built from the root
			if path == dir {
				continue
			}
			if _, err := git(t, "check-ignore", "-q", "--no-index", path); err != nil {
				t.Errorf(".gitignore lets %s through: %v", path, err)
			}
		}
	}
}

// magic begins the programs and libraries of Linux, Windows, macOS and Java.
var magic = []string{"\x7fELF", "MZ", "\xcf\xfa\xed\xfe", "\xca\xfe\xba\xbe", "!<arch>\n"}

// No file that is tracked was built.
func TestNothingBuiltIsTracked(t *testing.T) {
	list, err := git(t, "ls-files", "-z")
	testbed.Must(t, err)
	for path := range strings.SplitSeq(strings.TrimRight(list, "\x00"), "\x00") {
		text, err := os.ReadFile(filepath.Join(root, path)) // #nosec G304 -- a tracked file
		if err != nil && !errors.Is(err, fs.ErrNotExist) {  // removed, and not yet told to git
			t.Fatal(err)
		}
		for _, m := range magic {
			if strings.HasPrefix(string(text), m) {
				t.Errorf("%s is a built program or library", path)
			}
		}
	}
}

// script runs one of scripts/ in the root, and returns what it printed.
func script(t *testing.T, env string, args ...string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "sh", args...)
	cmd.Dir, cmd.Env = root, append(os.Environ(), env)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

var fuzzFunc = regexp.MustCompile(`(?m)^func (Fuzz\w+)\(f \*testing\.F\)`)

// TestFuzzKnowsAllTargets: what is searched is what the code has, in every module.
func TestFuzzKnowsAllTargets(t *testing.T) {
	var want []string
	for _, file := range files(t, "_test.go") {
		for _, m := range fuzzFunc.FindAllStringSubmatch(read(t, file), -1) {
			want = append(want, path.Dir(file)+" "+m[1])
		}
	}
	testbed.AtLeast(t, len(want), 10, "targets")
	out, err := script(t, "", "scripts/fuzz.sh", "--list")
	got := strings.Split(strings.TrimSpace(out), "\n")
	slices.Sort(want)
	slices.Sort(got)
	testbed.Equal(t, fmt.Sprint(got), fmt.Sprint(want), "targets")
	testbed.Must(t, err)
}

// TestTargetsThatDoNothingFail: a name that fits nothing is not a success without work.
func TestTargetsThatDoNothingFail(t *testing.T) {
	for _, tc := range [][]string{{"", "scripts/fuzz.sh", "1s", "typo"}, {"SERVERS=typo", "scripts/matrix.sh"}} {
		out, err := script(t, tc[0], tc[1:]...)
		if err == nil || strings.Count(out, "\n") > 40 || out == "" {
			t.Errorf("%v: %v\n%.2000s", tc, err, out)
		}
	}
}
