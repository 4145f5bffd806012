package main

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
)

// columns of the table; the verdict comes last and may be long.
const rowFormat = "%-15s %7s %9s %7s %7s %9s %9s %9s %9s   %s\n"

func printHead(w io.Writer) {
	fmt.Fprintf(w, rowFormat, "strategy", "sold", "oversold", "left", "twice",
		"orders/s", "wait p50", "wait p99", "cmds/ord", "verdict")
}

// printRow prints what came out of a sale: one line of the table, and below it
// what the columns can't say.
func printRow(w io.Writer, l load, o outline) {
	t := o.total()
	perSecond, perOrder := "-", "-"
	if o.audit.Sold > 0 {
		perOrder = fmt.Sprintf("%.1f", float64(t.Commands)/float64(o.audit.Sold))
		if o.took > 0 {
			perSecond = thousands(int(float64(o.audit.Sold) / o.took.Seconds()))
			if !o.good() {
				perSecond = "(" + perSecond + ")"
			}
		}
	}
	waits := o.waits()
	fmt.Fprintf(w, rowFormat, o.spec.name,
		thousands(o.audit.Sold), thousands(o.audit.Oversold(l.Stock)), thousands(o.audit.Left), thousands(o.audit.Twice),
		perSecond, short(percentile(waits, 50)), short(percentile(waits, 99)), perOrder, o.verdict())
	for _, note := range o.notes(t) {
		fmt.Fprintf(w, "%15s %s\n", "", note)
	}
}

// notes returns what happened beside the sale.
func (o outline) notes(t result) []string {
	var notes []string
	note := func(format string, args ...any) { notes = append(notes, fmt.Sprintf(format, args...)) }
	if t.Stolen > 0 {
		note("%s %s DEL removed the lock of another", thousands(t.Stolen), plural(t.Stolen, "time", "times"))
	}
	if t.Conflicts > 0 {
		note("%s attempts in vain", thousands(t.Conflicts))
	}
	if t.Views > 0 {
		note("browsers looked %s times and saw a half-done sale %s times", thousands(t.Views), thousands(t.Torn))
	}
	if t.Turned > 0 {
		note("closed before all had been served: %s clicks were left; the server became slower, or -limit is short", thousands(t.Turned))
	}
	if t.Failed > 0 {
		note("an error: %s", t.Failure)
	}
	if c := o.crash; c != nil {
		note("process %d was killed in the middle of a sale; %s", c.pid, c)
		if o.spec.exact {
			note("half-done sales put right: %d", t.Repaired)
		}
	}
	return notes
}

func (c *crash) String() string {
	if !c.resumed {
		return "nobody came after it"
	}
	return fmt.Sprintf("the next buyer entered %s later (lease %s)", short(c.stall), killLease)
}

// problems returns all that is wrong with a sale: what the books say, and what
// was seen on the way.
func (o outline) problems() []string {
	problems := slices.Clone(o.audit.Problems)
	t := o.total()
	if t.Failed > 0 {
		problems = append(problems, fmt.Sprintf("%s errors", thousands(t.Failed)))
	}
	switch {
	case o.crash == nil && t.Torn > 0:
		problems = append(problems, "half-done sales were seen")
	case o.crash != nil && !o.crash.resumed:
		// With a crash a half-done sale can be seen until the next buyer comes.
		problems = append(problems, "nobody went on")
	}
	return problems
}

// soldOut reports whether the sale could go on until nothing was left.
func (o outline) soldOut() bool { return o.audit.Left == 0 || o.total().Turned == 0 }

// good reports whether nothing is wrong.
func (o outline) good() bool { return len(o.problems()) == 0 }

func (o outline) verdict() string {
	switch {
	case o.good() && o.soldOut():
		return "exact"
	case o.good():
		return "exact, but closed early"
	}
	return "WRONG: " + strings.Join(o.problems(), ", ")
}

// total adds up the workers' numbers.
func (o outline) total() result {
	var t result
	for _, r := range o.results {
		t.Commands += r.Commands
		t.Turned += r.Turned
		t.Stolen += r.Stolen
		t.Conflicts += r.Conflicts
		t.Views += r.Views
		t.Torn += r.Torn
		t.Repaired += r.Repaired
		t.Failed += r.Failed
		if t.Failure == "" {
			t.Failure = r.Failure
		}
	}
	return t
}

func (o outline) waits() []time.Duration {
	var all []time.Duration
	for _, r := range o.results {
		for _, e := range r.Entries {
			all = append(all, e.Wait)
		}
	}
	return all
}

// fairness returns Jain's index of the workers' turns and the longest wait.
// Turns count as long as every process has buyers left: what a worker gets
// when the others have nothing more to do says nothing.
func (o outline) fairness(workers int) (index float64, longest time.Duration) {
	var all time.Time // still had something to do
	for _, r := range o.results {
		var end time.Time
		for _, e := range r.Entries {
			longest = max(longest, e.Wait)
			if e.At.After(end) {
				end = e.At
			}
		}
		if all.IsZero() || end.Before(all) {
			all = end
		}
	}
	turns := make([]int, workers)
	for _, r := range o.results {
		for _, e := range r.Entries {
			if !e.At.After(all) {
				turns[e.Worker]++
			}
		}
	}
	return jain(turns), longest
}

// printFairness compares the locks that make waiters wait for one another.
func printFairness(w io.Writer, l load, rows []outline) {
	if _, ok := rowOf(rows, "fair"); !ok {
		return
	}
	fmt.Fprintf(w, "\nFairness over %d workers (1.0000: all had the same number of turns):\n", l.Processes*l.Goroutines)
	for _, name := range []string{"rlock", "fair"} {
		if o, ok := rowOf(rows, name); ok {
			index, longest := o.fairness(l.Processes * l.Goroutines)
			fmt.Fprintf(w, "  %-7s Jain index %.4f, longest wait %s\n", name, index, short(longest))
		}
	}
}

func rowOf(rows []outline, name string) (outline, bool) {
	for _, o := range rows {
		if o.spec.name == name {
			return o, true
		}
	}
	return outline{}, false
}

// short writes a duration with three digits or so.
func short(d time.Duration) string {
	switch {
	case d < time.Microsecond:
		return "0"
	case d < time.Millisecond:
		return d.Round(time.Microsecond).String()
	case d < 100*time.Millisecond:
		return fmt.Sprintf("%.1fms", d.Seconds()*1e3)
	case d < time.Second:
		return fmt.Sprintf("%.0fms", d.Seconds()*1e3)
	default:
		return fmt.Sprintf("%.2fs", d.Seconds())
	}
}

// thousands writes 12345 as 12,345.
func thousands(n int) string {
	digits := strconv.Itoa(n)
	sign := ""
	if n < 0 {
		sign, digits = "-", digits[1:]
	}
	var parts []string
	for len(digits) > 3 {
		parts = append([]string{digits[len(digits)-3:]}, parts...)
		digits = digits[:len(digits)-3]
	}
	return sign + strings.Join(append([]string{digits}, parts...), ",")
}
