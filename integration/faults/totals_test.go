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
)

// totals are the numbers of a whole run, by profile.
type totals struct {
	order []string
	by    map[string]*line
	of    map[string]*share // by fault
}

// share is what the episodes came to in which a fault happened.
type share struct{ times, ops, violations int }

// enough writes the totals into the file that a mutation reads, and tells whether the run
// may end: there were enough operations, or the violation that is looked for.
func (s *totals) enough(t *testing.T, bound int) bool {
	sum := verdict{}
	for _, l := range s.by {
		sum.Ops += l.ops
		sum.Violations = append(sum.Violations, l.texts...)
	}
	text, err := json.Marshal(sum)
	if err == nil {
		err = os.WriteFile(os.Getenv(varResult), text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
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

type line struct {
	episodes, ops, faults, overlaps, lost, refused, violations int
	longest                                                    time.Duration
	texts                                                      []string
}

func (s *totals) add(p *profile, o outcome) {
	if s.by == nil {
		s.by = map[string]*line{}
	}
	l := s.by[p.name]
	if l == nil {
		l = &line{}
		s.by[p.name] = l
		s.order = append(s.order, p.name)
	}
	l.episodes++
	l.ops += o.ops
	for name, n := range o.faults {
		l.faults += n
		if s.of == nil {
			s.of = map[string]*share{}
		}
		one := s.of[name]
		if one == nil {
			one = &share{}
			s.of[name] = one
		}
		one.times += n
		one.ops += o.ops
		one.violations += len(o.report.violations)
	}
	l.overlaps += o.report.overlaps
	l.longest = max(l.longest, o.report.longest)
	l.lost += o.report.lost
	l.refused += o.report.refused
	l.violations += len(o.report.violations)
	l.texts = append(l.texts, o.report.violations...)
}

// tell writes the tables that docs/FAULTS.md sums up.
func (s *totals) tell(t *testing.T) {
	var b strings.Builder
	b.WriteString("\n| profile | episodes | operations | faults | lost holds | late writes refused | overlaps (longest) | violations |\n" +
		"|---|---|---|---|---|---|---|---|\n")
	all := line{}
	row := func(name string, l *line) {
		fmt.Fprintf(&b, "| %s | %d | %d | %d | %d | %d | %d (%v) | %d |\n", name, l.episodes, l.ops, l.faults, l.lost, l.refused,
			l.overlaps, l.longest.Round(time.Millisecond), l.violations)
	}
	for _, name := range s.order {
		l := s.by[name]
		row(name, l)
		all.episodes += l.episodes
		all.ops += l.ops
		all.faults += l.faults
		all.lost += l.lost
		all.refused += l.refused
		all.overlaps += l.overlaps
		all.longest = max(all.longest, l.longest)
		all.violations += l.violations
	}
	row("all", &all)
	b.WriteString("\n| fault | times | operations beside it | violations beside it |\n|---|---|---|---|\n")
	for _, name := range slices.Sorted(maps.Keys(s.of)) {
		one := s.of[name]
		fmt.Fprintf(&b, "| %s | %d | %d | %d |\n", name, one.times, one.ops, one.violations)
	}
	t.Log(b.String())
}
