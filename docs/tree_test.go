package docs

import (
	"bytes"
	"errors"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// git runs git in the root of the repository; the test is skipped where there is none, as in a module's source that was
// downloaded.
func git(t *testing.T, args ...string) (string, error) {
	t.Helper()
	if _, err := os.Stat(".git"); err != nil {
		t.Skip("not in a git repository")
	}
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("git is not installed")
	}
	out, err := exec.CommandContext(t.Context(), "git", args...).Output()
	return string(out), err
}

// programs lists the directories with a package main.
func programs(t *testing.T) []string {
	t.Helper()
	var dirs []string
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && path != "." && strings.HasPrefix(d.Name(), ".") {
			return fs.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.PackageClauseOnly)
		if err != nil {
			return err
		}
		if dir := filepath.ToSlash(filepath.Dir(path)); f.Name.Name == "main" && !slices.Contains(dirs, dir) {
			dirs = append(dirs, dir)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return dirs
}

// What go build leaves of each program can't be added by accident.
func TestBuiltProgramsAreIgnored(t *testing.T) {
	t.Chdir("..")
	dirs := programs(t)
	if len(dirs) == 0 {
		t.Fatal("no program was found")
	}
	for _, dir := range dirs {
		name := dir[strings.LastIndexByte(dir, '/')+1:]
		left := []string{dir + "/" + name, dir + "/" + name + ".exe"}
		if dir != name {
			left = append(left, name) // built from the root
		}
		for _, path := range left {
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
	t.Chdir("..")
	list, err := git(t, "ls-files", "-z")
	if err != nil {
		t.Fatal(err)
	}
	for path := range strings.SplitSeq(strings.TrimRight(list, "\x00"), "\x00") {
		head, err := firstBytes(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue // removed, and not yet told to git
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range magic {
			if bytes.HasPrefix(head, []byte(m)) {
				t.Errorf("%s is a built program or library", path)
			}
		}
	}
}

func firstBytes(path string) ([]byte, error) {
	f, err := os.Open(path) // #nosec G304 -- a tracked file
	if err != nil {
		return nil, err
	}
	defer f.Close()
	head := make([]byte, 8)
	n, err := io.ReadFull(f, head)
	if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
		err = nil
	}
	return head[:n], err
}

// script runs one of scripts/, and returns what it printed.
func script(t *testing.T, env []string, args ...string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "sh", args...)
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// TestFuzzKnowsAllTargets: what is searched is what the code has, in every module.
func TestFuzzKnowsAllTargets(t *testing.T) {
	t.Chdir("..")
	var want []string
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && path != "." && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata") {
			return fs.SkipDir
		}
		if !strings.HasSuffix(path, "_test.go") {
			return nil
		}
		text, err := os.ReadFile(path)
		for _, m := range regexp.MustCompile(`(?m)^func (Fuzz\w+)\(f \*testing\.F\)`).FindAllSubmatch(text, -1) {
			want = append(want, filepath.ToSlash(filepath.Dir(path))+" "+string(m[1]))
		}
		return err
	})
	if err != nil || len(want) < 10 {
		t.Fatal(want, err)
	}
	out, err := script(t, nil, "scripts/fuzz.sh", "--list")
	got := strings.Split(strings.TrimSpace(out), "\n")
	slices.Sort(want)
	slices.Sort(got)
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%v\n%v\nwant %v", err, got, want)
	}
}

// TestTargetsThatDoNothingFail: a name that fits nothing is not a success without work.
func TestTargetsThatDoNothingFail(t *testing.T) {
	t.Chdir("..")
	for _, tc := range []struct {
		env  []string
		args []string
	}{
		{nil, []string{"scripts/fuzz.sh", "1s", "typo"}},
		{[]string{"SERVERS=typo"}, []string{"scripts/matrix.sh"}},
	} {
		out, err := script(t, tc.env, tc.args...)
		if err == nil || strings.Count(out, "\n") > 40 || out == "" {
			t.Errorf("%v %v: %v\n%.2000s", tc.env, tc.args, err, out)
		}
	}
}
