package desk

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// mutant is a bug as a text patch, and what must find it.
type mutant struct {
	rule, name string
	file       string
	old, new   string
	profile    string // of TestWorlds, if that finds it; else
	small      string // of TestSearch
	within     int    // events, or states
}

// varMutants asks for the mutants: all, or those with this in their names. Each takes a build.
const varMutants = "REDLATCH_DESK_MUTANTS"

// Each patch fits the code: this keeps the table true when the code changes.
func TestMutantsApply(t *testing.T) {
	for _, m := range mutants {
		text, err := os.ReadFile(m.file)
		if err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(string(text), m.old); n != 1 {
			t.Errorf("%s %s: its text is %d times in %s", m.rule, m.name, n, m.file)
		}
	}
}

// Each bug is found: it is put into the code, and the simulation or the search must find it within what the table says.
func TestMutants(t *testing.T) {
	want := os.Getenv(varMutants)
	if want == "" {
		t.Skipf("set %s to all, or to a part of a name (make mutants does)", varMutants)
	}
	dir, found := t.TempDir(), regexp.MustCompile(`after (\d+) (events|states).*: (.*)`)
	for n, m := range mutants {
		if want != "all" && !strings.Contains(m.rule+" "+m.name, want) {
			continue
		}
		t.Run(m.rule+" "+m.name, func(t *testing.T) {
			program := filepath.Join(dir, strconv.Itoa(n))
			m.build(t, program)
			cmd := exec.CommandContext(t.Context(), program, "-test.run", "^"+m.test()+"$", "-test.timeout", "5m")
			cmd.Env = append(os.Environ(), "REDLATCH_DESK_WORLDS=400", "REDLATCH_DESK_STATES=300000", "REDLATCH_DESK_PROFILE="+m.profile)
			out, err := cmd.CombinedOutput()
			at := found.FindStringSubmatch(string(out))
			if err == nil || at == nil {
				t.Fatalf("%s does not find it: %v\n%.2000s", m.test(), err, out)
			}
			if took, err := strconv.Atoi(at[1]); err != nil || took > m.within {
				t.Errorf("%s finds it after %s %s, later than %d", m.test(), at[1], at[2], m.within)
			}
			t.Logf("%s%s: after %s %s: %s", m.profile, m.small, at[1], at[2], at[3])
		})
	}
}

func (m mutant) test() string {
	if m.small != "" {
		return "TestSearch/" + regexp.QuoteMeta(strings.ReplaceAll(m.small, " ", "_"))
	}
	return "TestWorlds"
}

// build makes the test's program with the bug in it: the compiler is given another text for the file.
func (m mutant) build(t *testing.T, program string) {
	t.Helper()
	text, err := os.ReadFile(m.file)
	if err != nil {
		t.Fatal(err)
	}
	path, err := filepath.Abs(m.file)
	if err != nil {
		t.Fatal(err)
	}
	patched := program + ".go"
	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{path: patched}})
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{patched: []byte(strings.Replace(string(text), m.old, m.new, 1)), program + ".json": overlay} {
		if err := os.WriteFile(name, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := exec.CommandContext(t.Context(), "go", "test", "-c", "-overlay", program+".json", "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}
