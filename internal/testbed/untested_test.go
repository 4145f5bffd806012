package testbed

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// What is not tested stands in the file that scripts/test.sh lists, whether the test goes on or not.
func TestUntestedIsNoted(t *testing.T) {
	path := filepath.Join(t.TempDir(), "untested")
	t.Setenv(VarUntested, path)
	t.Run("goes on", func(t *testing.T) { Untested(t, "a %s", "part") })
	t.Run("skipped", func(t *testing.T) {
		Skip(t, "the rest")
		t.Error("goes on")
	})
	text, err := os.ReadFile(path)
	if want := "NOT TESTED: a part\nNOT TESTED: the rest\n"; err != nil || string(text) != want {
		t.Errorf("%q, %v", text, err)
	}
}

// No test says it by other means: nobody would see it.
func TestWhatIsNotTestedIsListed(t *testing.T) {
	byHand := regexp.MustCompile(`(Skip|Skipf|Log|Logf|Fprintf|skip)\(.*NOT TESTED`)
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && strings.HasPrefix(d.Name(), ".") && d.Name() != "..":
			return fs.SkipDir
		case d.IsDir() || filepath.Ext(path) != ".go":
			return nil
		}
		text, err := os.ReadFile(path) // #nosec G304 G122 -- the project's own
		if err != nil {
			return err
		}
		if line := byHand.Find(text); line != nil {
			t.Errorf("%s: %s: use testbed.Skip or testbed.Untested", path, line)
		}
		return nil
	})
	Must(t, err)
	script, err := os.ReadFile("../../scripts/test.sh")
	if err != nil || !strings.Contains(string(script), VarUntested) {
		t.Errorf("scripts/test.sh does not list %s (%v)", VarUntested, err)
	}
}
