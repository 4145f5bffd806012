package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// An outcome is a row with the figures of all rounds.
type outcome struct {
	row     row
	entries []entry
	rounds  map[string][]figures // by contender
	failed  map[string]error     // by contender: the first failure; its later rounds were left out
	earlier map[string]outcome   // rows measured before in the same run, by name
}

// values returns one contender's figure, round by round.
func (o outcome) values(contender string, m metric) []float64 {
	var out []float64
	for _, f := range o.rounds[contender] {
		if v, ok := f[m]; ok {
			out = append(out, v)
		}
	}
	return out
}

func (o outcome) median(contender string, m metric) (float64, bool) {
	v := o.values(contender, m)
	if len(v) == 0 {
		return 0, false
	}
	return median(v), true
}

func median(v []float64) float64 {
	v = slices.Sorted(slices.Values(v))
	mid := len(v) / 2
	if len(v)%2 == 1 {
		return v[mid]
	}
	return (v[mid-1] + v[mid]) / 2
}

// bestPeer is the best median of the other libraries.
func (o outcome) bestPeer(m metric, low bool) (float64, bool) {
	best, found := 0.0, false
	for _, e := range o.entries {
		if e.role != peer {
			continue
		}
		if v, ok := o.median(e.name, m); ok && (!found || (v < best) == low) {
			best, found = v, true
		}
	}
	return best, found
}

// promises heads the column that says what each contender keeps when something fails.
const promises = "promises"

// table is the outcome in cells, the first line being the header.
func (o outcome) table() [][]string {
	header := []string{"contender"}
	reference, hasPeer := o.bestPeer(o.row.main, o.row.lowerIsBetter())
	bound, hasBound := o.median(o.row.against, o.row.main)
	for _, m := range o.row.columns {
		header = append(header, string(m))
		if m == o.row.main {
			header = append(header, "min – max")
			if hasPeer {
				header = append(header, "× peer")
			}
			if hasBound {
				header = append(header, "× "+o.row.against)
			}
		}
	}
	promised := slices.ContainsFunc(o.entries, func(e entry) bool { return e.role == system })
	if promised {
		header = append(header, promises)
	}
	lines := [][]string{header}
	for _, e := range o.entries {
		line := []string{e.name}
		for _, m := range o.row.columns {
			v := o.values(e.name, m)
			if len(v) == 0 {
				line = append(line, "–")
			} else {
				line = append(line, short(median(v)))
			}
			if m != o.row.main {
				continue
			}
			extra := []string{"–", "–", "–"}
			if len(v) > 0 {
				extra[0] = short(slices.Min(v)) + " – " + short(slices.Max(v))
				extra[1], extra[2] = ratio(median(v), reference), ratio(median(v), bound)
			}
			line = append(line, extra[0])
			if hasPeer {
				line = append(line, extra[1])
			}
			if hasBound {
				line = append(line, extra[2])
			}
		}
		if promised {
			line = append(line, e.promise)
		}
		lines = append(lines, line)
	}
	return lines
}

func ratio(a, b float64) string {
	if b == 0 {
		return "–"
	}
	return strconv.FormatFloat(a/b, 'f', 2, 64)
}

// short shows three digits that matter, and all digits of large whole numbers.
func short(v float64) string {
	switch a := math.Abs(v); {
	case a >= 100:
		return grouped(int64(math.Round(v)))
	case a >= 10:
		return strconv.FormatFloat(v, 'f', 1, 64)
	case a == 0:
		return "0"
	case a >= 0.999 && a < 1: // an index of fairness that must not be rounded to 1
		return strconv.FormatFloat(v, 'f', 4, 64)
	default:
		return strconv.FormatFloat(v, 'f', 2, 64)
	}
}

// grouped writes 12345 as 12,345.
func grouped(n int64) string {
	s := strconv.FormatInt(n, 10)
	sign := ""
	if n < 0 {
		sign, s = "-", s[1:]
	}
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return sign + s
}

// write prints the outcome: as text with aligned columns, or as Markdown.
func (o outcome) write(w io.Writer, markdown bool) {
	lines := o.table()
	rounds := 0
	for _, r := range o.rounds {
		rounds = max(rounds, len(r))
	}
	if markdown {
		fmt.Fprintf(w, "\n### `%s`: %s\n\nMedians of %d rounds.\n\n", o.row.name, o.row.title, rounds)
		for i, l := range lines {
			fmt.Fprintf(w, "| %s |\n", strings.Join(l, " | "))
			if i == 0 {
				fmt.Fprintf(w, "|---%s\n", strings.Repeat("|---:", len(l)-1)+"|")
			}
		}
		fmt.Fprintln(w)
	} else {
		fmt.Fprintf(w, "\n%s: %s (medians of %d rounds)\n", o.row.name, o.row.title, rounds)
		width := make([]int, len(lines[0]))
		for _, l := range lines {
			for i, cell := range l {
				width[i] = max(width[i], utf8.RuneCountInString(cell))
			}
		}
		for _, l := range lines {
			fmt.Fprint(w, "  ", l[0], strings.Repeat(" ", width[0]-utf8.RuneCountInString(l[0])))
			for i, cell := range l[1:] {
				if lines[0][i+1] == promises {
					fmt.Fprint(w, "  ", cell) // prose, at the end
					continue
				}
				fmt.Fprint(w, "  ", strings.Repeat(" ", width[i+1]-utf8.RuneCountInString(cell)), cell)
			}
			fmt.Fprintln(w)
		}
	}
	bullet := "  "
	if markdown {
		bullet = "- "
	}
	for _, e := range o.entries {
		if err := o.failed[e.name]; err != nil {
			fmt.Fprintf(w, "%sfailed: %s: %v\n", bullet, e.name, err)
		}
	}
	for _, l := range o.goalLines() {
		fmt.Fprintf(w, "%s%s\n", bullet, l)
	}
}

// writeSummary says once more which goals were missed.
func writeSummary(w io.Writer, outcomes []outcome, markdown bool) {
	count := map[verdict]int{}
	var open []goalLine
	for _, o := range outcomes {
		for _, l := range o.goalLines() {
			count[l.Verdict]++
			if l.Verdict != reached {
				open = append(open, l)
			}
		}
	}
	head, bullet := "\nGoals", "  "
	if markdown {
		head, bullet = "\n### Goals\n\nAll", "- "
	}
	fmt.Fprintf(w, "%s: %d reached, %d missed, %d unclear, %d not measured\n",
		head, count[reached], count[missed], count[unclear], count[unproven])
	if markdown && len(open) > 0 {
		fmt.Fprintln(w)
	}
	for _, l := range open {
		fmt.Fprintf(w, "%s%s: %s\n", bullet, l.Row, l)
	}
}

// A report is everything that a run has shown, as JSON.
type report struct {
	Machine machine
	Rows    []reportRow
}

type reportRow struct {
	Name, Title string
	Contenders  []reportContender
	Goals       []goalLine
}

type reportContender struct {
	Name    string
	Promise string
	Error   string `json:",omitempty"`
	Medians figures
	Rounds  []figures
}

func (o outcome) report() reportRow {
	r := reportRow{Name: o.row.name, Title: o.row.title, Goals: o.goalLines()}
	for _, e := range o.entries {
		c := reportContender{Name: e.name, Promise: e.promise, Rounds: o.rounds[e.name], Medians: figures{}}
		if err := o.failed[e.name]; err != nil {
			c.Error = err.Error()
		}
		for _, m := range o.row.columns {
			if v, ok := o.median(e.name, m); ok {
				c.Medians[m] = v
			}
		}
		r.Contenders = append(r.Contenders, c)
	}
	return r
}

func writeJSON(w io.Writer, m machine, outcomes []outcome) error {
	rep := report{Machine: m}
	for _, o := range outcomes {
		rep.Rows = append(rep.Rows, o.report())
	}
	slices.SortStableFunc(rep.Rows, func(a, b reportRow) int { return cmp.Compare(a.Name, b.Name) })
	enc := json.NewEncoder(w)
	enc.SetIndent("", " ")
	return enc.Encode(rep)
}
