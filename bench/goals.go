package main

import "fmt"

// A goal is a bound that redlatch sets itself for a figure of a row: absolute, or as a multiple of another contender's.
type goal struct {
	contender string
	metric    metric
	atLeast   bool // else: at most
	factor    float64
	of        string // a contender, bestPeer, or "" for an absolute bound
	ofRow     string // the row of that contender's figure, measured before; "": the same row
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
	return s
}

// reached compares the medians. ok is false when something that the goal is about was not measured.
func (g goal) reached(o outcome) (reached, ok bool, value float64) {
	own, found := o.median(g.contender, g.metric)
	if !found {
		return false, false, 0
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
			return false, false, 0
		}
		bound *= other
		value /= other
	}
	if g.atLeast {
		return own >= bound, true, value
	}
	return own <= bound, true, value
}
