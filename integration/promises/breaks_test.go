package promises

import (
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/redlatch/redlatch/integration/broken"
	"github.com/redlatch/redlatch/internal/testbed"
)

// breakage is a fault that a promise's test must find.
type breakage struct {
	broken.Break

	name       string
	test, says string
}

// breaks reads the table in testdata/breaks.txt. A row has a name, a file, what is replaced there (-) and by what (+), and
// the test (and case) that goes red, with a part of what that says. Try a new one with make breaks ONLY=name.
func breaks(t *testing.T) (all []breakage) {
	t.Helper()
	text, err := os.ReadFile("testdata/breaks.txt")
	testbed.Must(t, err)
	for row := range strings.SplitSeq(string(text), "\n\n") {
		lines := strings.Split(strings.TrimSpace(row), "\n")
		name, is := strings.CutPrefix(lines[0], "# ")
		if !is || len(lines) < 4 {
			t.Fatalf("no row of breaks: %q", row)
		}
		b := breakage{name: name}
		b.File, b.Old, b.New = lines[1], after("-", lines[2:]), after("+", lines[2:])
		b.test, b.says, _ = strings.Cut(lines[len(lines)-1], ": ")
		all = append(all, b)
	}
	return all
}

// after are the lines with a mark, without it.
func after(mark string, lines []string) string {
	var out []string
	for _, line := range lines {
		if text, is := strings.CutPrefix(line, mark); is {
			out = append(out, text)
		}
	}
	return strings.Join(out, "\n")
}

// varBreaks asks for the breaks: all, or those with this in their names. Each takes a build.
const varBreaks = "REDLATCH_BREAKS"

// What a break replaces stands in the code, once.
func TestBreaksApply(t *testing.T) {
	t.Parallel()
	for _, b := range breaks(t) {
		if err := b.Fits(); err != nil {
			t.Errorf("%s: %v", b.name, err)
		}
	}
}

// A bug of one line turns the test red that names the promise, for the right reason.
func TestBreaks(t *testing.T) {
	want := os.Getenv(varBreaks)
	if want == "" {
		t.Skipf("set %s to all, or to a part of a name (make breaks does)", varBreaks)
	}
	all, ran := breaks(t), 0
	for _, b := range all {
		if want != "all" && !strings.Contains(b.name, want) {
			continue
		}
		ran++
		t.Run(b.name, func(t *testing.T) {
			program, folder, err := b.Build(t.TempDir(), "promises", "bed", "broken")
			testbed.Must(t, err)
			began := time.Now()
			cmd := exec.CommandContext(t.Context(), program, "-test.timeout", "2m", "-test.run", pattern(b.test))
			cmd.Dir, cmd.Env = folder, append(os.Environ(), varBreaks+"=")
			out, err := cmd.CombinedOutput()
			if err == nil || !strings.Contains(string(out), b.says) || !strings.Contains(string(out), "--- FAIL") {
				t.Errorf("%s does not find it (want %q): %v\n%.3000s", b.test, b.says, err, out)
			}
			t.Logf("%s: red after %v", b.test, time.Since(began).Round(10*time.Millisecond))
		})
	}
	if ran == 0 {
		t.Fatalf("%s=%q is in no break's name: nothing ran", varBreaks, want)
	}
	t.Logf("%d of %d breaks ran", ran, len(all))
}

// pattern makes an exact pattern for -test.run of a case's name, in which .* stands for anything.
func pattern(test string) string {
	parts := strings.Split(test, "/")
	for i, part := range parts {
		parts[i] = "^" + part
		if i < 2 {
			parts[i] += "$"
		}
	}
	return strings.Join(parts, "/")
}
