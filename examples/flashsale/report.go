package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"golang.org/x/text/language"
	"golang.org/x/text/message"
)

// text writes 12345 as 12,345.
var text = message.NewPrinter(language.English)

// oversold says how many more were sold than there were.
func (r row) oversold() int { return max(0, r.sold-r.stock) }

func printHead(w io.Writer) {
	fmt.Fprintf(w, "%-15s %7s %9s %7s %7s %9s %9s %9s %9s   %s\n", "strategy", "sold", "oversold", "left", "twice",
		"orders/s", "wait p50", "wait p99", "cmds/ord", "verdict")
}

// printRow prints what came out of a sale: one line of the table, and below it
// what the columns can't say.
func printRow(w io.Writer, r row) {
	perSecond, perOrder := "-", "-"
	if r.sold > 0 {
		perOrder = fmt.Sprintf("%.1f", float64(r.seen.Commands)/float64(r.sold))
		perSecond = text.Sprintf("%d", int(float64(r.sold)/r.took.Seconds()))
		if !r.good() {
			perSecond = "(" + perSecond + ")"
		}
	}
	slices.Sort(r.seen.Waits)
	text.Fprintf(w, "%-15s %7d %9d %7d %7d %9s %9s %9s %9s   %s\n", r.name, r.sold, r.oversold(), r.left,
		r.twice, perSecond, short(r.seen.wait(50)), short(r.seen.wait(99)), perOrder, r.verdict())

	note := func(worth bool, format string, args ...any) {
		if worth {
			text.Fprintf(w, "%15s "+format+"\n", append([]any{""}, args...)...)
		}
	}
	s := r.seen
	note(s.Stolen > 0, "DEL removed the lock of another: %d", s.Stolen)
	note(s.Conflicts > 0, "%d attempts in vain", s.Conflicts)
	note(s.Views > 0, "browsers looked %d times and saw a half-done sale %d times", s.Views, s.Torn)
	note(s.Turned > 0, "closed before all had been served: %d clicks were left; the server became slower, or -limit is short", s.Turned)
	note(s.Failed > 0, "an error: %s", s.Failure)
	note(r.name == "rlock" || r.name == "fair", "longest wait %s", short(s.wait(100)))
	if r.crash != nil {
		note(true, "process %d was killed in the middle of a sale; half-done sales put right: %d", r.crash.pid, len(s.Repairs))
		stall, resumed := r.stall()
		note(resumed, "the next buyer entered %s later (lease %s)", short(stall), killLease)
	}
}

// wait is as long as at least so many percent of the waits, or longer (the nearest-rank
// method). They are sorted.
func (r *result) wait(percent int) time.Duration {
	if len(r.Waits) == 0 {
		return 0
	}
	rank := (percent*len(r.Waits) + 99) / 100
	return time.Duration(r.Waits[rank-1]) * time.Microsecond
}

// problems returns all that is wrong with a sale: what the books say, and what
// was seen on the way.
func (r row) problems() (found []string) {
	say := func(n int, format string) {
		if n != 0 {
			found = append(found, text.Sprintf(format, n))
		}
	}
	say(r.oversold(), "%d oversold")
	say(r.sold+r.left-r.stock, "stock off by %d")
	say(r.twice, "%d ordered twice")
	say(r.seen.Failed, "%d errors")
	if r.crash == nil { // after one a half-done sale is to be seen until the next buyer comes
		say(r.seen.Torn, "%d half-done sales seen")
	}
	return found
}

// good reports whether nothing is wrong.
func (r row) good() bool { return len(r.problems()) == 0 }

func (r row) verdict() string {
	switch {
	case !r.good():
		return "WRONG: " + strings.Join(r.problems(), ", ")
	case r.left > 0 && r.seen.Turned > 0:
		return "exact, but closed early"
	}
	return "exact"
}

// short writes a duration with three digits.
func short(d time.Duration) string {
	unit := time.Microsecond
	for d >= 1000*unit {
		unit *= 10
	}
	return d.Round(unit).String()
}

// legend says how the table is to be read.
const legend = `
How to read it:
  sold, left  what the books say afterwards; together they must be what there was to sell
  oversold    orders for things that did not exist; twice: users who got more than one
  orders/s    in brackets if the sale went wrong: such a sale is fast because several sales run at
              once where only one may. Compare the rows without brackets with each other only
  wait        from the click until the sale could begin: median, and 99 % wait no longer
  cmds/ord    commands sent to Redis per order; the shop itself sends about four
`
