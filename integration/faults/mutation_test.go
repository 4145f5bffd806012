package faults

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/redlatch/redlatch/integration/broken"
	"github.com/redlatch/redlatch/internal/testbed"
)

// mutation is a fault put into a copy of the code. The suite must find it.
type mutation struct {
	name, profile string
	// finds is a part of the violation that shows it, within bound operations. The code as it is must not
	// show it, with the same profile, seed and number of operations.
	finds          string
	bound          int
	file, old, new string // see broken.Break
}

// varMutations asks for the mutations, all or those with this in their names. Each takes
// up to a minute or two, and a build.
const varMutations = "REDLATCH_FAULTS_MUTATIONS"

// What a mutation replaces stands in the code, once.
func TestMutationsApply(t *testing.T) {
	for _, m := range mutations {
		if err := m.broken().Fits(); err != nil {
			t.Errorf("%s: %v", m.name, err)
		}
		if !slices.ContainsFunc(profiles, func(p profile) bool { return p.name == m.profile }) {
			t.Errorf("%s: no profile %q", m.name, m.profile)
		}
	}
}

// The checker finds each fault that is put into the code.
func TestMutations(t *testing.T) {
	want := os.Getenv(varMutations)
	if want == "" {
		t.Skipf("set %s to all, or to a part of a name (make mutations does)", varMutations)
	}
	table := "\n| fault in the code | profile | shows as | found after | bound |\n|---|---|---|---|---|\n"
	ran, names := 0, ""
	for _, m := range mutations {
		names += ", " + m.name
		if want != "all" && !strings.Contains(m.name, want) {
			continue
		}
		ran++
		t.Run(m.name, func(t *testing.T) {
			program, folder, err := m.broken().Build(t.TempDir(), "faults", "servers", "broken")
			testbed.Must(t, err)
			got := m.run(t, program, folder, m.bound)
			if !got.shows(m.finds) || got.Ops > m.bound {
				t.Errorf("not found in %d of %d operations; other violations: %.2000q", m.bound, got.Ops, got.Violations)
				return
			}
			table += fmt.Sprintf("| %s | %s | %s | %d operations | %d |\n", m.name, m.profile, m.finds, got.Ops, m.bound)
			itself, err := os.Executable()
			testbed.Must(t, err)
			if control := m.run(t, itself, ".", got.Ops); control.shows(m.finds) {
				t.Errorf("the code as it is shows %q, too: %.2000q", m.finds, control.Violations)
			}
		})
	}
	if ran == 0 {
		t.Fatalf("%s=%q is in no mutation's name: nothing ran. There are%s", varMutations, want, names)
	}
	t.Logf("%d of %d mutations ran%s", ran, len(mutations), table)
}

func (m *mutation) broken() broken.Break { return broken.Break{File: m.file, Old: m.old, New: m.new} }

// run lets a build of this package work on the mutation's profile, until the violation
// shows or there were so many operations.
func (m *mutation) run(t *testing.T, program, dir string, bound int) (got verdict) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "result")
	cmd := exec.Command(program, "-test.run", "^TestFaults$")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), varProfile+"="+m.profile, varSeed+"=1", varBound+"="+strconv.Itoa(bound),
		varResult+"="+file, varLook+"="+m.finds, varMutations+"=", varFor+"=")
	out, err := cmd.CombinedOutput() // red, as a rule
	text, unread := os.ReadFile(file)
	if unread == nil {
		unread = json.Unmarshal(text, &got)
	}
	if unread != nil {
		t.Fatalf("%v, %v\n%s", err, unread, out)
	}
	return got
}
