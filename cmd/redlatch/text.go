package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/term"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/quote"
)

// screen says how to write for people: how wide, and whether in colours.
type screen struct {
	width  int // 0: no terminal, no limit
	colour bool
}

func screenOf(out io.Writer) screen {
	f := file(out)
	if f == nil || !term.IsTerminal(int(f.Fd())) {
		return screen{}
	}
	width, _, err := term.GetSize(int(f.Fd()))
	if err != nil {
		width = 80
	}
	return screen{width, os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"}
}

// The colours, as SGR parameters.
const (
	bold   = "1"
	dim    = "2"
	red    = "31"
	green  = "32"
	yellow = "33"
	cyan   = "36"
)

func (s screen) paint(style, text string) string {
	if !s.colour || style == "" {
		return text
	}
	return "\x1b[" + style + "m" + text + "\x1b[0m"
}

// brief is a text that people read, and don't copy as a whole.
func brief(text string) string { return cutMiddle(text, quote.MaxText) }

// cell is one field of a table.
type cell struct{ text, style string }

// lines are the lines of a table, and whether they show all of it. Where the terminal is too narrow the columns whose
// heads have a star shrink, the widest first; then the last ones are left out.
func (s screen) lines(heads string, rows [][]cell) (lines []string, whole bool) {
	var first []cell
	names := strings.Fields(heads)
	for _, name := range names {
		first = append(first, cell{strings.TrimSuffix(name, "*"), bold})
	}
	rows = append([][]cell{first}, rows...)
	widths, total := make([]int, len(names)), -2
	for i := range widths {
		for _, row := range rows {
			row[i].text = brief(row[i].text)
			widths[i] = max(widths[i], columnsOf(row[i].text))
		}
		total += widths[i] + 2
	}
	whole = s.width == 0 || total <= s.width
	for s.width > 0 && total > s.width && len(widths) > 1 {
		widest := -1
		for i, w := range widths {
			if strings.HasSuffix(names[i], "*") && w > 8 && (widest < 0 || w > widths[widest]) {
				widest = i
			}
		}
		if last := len(widths) - 1; widest < 0 {
			total -= widths[last] + 2
			widths = widths[:last]
		} else {
			widths[widest]--
			total--
		}
	}
	for _, row := range rows {
		line := ""
		for i, width := range widths {
			text := cutMiddle(row[i].text, width)
			line += s.paint(row[i].style, text)
			if i < len(widths)-1 {
				line += strings.Repeat(" ", width-columnsOf(text)+2)
			}
		}
		lines = append(lines, line)
	}
	return lines, whole
}

// writeJSON writes one value, with indents.
func writeJSON(out io.Writer, v any) error {
	enc := json.NewEncoder(out)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

// joined is one object of two that have members.
func joined(a, b any) ([]byte, error) {
	first, err := json.Marshal(a)
	rest, wrong := json.Marshal(b)
	if err = cmp.Or(err, wrong); err != nil {
		return nil, err
	}
	return append(append(first[:len(first)-1], ','), rest[1:]...), nil
}

// span is a duration for people: 3ms, 4.2s, 12m3s, 5h7m, 3d4h.
func span(d time.Duration) string {
	switch {
	case d <= 0:
		return "0s"
	case d < time.Second:
		return fmt.Sprintf("%dms", d.Milliseconds())
	case d < 10*time.Second:
		return fmt.Sprintf("%.1fs", d.Seconds())
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", int(d.Minutes()), int(d.Seconds())%60)
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh%02dm", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%dd%02dh", int(d.Hours())/24, int(d.Hours())%24)
}

// since is how long ago something was, "-" when that is not known.
func since(now, then time.Time) string {
	if then.IsZero() {
		return "-"
	}
	return span(now.Sub(then))
}

// some is a duration, "-" for none: a lease without an end, or what is not known.
func some(d time.Duration) string {
	if d <= 0 {
		return "-"
	}
	return span(d)
}

// someSeconds is some of seconds.
func someSeconds(s float64) string { return some(time.Duration(s * float64(time.Second))) }

// waited is for how long a holder had waited when it got the lock.
func waited(h redlatch.Holder) time.Duration { return h.HeldSince.Sub(h.AskedSince) }

// who is a process for people: its name, else its client's id and why it has no name. owner is "" if it is none:
// only this library's waiters and jobs are known without one.
func who(p redlatch.Process, owner string) string {
	id, known := redlatch.ParseOwner(owner)
	switch name := cmp.Or(p.Client, p.ClientID); {
	case p.Client == "" && known && id.Java():
		return name + " (Java)"
	case p.Unlisted:
		return name + " (gone?)"
	case p.Client == "" && name != "":
		return name + " (not known)" // CLIENT LIST could not be read
	default:
		return cmp.Or(name, brief(owner))
	}
}

// ownerName is an owner without the client's id.
func ownerName(owner string) string {
	id, ok := redlatch.ParseOwner(owner)
	switch {
	case !ok:
		return brief(owner)
	case id.Explicit != "":
		return quote.Text(id.Explicit)
	case id.Java():
		return "thread " + brief(id.Owner)
	}
	return brief(id.Owner)
}

// whoOwns is an owner for people, with its process.
func whoOwns(p redlatch.Process, owner string) string { return who(p, owner) + " " + ownerName(owner) }

// others tells how many holders there are besides the first.
func others(in redlatch.Inspection) string {
	if in.HolderCount < 2 {
		return ""
	}
	return fmt.Sprintf(" +%d", in.HolderCount-1)
}

// processes is a number of processes, "?" when it is not known.
func processes(n int) string {
	if n < 0 {
		return "?"
	}
	return fmt.Sprint(n)
}

// processesThat is a number of processes and what they do, such as "1 process waits".
func processesThat(n int, does, do string) string {
	if n == 1 {
		return strings.TrimSpace("1 process " + does)
	}
	return strings.TrimSpace(processes(n) + " processes " + do)
}

// What comes from Redis is turned into text that prints as soon as the SDK has it: into quote.Exact, which can be read
// back. Everything behind that shows, compares and sends this text: tables, JSON, the page, questions, logs. The names
// and owners that users give, or programs send, are read back just before the SDK gets them.

// maxExact bounds such a text; the SDK takes no field for a hold that is so long.
const maxExact = 8 << 10

func exact(text string) string {
	if len(text) > maxExact {
		return quote.Text(text)
	}
	return quote.Exact(text)
}

// shown is what is known of a lock, as text that prints.
func shown(in redlatch.Inspection) redlatch.Inspection {
	in.Name, in.Key = exact(in.Name), exact(in.Key)
	for i := range in.Holders {
		h := &in.Holders[i]
		h.Owner, h.TraceID, h.Process = exact(h.Owner), quote.Text(h.TraceID), shownProcess(h.Process)
	}
	for i := range in.Queue {
		w := &in.Queue[i]
		w.Owner, w.Process = exact(w.Owner), shownProcess(w.Process)
	}
	for i := range in.Waiting {
		in.Waiting[i].Process = shownProcess(in.Waiting[i].Process)
	}
	return in
}

func shownProcess(p redlatch.Process) redlatch.Process {
	p.ClientID, p.Client, p.Addr = quote.Text(p.ClientID), quote.Text(p.Client), quote.Text(p.Addr)
	return p
}

// given reads a name or an owner that somebody gave.
func given(what, text string) (string, error) {
	out, err := quote.Parse(text)
	if err != nil {
		return "", usageError(`%s: %s: a backslash begins an escape such as \n or \xff; give two for one`, what, quote.Text(text))
	}
	return out, nil
}

// look looks at the lock of a name that somebody gave.
func look(ctx context.Context, client *redlatch.Client, name string) (redlatch.Inspection, error) {
	raw, err := given("name", name)
	if err != nil {
		return redlatch.Inspection{}, err
	}
	in, err := client.Inspect(ctx, raw)
	return shown(in), err
}
