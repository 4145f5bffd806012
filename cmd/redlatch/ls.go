package main

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/quote"
)

// asJSON is the flag -o: whether programs read the output.
func asJSON(c *cobra.Command) *bool {
	is := false
	c.Flags().FuncP("output", "o", "text for people (the default), json for programs", func(value string) error {
		if is = value == "json"; !is && value != "text" {
			return errors.New("it is text or json")
		}
		return nil
	})
	_ = c.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{"text", "json"}, cobra.ShellCompDirectiveNoFileComp))
	return &is
}

func (a *app) lsCommand() *cobra.Command {
	var json *bool
	var limit int
	c := &cobra.Command{
		Use:   "ls [PATTERN]",
		Short: "List the held locks",
		Long: `ls lists the locks of the deployment whose names match PATTERN, a glob as in Redis
(default: all), by name. It uses SCAN, in batches, on every master of a cluster. On a server with many
keys that takes a while, but it blocks nobody. Application data is never taken for a lock.

Columns: KIND plain (or a fair lock without waiters), fair or read-write; HOLDER the process, and the
number of further holders; HELD since when, if the owner says it; LEASE what is left of it; WAITING the
waiters that the server knows; PROCS the processes that wait, or waited a moment ago.`,
		Example: `  redlatch ls
  redlatch ls 'orders:*'
  redlatch ls -o json | jq -r '.[] | select(.queue_length > 10) | .name'`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if limit < 1 {
				return usageError("limit: at least 1")
			}
			return a.with("ls", func(client *redlatch.Client) error {
				locks, more, err := list(cmd.Context(), client, strings.Join(args, ""), limit)
				if more > 0 {
					fmt.Fprintf(a.std.err, "redlatch: these are the first %d locks by name, of %d: give a pattern, or see --limit\n", len(locks), len(locks)+more)
				}
				switch {
				case err != nil:
					return err
				case *json:
					return writeJSON(a.std.out, locks, false)
				case len(locks) > 0:
					screenOf(a.std.out).list(a.std.out, locks)
				case len(args) > 0:
					fmt.Fprintf(a.std.err, "no locks match %s. The pattern is for the whole name: '*word*' finds a word in it\n", quote.Name(args[0]))
				default:
					fmt.Fprintln(a.std.err, "no locks")
				}
				return nil
			})
		},
	}
	json = asJSON(c)
	c.Flags().IntVar(&limit, "limit", maxListed, "how many locks to list at most")
	return c
}

// lockColumn is a column in a list of locks.
type lockColumn struct {
	column
	cell func(w *watched) cell
}

func lockName(w *watched) cell { return cell{w.Name, cyan} }

func lockKind(w *watched) cell { return cell{string(w.Kind), ""} }

func lockHolder(w *watched) cell {
	switch {
	case w.Kind == redlatch.KindUnknown:
		return cell{cut(w.Problem, 100), red}
	case len(w.Holders) == 0:
		return cell{"free", dim}
	}
	return cell{who(w.Holders[0].Process, w.Holders[0].Owner) + others(w.Inspection), ""}
}

func lockHeld(w *watched) cell { return cell{some(time.Duration(w.HeldMs) * time.Millisecond), ""} }

func lockLease(w *watched) cell { return cell{some(w.Remaining), ""} }

var lsColumns = []lockColumn{
	{column{"NAME", true}, lockName},
	{column{"KIND", false}, lockKind},
	{column{"MODE", false}, func(w *watched) cell {
		if w.Kind == redlatch.KindUnknown {
			return cell{"?", ""}
		}
		return cell{orDash(string(w.Mode)), ""}
	}},
	{column{"HOLDER", true}, lockHolder},
	{column{"HELD", false}, lockHeld},
	{column{"LEASE", false}, lockLease},
	{column{"WAITING", false}, func(w *watched) cell {
		switch {
		case w.Kind == redlatch.KindPlain || w.Kind == redlatch.KindUnknown:
			return cell{"-", ""}
		case w.QueueLength > 0:
			return cell{strconv.Itoa(w.QueueLength), yellow}
		}
		return cell{"0", ""}
	}},
	{column{"PROCS", false}, func(w *watched) cell { return cell{processes(w.Processes), ""} }},
}

// list writes what ls lists.
func (s screen) list(out io.Writer, locks []redlatch.Inspection) {
	rows := make([]*watched, len(locks))
	for i, in := range locks {
		rows[i] = &watched{}
		rows[i].see(in)
	}
	for _, line := range s.locks(lsColumns, rows) {
		fmt.Fprintln(out, line)
	}
}

// locks are the lines of a list of locks.
func (s screen) locks(columns []lockColumn, list []*watched) []string {
	heads, rows := make([]column, len(columns)), make([][]cell, len(list))
	for i, c := range columns {
		heads[i] = c.column
		for n, w := range list {
			rows[n] = append(rows[n], c.cell(w))
		}
	}
	return s.lines(heads, rows)
}

func (a *app) showCommand() *cobra.Command {
	var json *bool
	c := &cobra.Command{
		Use:   "show NAME",
		Short: "Show one lock: who holds it, who waits, since when",
		Long: `show prints what the server knows about the lock NAME, of any kind: its holders with their
process and address, since when they hold it and what is left of their leases; the queue in order;
the processes that wait. Only their own processes know the waiters of a plain lock, so for a plain
lock it prints the number of waiting processes.

The exit status is 0 whether the lock is held or free, and 1 if the key is not a lock.`,
		Example: `  redlatch show orders:42
  redlatch show orders:42 -o json | jq -r '.holders[0].client'`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.with("show", func(client *redlatch.Client) error {
				in, err := look(cmd.Context(), client, args[0])
				switch {
				case err != nil:
					return err
				case *json:
					return writeJSON(a.std.out, in, false)
				}
				screenOf(a.std.out).lock(a.std.out, in)
				if in.Kind == redlatch.KindNone && in.Processes <= 0 {
					fmt.Fprintln(a.std.err, "Is the name right? redlatch ls lists the held locks; --prefix is the application's Config.Prefix.")
				}
				return nil
			})
		},
	}
	json = asJSON(c)
	return c
}

// lock writes all about one lock.
func (s screen) lock(out io.Writer, in redlatch.Inspection) {
	state := s.paint(green, "free")
	if in.Kind == redlatch.KindUnknown {
		state = s.paint(red, "can't be read")
	}
	if in.Held() {
		state = s.paint(yellow, "held")
		if in.Kind == redlatch.KindReadWrite {
			state += " for " + map[redlatch.Mode]string{redlatch.ModeRead: "reading", redlatch.ModeWrite: "writing"}[in.Mode]
		}
	}
	kind := string(in.Kind)
	switch in.Kind { //nolint:exhaustive // the others are said by their names
	case redlatch.KindNone:
		kind = "none: no key and no queue of this name"
	case redlatch.KindPlain:
		kind = "plain (a fair lock with an empty queue looks the same)"
	}
	fmt.Fprintf(out, "%s  %s\n", s.paint(bold, s.short(in.Name)), state)
	field := func(known bool, name, format string, args ...any) {
		if known {
			fmt.Fprintf(out, "%-10s "+format+"\n", append([]any{name}, args...)...)
		}
	}
	field(true, "kind", "%s", kind)
	field(in.Key != in.Name, "key", "%s", brief(in.Key))
	field(in.Problem != "", "problem", "%s", in.Problem)
	field(in.Held(), "lease", "%s left", some(in.Remaining))
	field(in.Token > 0, "token", "%d", in.Token)
	queued := in.QueueLength > 0
	field(queued, "waiting", "%d in the queue, of %s", in.QueueLength, processesThat(in.Processes, "", ""))
	field(!queued && in.Processes != 0, "waiting", "%s for the next unlock", processesThat(in.Processes, "listens", "listen"))
	if in.HolderCount > 0 {
		fmt.Fprintf(out, "\n%s\n", s.paint(bold, fmt.Sprintf("Holders (%d)", in.HolderCount)))
		s.holders(out, in)
	}
	if len(in.Queue) > 0 {
		fmt.Fprintf(out, "\n%s\n", s.paint(bold, fmt.Sprintf("Queue (%d)", in.QueueLength)))
		s.queue(out, in)
		if in.QueueLength > len(in.Queue) {
			fmt.Fprintf(out, "… and %d more\n", in.QueueLength-len(in.Queue))
		}
	}
}

// holders writes the table of holders. Where the terminal is too narrow for it, owner and
// trace stand below each holder: people copy them.
func (s screen) holders(out io.Writer, in redlatch.Inspection) {
	heads := []column{{"PROCESS", true}, {"ADDRESS", false}, {"MODE", false}, {"COUNT", false}, {"HELD", false}, {"LEASE", false}, {"OWNER", false}, {"TRACE", false}}
	rows := make([][]cell, len(in.Holders))
	for i, h := range in.Holders {
		rows[i] = []cell{
			{who(h.Process, h.Owner), cyan}, {orDash(h.Addr), ""}, {string(h.Mode), ""}, {strconv.Itoa(h.Count), ""},
			{since(in.At, h.Since), ""}, {some(h.Remaining), ""}, {h.Owner, ""}, {orDash(h.TraceID), dim},
		}
	}
	short := heads
	if !s.fits(heads, rows) {
		short = heads[:6] // before the owner
	}
	for i, line := range s.lines(short, rows) {
		fmt.Fprintln(out, line)
		if i > 0 && len(short) < len(heads) {
			s.below(out, "owner", in.Holders[i-1].Owner)
			s.below(out, "trace", in.Holders[i-1].TraceID)
		}
	}
}

// below writes a value, if there is one, on lines of its own, whole.
func (s screen) below(out io.Writer, label, text string) {
	for r, room := []rune(text), max(s.width-len(label)-3, 8); len(r) > 0; label = strings.Repeat(" ", len(label)) {
		n := min(room, len(r))
		fmt.Fprintf(out, "  %s %s\n", s.paint(dim, label), string(r[:n]))
		r = r[n:]
	}
}

// queue writes the table of waiters. Where the terminal is too narrow, owners are shown
// without the client's id, which PROCESS stands for.
func (s screen) queue(out io.Writer, in redlatch.Inspection) {
	heads := []column{{"#", false}, {"PROCESS", true}, {"ADDRESS", false}, {"MODE", false}, {"WAITS", false}, {"OWNER", true}}
	rows := make([][]cell, len(in.Queue))
	for i, w := range in.Queue {
		rows[i] = []cell{
			{strconv.Itoa(i + 1), dim}, {who(w.Process, w.Owner), cyan}, {orDash(w.Addr), ""}, {string(w.Mode), ""},
			{since(in.At, w.Since), ""}, {w.Owner, ""},
		}
	}
	if !s.fits(heads, rows) {
		for _, row := range rows {
			if _, rest, ok := strings.Cut(row[5].text, ":"); ok {
				row[5].text = "…:" + rest
			}
		}
	}
	for _, line := range s.lines(heads, rows) {
		fmt.Fprintln(out, line)
	}
}

// short leaves room behind a name on its line.
func (s screen) short(name string) string {
	if s.width == 0 {
		return brief(name)
	}
	return cut(name, max(s.width-20, 8))
}

func orDash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}
