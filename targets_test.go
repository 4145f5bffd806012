package redlatch_test

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

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
