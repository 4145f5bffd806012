package main

import (
	"fmt"
	"slices"
)

// A goal is a bound that redlatch sets itself for a figure of a row: absolute, or as a multiple of another contender's.
type goal struct {
	contender string
	metric    metric
	atLeast   bool // else: at most
	factor    float64
	of        string // a contender, bestPeer, or "" for an absolute bound
	ofRow     string // the row of that contender's figure, measured before; "": the same row
	why       string // where the bound comes from, if the number alone does not tell
}

// bestPeer in a goal is the best of the other libraries at the goal's metric.
const bestPeer = "the best peer"

func (g goal) String() string {
	sign := "≤"
	if g.atLeast {
		sign = "≥"
	}
	s := fmt.Sprintf("%s: %s %s %s", g.contender, g.metric, sign, short(g.factor))
	if g.of != "" {
		s += " × " + g.of
	}
	if g.ofRow != "" {
		s += " in " + g.ofRow
	}
	if g.why != "" {
		s += " (" + g.why + ")"
	}
	return s
}

// A verdict is what a run says about a goal.
type verdict string

const (
	reached  verdict = "reached"
	missed   verdict = "missed"
	unproven verdict = "not measured" // something that the goal is about failed
	unclear  verdict = "unclear"      // two builds differ, but not in the same direction in most rounds
)

// judge compares the medians. The value is the contender's figure, or its ratio to the other one's.
func (g goal) judge(o outcome) (v verdict, value float64) {
	own, found := o.median(g.contender, g.metric)
	if !found {
		return unproven, 0
	}
	bound := g.factor
	value = own
	if g.of != "" {
		var other float64
		switch {
		case g.ofRow != "":
			other, found = o.earlier[g.ofRow].median(g.of, g.metric)
		case g.of == bestPeer:
			other, found = o.bestPeer(g.metric, !g.atLeast)
		default:
			other, found = o.median(g.of, g.metric)
		}
		if !found || other == 0 {
			return unproven, 0
		}
		bound *= other
		value /= other
	}
	if own == bound || (own > bound) == g.atLeast {
		return reached, value
	}
	return missed, value
}

// goalLines are what is said about the goals of a row. Goals about something that did not take part are left out.
func (o outcome) goalLines() []goalLine {
	var out []goalLine
	for _, g := range o.row.goals {
		if !g.concerns(o) {
			continue
		}
		v, value := g.judge(o)
		out = append(out, goalLine{Row: o.row.name, Goal: g.String(), Verdict: v, Value: value})
	}
	return append(out, o.twinLines()...)
}

// concerns says whether both sides of the goal take part in the run.
func (g goal) concerns(o outcome) bool {
	if !o.has(func(e entry) bool { return e.name == g.contender }) {
		return false
	}
	other := func(e entry) bool { return e.name == g.of }
	switch {
	case g.of == "":
		return true
	case g.ofRow != "":
		return o.earlier[g.ofRow].has(other)
	case g.of == bestPeer:
		return o.has(func(e entry) bool { return e.role == peer })
	default:
		return o.has(other)
	}
}

func (o outcome) has(which func(entry) bool) bool { return slices.ContainsFunc(o.entries, which) }

// A goalLine is a goal with its verdict.
type goalLine struct {
	Row     string
	Goal    string
	Verdict verdict
	Value   float64
}

func (l goalLine) String() string {
	if l.Verdict == unproven {
		return fmt.Sprintf("goal %s: %s", l.Verdict, l.Goal)
	}
	return fmt.Sprintf("goal %s: %s (%s)", l.Verdict, l.Goal, short(l.Value))
}

// noise is how far the median of a figure may lie on the wrong side of another build's before that counts as a loss:
// two runs of one build differ by as much. Beyond it, agreement is the part of the rounds that must have been worse:
// where they disagree the machine was not quiet, or the rounds too short, and nothing is known.
const (
	noise     = 0.03
	agreement = 0.75
)

// twinLines compare each contender with the same one of another build: the median of the rounds' ratios, since the two
// are neighbours in each round.
func (o outcome) twinLines() []goalLine {
	var out []goalLine
	for _, e := range o.entries {
		if e.twinOf == "" {
			continue
		}
		v, value := o.against(e)
		out = append(out, goalLine{
			Row: o.row.name, Verdict: v, Value: value,
			Goal: fmt.Sprintf("%s: %s no worse than the other build's, within %.0f %%", e.twinOf, o.row.main, noise*100),
		})
	}
	return out
}

// against compares a contender with its twin.
func (o outcome) against(twin entry) (verdict, float64) {
	ratios := o.ratios(twin.twinOf, twin.name, o.row.main)
	if len(ratios) == 0 {
		return unproven, 0
	}
	worse := 0
	for _, r := range ratios {
		if o.row.lowerIsBetter() == (r > 1) && r != 1 {
			worse++
		}
	}
	m := median(ratios)
	switch {
	case o.row.lowerIsBetter() && m <= 1+noise, !o.row.lowerIsBetter() && m >= 1-noise:
		return reached, m
	case float64(worse) < agreement*float64(len(ratios)):
		return unclear, m
	default:
		return missed, m
	}
}

// ratios divides the figures of two contenders round by round. Rounds that one of them failed in are left out.
func (o outcome) ratios(a, b string, m metric) []float64 {
	va, vb := o.values(a, m), o.values(b, m)
	var out []float64
	for i := range min(len(va), len(vb)) {
		if vb[i] != 0 {
			out = append(out, va[i]/vb[i])
		}
	}
	return out
}
