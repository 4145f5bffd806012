package main

import (
	"fmt"
	"io"
	"strings"
)

// conclude says in a sentence what the run has shown, and reports whether it has
// shown anything: not, if nothing went wrong without a lock.
func conclude(w io.Writer, l load, rows []outline) bool {
	if none, ok := rowOf(rows, "none"); ok && none.audit.Exact() {
		fmt.Fprintln(w, "\nWithout any lock nothing went wrong: this load is too small to show anything. Take more buyers, goroutines or processes.")
		return false
	}
	fmt.Fprintf(w, "\nShown: %s.\n", sentence(l, rows))
	return true
}

// sentence puts the rows into words.
func sentence(l load, rows []outline) string {
	var wrong, failed, early []string
	exact := 0
	for _, o := range rows {
		switch {
		case !o.spec.exact:
			wrong = append(wrong, o.spec.inWords()+" "+o.damage(l))
		case !o.good():
			failed = append(failed, o.spec.name)
		case !o.soldOut():
			early = append(early, o.spec.name)
		default:
			exact++
		}
	}
	parts := wrong
	if exact > 0 {
		who := fmt.Sprintf("each of the %d exact strategies", exact)
		if exact == 1 {
			who = "the exact strategy"
		}
		parts = append(parts, fmt.Sprintf("%s sold exactly %s, and nobody got two", who, thousands(l.Stock)))
	}
	if len(early) > 0 {
		parts = append(parts, strings.Join(early, ", ")+" closed before all was sold, and was exact until then")
	}
	if len(failed) > 0 {
		parts = append(parts, strings.Join(failed, ", ")+" FAILED, which must not happen")
	}
	return strings.Join(parts, "; ")
}

// inWords names a strategy that promises nothing.
func (s spec) inWords() string {
	switch s.name {
	case "none":
		return "without a lock"
	case "setnx":
		return "with SET NX and a blind DEL"
	}
	return "with " + s.name
}

func plural(n int, one, many string) string {
	if n == 1 {
		return one
	}
	return many
}

// damage says what a sale has done wrong.
func (o outline) damage(l load) string {
	var parts []string
	if n := o.audit.Oversold(l.Stock); n > 0 {
		parts = append(parts, thousands(n)+" too many were sold")
	}
	if o.audit.Twice > 0 {
		parts = append(parts, thousands(o.audit.Twice)+" "+plural(o.audit.Twice, "buyer", "buyers")+" got two")
	}
	switch {
	case len(parts) > 0:
		return strings.Join(parts, " and ")
	case o.good():
		return "nothing went wrong this time"
	}
	return "the books were wrong"
}
