package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/quote"
)

// output is the flag -o.
type output string

func (o *output) add(c *cobra.Command) {
	c.Flags().StringVarP((*string)(o), "output", "o", "text", "text for people, json for programs")
	_ = c.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{"text", "json"}, cobra.ShellCompDirectiveNoFileComp))
}

func (o output) json() (bool, error) {
	switch o {
	case "text":
		return false, nil
	case "json":
		return true, nil
	}
	return false, usageError(fmt.Sprintf("output: %q is neither text nor json", string(o)))
}

func (a *app) lsCommand() *cobra.Command {
	var o output
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
			asJSON, err := o.json()
			if err != nil {
				return err
			}
			if limit < 1 {
				return usageError("limit: at least 1")
			}
			client, err := a.open("ls")
			if err != nil {
				return err
			}
			defer client.Close()
			locks, more, err := list(cmd.Context(), client, strings.Join(args, ""), limit)
			if err != nil {
				return err
			}
			if more > 0 {
				fmt.Fprintf(a.std.err, "redlatch: these are the first %d locks by name, of %d: give a pattern, or see --limit\n", len(locks), len(locks)+more)
			}
			if asJSON {
				return writeJSON(a.std.out, locks, false)
			}
			if len(locks) == 0 {
				text := "no locks"
				if len(args) > 0 {
					text = fmt.Sprintf("no locks match %s. The pattern is for the whole name: '*word*' finds a word in it", quote.Name(args[0]))
				}
				fmt.Fprintln(a.std.err, text)
				return nil
			}
			s := screenOf(a.std.out)
			s.locks(a, locks)
			return nil
		},
	}
	o.add(c)
	c.Flags().IntVar(&limit, "limit", maxListed, "how many locks to list at most")
	return c
}

func (s screen) locks(a *app, locks []redlatch.Inspection) {
	rows := make([][]cell, len(locks))
	for i, in := range locks {
		rows[i] = lockRow(in)
	}
	s.table(a.std.out, lockHead, lockShrink, rows)
}

var (
	lockHead   = []string{"NAME", "KIND", "MODE", "HOLDER", "HELD", "LEASE", "WAITING", "PROCS"}
	lockShrink = []bool{true, false, false, true, false, false, false, false}
)

// lockRow is a lock on one line.
func lockRow(in redlatch.Inspection) []cell {
	holder, held, mode := "-", "-", string(in.Mode)
	if len(in.Holders) > 0 {
		h := in.Holders[0]
		holder, held = who(h.Process, h.Owner), since(in.At, h.Since)
		if in.HolderCount > 1 {
			holder += fmt.Sprintf(" +%d", in.HolderCount-1)
		}
	}
	switch {
	case in.Kind == redlatch.KindUnknown:
		mode, holder = "?", cut(in.Problem, 100)
	case mode == "":
		mode = "free"
	}
	waiting, style := "-", ""
	if in.Kind != redlatch.KindPlain && in.Kind != redlatch.KindUnknown {
		waiting = fmt.Sprint(in.QueueLength)
	}
	if in.QueueLength > 0 {
		style = yellow
	}
	return []cell{
		{in.Name, cyan}, {string(in.Kind), ""}, {mode, ""}, {holder, ""}, {held, ""},
		{leaseLeft(in.Remaining), ""}, {waiting, style}, {processes(in.Processes), ""},
	}
}

func (a *app) showCommand() *cobra.Command {
	var o output
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
			asJSON, err := o.json()
			if err != nil {
				return err
			}
			client, err := a.open("show")
			if err != nil {
				return err
			}
			defer client.Close()
			in, err := look(cmd.Context(), client, args[0])
			if err != nil {
				return err
			}
			if asJSON {
				return writeJSON(a.std.out, in, false)
			}
			screenOf(a.std.out).lock(a, in)
			if in.Kind == redlatch.KindNone && in.Processes <= 0 {
				fmt.Fprintln(a.std.err, "Is the name right? redlatch ls lists the held locks; --prefix is the application's Config.Prefix.")
			}
			return nil
		},
	}
	o.add(c)
	return c
}

// lock writes all about one lock.
func (s screen) lock(a *app, in redlatch.Inspection) {
	out := a.std.out
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
	fmt.Fprintf(out, "kind       %s\n", kind)
	if in.Key != in.Name {
		fmt.Fprintf(out, "key        %s\n", brief(in.Key))
	}
	if in.Problem != "" {
		fmt.Fprintf(out, "problem    %s\n", in.Problem)
	}
	if in.Held() {
		fmt.Fprintf(out, "lease      %s left\n", leaseLeft(in.Remaining))
	}
	if in.Token > 0 {
		fmt.Fprintf(out, "token      %d\n", in.Token)
	}
	switch {
	case in.QueueLength > 0:
		fmt.Fprintf(out, "waiting    %d in the queue, of %s\n", in.QueueLength, processesThat(in.Processes, "", ""))
	case in.Processes != 0:
		fmt.Fprintf(out, "waiting    %s for the next unlock\n", processesThat(in.Processes, "listens", "listen"))
	}
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
	head := []string{"PROCESS", "ADDRESS", "MODE", "COUNT", "HELD", "LEASE", "OWNER", "TRACE"}
	rows := make([][]cell, len(in.Holders))
	for i, h := range in.Holders {
		rows[i] = []cell{
			{who(h.Process, h.Owner), cyan}, {orDash(h.Addr), ""}, {string(h.Mode), ""}, {fmt.Sprint(h.Count), ""},
			{since(in.At, h.Since), ""}, {leaseLeft(h.Remaining), ""}, {h.Owner, ""}, {orDash(h.TraceID), dim},
		}
	}
	shrink := []bool{true, false, false, false, false, false, false, false}
	if s.width == 0 || natural(head, rows) <= s.width {
		s.table(out, head, shrink, rows)
		return
	}
	const short = 6 // columns before the owner
	for i := range rows {
		rows[i] = rows[i][:short]
	}
	var b strings.Builder
	s.table(&b, head[:short], shrink[:short], rows)
	for i, line := range strings.Split(strings.TrimRight(b.String(), "\n"), "\n") {
		fmt.Fprintln(out, line)
		if i == 0 {
			continue
		}
		h := in.Holders[i-1]
		s.below(out, "owner", h.Owner)
		if h.TraceID != "" {
			s.below(out, "trace", h.TraceID)
		}
	}
}

// below writes a value on lines of its own, whole.
func (s screen) below(out io.Writer, label, text string) {
	r, room := []rune(text), max(s.width-len(label)-3, 8)
	for first := true; first || len(r) > 0; first = false {
		n := min(room, len(r))
		fmt.Fprintf(out, "  %s %s\n", s.paint(dim, label), string(r[:n]))
		r, label = r[n:], strings.Repeat(" ", len(label))
	}
}

// queue writes the table of waiters. Where the terminal is too narrow, owners are shown
// without the client's id, which PROCESS stands for.
func (s screen) queue(out io.Writer, in redlatch.Inspection) {
	head := []string{"#", "PROCESS", "ADDRESS", "MODE", "WAITS", "OWNER"}
	rows := make([][]cell, len(in.Queue))
	for i, w := range in.Queue {
		rows[i] = []cell{
			{fmt.Sprint(i + 1), dim}, {who(w.Process, w.Owner), cyan}, {orDash(w.Addr), ""}, {string(w.Mode), ""},
			{since(in.At, w.Since), ""}, {w.Owner, ""},
		}
	}
	if s.width > 0 && natural(head, rows) > s.width {
		for _, row := range rows {
			if _, rest, ok := strings.Cut(row[5].text, ":"); ok {
				row[5].text = "…:" + rest
			}
		}
	}
	s.table(out, head, []bool{false, true, false, false, false, true}, rows)
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
