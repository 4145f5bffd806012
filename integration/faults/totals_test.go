package faults

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redlatch/redlatch/internal/testbed"
)

// line is what some episodes came to.
type line struct {
	episodes, ops, faults, lost int
	refused                     int           // writes that the store refused
	overlaps                    int           // of sections after their deadlines, or after their server forgot
	longest                     time.Duration // of these
	wrong                       int           // violations
}

func (l line) and(o line) line {
	return line{
		l.episodes + o.episodes, l.ops + o.ops, l.faults + o.faults, l.lost + o.lost, l.refused + o.refused,
		l.overlaps + o.overlaps, max(l.longest, o.longest), l.wrong + o.wrong,
	}
}

// totals are the numbers of a whole run.
type totals struct {
	order      []string        // of profiles
	profiles   map[string]line // by name
	faults     map[string]line // by name, of the episodes in which a fault happened
	all        line
	violations []string
}

func (s *totals) add(p *profile, r *report) {
	for name, n := range r.times {
		one := r.line
		one.faults = n
		s.faults[name] = s.faults[name].and(one)
	}
	if s.profiles[p.name].episodes == 0 {
		s.order = append(s.order, p.name)
	}
	s.profiles[p.name] = s.profiles[p.name].and(r.line)
	s.all = s.all.and(r.line)
	s.violations = append(s.violations, r.violations...)
}

// enough writes the totals into the file that a mutation reads, and tells whether the run
// may end: there were enough operations, or the violation that is looked for.
func (s *totals) enough(t *testing.T, bound int) bool {
	sum := verdict{s.all.ops, s.violations}
	text, err := json.Marshal(sum)
	testbed.Must(t, err)
	testbed.Must(t, os.WriteFile(os.Getenv(varResult), text, 0o600))
	return sum.Ops >= bound || sum.shows(os.Getenv(varLook))
}

// verdict is what a run tells a mutation.
type verdict struct {
	Ops        int
	Violations []string
}

func (o *verdict) shows(violation string) bool {
	return violation != "" && slices.ContainsFunc(o.Violations, func(v string) bool { return strings.Contains(v, violation) })
}

// tell writes the tables that docs/FAULTS.md sums up.
func (s *totals) tell(t *testing.T) {
	text := "\n| profile | episodes | operations | faults | lost holds | late writes refused | overlaps (longest) | violations |\n" +
		"|---|---|---|---|---|---|---|---|\n"
	row := func(name string, l line) {
		text += fmt.Sprintf("| %s | %d | %d | %d | %d | %d | %d (%v) | %d |\n", name, l.episodes, l.ops, l.faults, l.lost, l.refused,
			l.overlaps, l.longest.Round(time.Millisecond), l.wrong)
	}
	for _, name := range s.order {
		row(name, s.profiles[name])
	}
	row("all", s.all)
	text += "\n| fault | times | operations beside it | violations beside it |\n|---|---|---|---|\n"
	for _, name := range slices.Sorted(maps.Keys(s.faults)) {
		one := s.faults[name]
		text += fmt.Sprintf("| %s | %d | %d | %d |\n", name, one.faults, one.ops, one.wrong)
	}
	t.Log(text)
}
