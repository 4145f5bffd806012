//go:build unix

package redisson

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/redlatch/redlatch/internal/testbed"
)

// recordCheck reads the record that the loops of both sides write from inside their
// sections, in the server's order, and finds sections that excluded each other
// wrongly. A line "K tag", written by the test after it has killed the process with
// that tag, ends all sections of it: its locks lived on for the rest of their
// leases, so nobody else may have been inside before it.
type recordCheck struct {
	open       map[string]map[string]string // by name: section -> mode
	dead       map[string]bool
	sections   int
	together   int // sections that were entered beside other readers
	violations []string
}

func newRecordCheck() *recordCheck {
	return &recordCheck{open: map[string]map[string]string{}, dead: map[string]bool{}}
}

func (c *recordCheck) line(line string) {
	f := strings.Fields(line)
	if len(f) == 2 && f[0] == "K" {
		c.dead[f[1]] = true
		for _, in := range c.open {
			for section := range in {
				if strings.HasPrefix(section, f[1]+" ") {
					delete(in, section)
				}
			}
		}
		return
	}
	if len(f) != 5 {
		c.violations = append(c.violations, fmt.Sprintf("line %q", line))
		return
	}
	section, mode := f[1]+" "+f[2], f[3]
	for n := range strings.SplitSeq(f[4], ",") {
		in := c.open[n]
		if in == nil {
			in = map[string]string{}
			c.open[n] = in
		}
		switch f[0] {
		case "E":
			for other, m := range in {
				if mode == "w" || m == "w" {
					c.violations = append(c.violations, fmt.Sprintf("%s: %s (%s) entered while %s (%s) was inside", n, section, mode, other, m))
				}
			}
			if len(in) > 0 {
				c.together++
			}
			// What a dead process had sent may arrive after the line that tells of its end.
			if !c.dead[f[1]] {
				in[section] = mode
			}
		case "X":
			if _, inside := in[section]; !inside && !c.dead[f[1]] {
				c.violations = append(c.violations, fmt.Sprintf("%s: %s left without being inside", n, section))
			}
			delete(in, section)
		}
	}
	if f[0] == "X" {
		c.sections++
	}
}

// read reads the record, and cuts it off.
func (c *recordCheck) read(t *testing.T, server *testbed.Server, record string) {
	t.Helper()
	for {
		lines := server.List(t, "LRANGE", record, "0", "999")
		for _, line := range lines {
			c.line(line)
		}
		server.Do(t, "LTRIM", record, strconv.Itoa(len(lines)), "-1")
		if len(lines) < 1000 {
			return
		}
	}
}

// report ends the test when there was a violation, or a section has no end.
func (c *recordCheck) report(t *testing.T) {
	t.Helper()
	for n, in := range c.open {
		for section := range in {
			c.violations = append(c.violations, fmt.Sprintf("%s: %s never left", n, section))
		}
	}
	if len(c.violations) > 0 {
		t.Fatalf("%d violations in %d sections, among them\n%s", len(c.violations), c.sections,
			strings.Join(c.violations[:min(10, len(c.violations))], "\n"))
	}
}

// contend lets as many owners of each side take one of its locks at random, all the time: nobody meets whom a lock
// excludes, and all get their turns. It returns the record.
func (b *bed) contend(t *testing.T, owners int, l Loop, java, golang []string) *recordCheck {
	t.Helper()
	l.Record, l.Wait = name(t), -1
	var calls []*Call
	for i := range owners {
		id := fmt.Sprint("loop", i)
		l.Tag, l.Specs = "java", java
		calls = append(calls, b.java.GoLoop(id, l))
		l.Tag, l.Specs = "go", golang
		calls = append(calls, b.golang.GoLoop(id, l))
	}
	for _, c := range calls {
		if r := c.LoopResult(t); r.Acquired != l.Rounds || r.Lost != 0 || r.Failed != 0 {
			t.Fatalf("%+v", r)
		}
	}
	check := newRecordCheck()
	check.read(t, b.server, l.Record)
	check.report(t)
	if check.sections != len(calls)*l.Rounds {
		t.Fatalf("%d sections recorded, want %d", check.sections, len(calls)*l.Rounds)
	}
	for n := range check.open {
		b.nothingLeft(t, n)
	}
	return check
}

// The check of the record finds violations.
func TestRecordCheckFindsViolations(t *testing.T) {
	for _, tc := range []struct {
		name  string
		lines string
		bad   int
	}{
		{"in turn", "E j a w x|X j a w x|E g b w x|X g b w x", 0},
		{"two writers", "E j a w x|E g b w x|X j a w x|X g b w x", 1},
		{"two readers", "E j a r x|E g b r x|X j a r x|X g b r x", 0},
		{"reader and writer", "E j a r x|E g b w x|X j a r x|X g b w x", 1},
		{"one of two names", "E j a w x,y|E g b w y|X j a w x,y|X g b w y", 1},
		{"after a kill", "E j a w x|K j|E g b w x|X g b w x", 0},
		{"before the kill", "E j a w x|E g b w x|K j|X g b w x", 1},
		{"late line of a dead process", "K j|E j a w x|E g b w x|X g b w x", 0},
		{"left twice", "E j a w x|X j a w x|X j a w x", 1},
	} {
		c := newRecordCheck()
		for line := range strings.SplitSeq(tc.lines, "|") {
			c.line(line)
		}
		testbed.Equal(t, len(c.violations), tc.bad, tc.name, "violations:", c.violations)
	}
}
