package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/quote"
)

// choice is a flag that takes one of some words.
func choice(c *cobra.Command, to *string, name, short, usage string, words ...string) {
	c.Flags().FuncP(name, short, usage, func(value string) error {
		if *to = value; !slices.Contains(words, value) {
			return errors.New("it is one of " + strings.Join(words, ", "))
		}
		return nil
	})
	_ = c.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp))
}

// output is the flag that tells whether programs read the output.
func output(c *cobra.Command, to *string) {
	choice(c, to, "output", "o", "text for people (the default), json for programs", "text", "json")
}

func (a *app) lsCommand() *cobra.Command {
	f := lsFlags{sort: "name"}
	c := &cobra.Command{
		Use:   "ls [PATTERN]",
		Short: "List the held locks",
		Long: `ls lists the locks whose names match PATTERN, a glob as in Redis (default: all), by name. It uses SCAN, in batches,
on every master of a cluster. On a server with many keys that takes a while: it takes at most 2 % of the server's
time, after the first 50 ms, unless --full-speed is given. Application data is never taken for a lock.

Columns: KIND reentrant (RLock, or a fair lock without waiters), fair or read-write; MODE how it is held: lock (by one
owner), read or write; HOLDER the process, and the number of further holders; HELD for how long, if the owner says it;
WAITED how long it had waited before; LEASE what is left of it; WAITING the waiters that the server knows; PROCS the
processes that wait, or waited a moment ago. In JSON, durations are seconds with a fraction (remaining_seconds), times
RFC 3339 in UTC (held_since, asked_since).

--process keeps the locks that a process holds or waits for, by a part of its name (of one that was killed, the whole
name) or the beginning of its address or id. --by lists the holders and waiters instead, with their locks: by process,
by host (the address), or by owner, where the members of a MultiLock, and what is locked inside a section, stand
together. Of a lock with more than 1,000 holders or waiters both know the first ones.

Given the --url of several deployments, such as the servers of a quorum, it looks at all of them at the same time;
SERVERS says how many have copies of the holds, and which. If one does not answer, the others are listed all the same.`,
		Example: `  redlatch ls 'orders:*' --sort held
  redlatch ls --process checkout/pod-7
  redlatch ls --by owner -u redis://a:6379 -u redis://b:6379 -u redis://c:6379
  redlatch ls -o json | jq -r '.[] | select(.queue_length > 10) | .name'`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if f.limit < 1 {
				return usageError("limit: at least 1")
			}
			return a.ls(cmd.Context(), f, strings.Join(args, ""))
		},
	}
	output(c, &f.output)
	c.Flags().IntVar(&f.limit, "limit", maxListed, "how many locks to list at most")
	choice(c, &f.sort, "sort", "", "name (the default), held, waiters or waiter (the one that waits longest)", "name", "held", "waiters", "waiter")
	c.Flags().StringVar(&f.process, "process", "", "only the locks that this process holds or waits for")
	a.fullSpeed(c)
	choice(c, &f.by, "by", "", "list the holders and waiters: by process, host or owner", "process", "host", "owner")
	return c
}

// ls lists what the deployments that answer have, and fails if one does not.
func (a *app) ls(ctx context.Context, f lsFlags, pattern string) error {
	var mu sync.Mutex
	locks, all, answered := []*watched{}, 0, 0 // guarded by mu
	failed := a.each("ls", func(client *redlatch.Client, at string) error {
		found, more, err := list(ctx, client, pattern, f.limit, func(in *redlatch.Inspection) (bool, error) { return f.look(ctx, client, in) })
		if err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		answered++
		all += len(found) + more
		locks = append(locks, seen(at, found)...)
		return nil
	})
	if answered == 0 {
		return failed
	}
	if all > len(locks) {
		fmt.Fprintf(a.std.err, "redlatch: these are the first %d locks by name, of %d: give a pattern, or see --limit\n", len(locks), all)
	}
	inOrder(locks, sorts[f.sort])
	opts, _ := a.flags.options()
	servers := "" // a column
	if len(opts) > 1 {
		servers = " SERVERS*"
	}
	switch s := screenOf(a.std.out); {
	case f.output == "json" && f.by != "":
		return cmp.Or(writeJSON(a.std.out, f.grouped(locks, len(opts))), failed)
	case f.output == "json":
		return cmp.Or(writeJSON(a.std.out, locks), failed)
	case len(locks) == 0:
		fmt.Fprintln(a.std.err, a.nothing(ctx, f, pattern))
	case f.by != "":
		s.parties(a.std.out, f.by, f.grouped(locks, len(opts)), servers)
	default:
		s.list(a.std.out, locks, servers)
	}
	return failed
}

// seen are locks of a deployment at the first look.
func seen(server string, locks []redlatch.Inspection) []*watched {
	out := make([]*watched, len(locks))
	for i, in := range locks {
		out[i] = &watched{row: row{Server: server}}
		out[i].see(in)
	}
	return out
}

// nothing says that no lock was found, and which there are elsewhere: the prefix, or the pattern, may be wrong.
func (a *app) nothing(ctx context.Context, f lsFlags, pattern string) string {
	text, prefix := "no locks", a.flags.get("prefix")
	if prefix != "" {
		text = "nothing under the prefix " + quote.Name(prefix)
	}
	if pattern != "" {
		text += fmt.Sprintf(": no locks match %s. The pattern is for the whole name: '*word*' finds a word in it", quote.Name(pattern))
	}
	if prefix+pattern == "" || f.process != "" {
		return text
	}
	found := ""
	if all, err := a.open("ls", func(c *redlatch.Config) { c.Prefix = "" }); err == nil {
		defer all.Close()
		for in, err := range all.Locks(ctx, "") {
			if err != nil || strings.Count(found, ", ") == 3 {
				break
			}
			found += ", " + quote.Name(in.Name)
		}
	}
	return text + strings.Replace(found, ", ", "; found ", 1)
}

// list writes what ls lists.
func (s screen) list(out io.Writer, locks []*watched, servers string) {
	rows := make([][]cell, len(locks))
	for i, w := range locks {
		mode, waiting := cmp.Or(string(w.Mode), "-"), cell{strconv.Itoa(w.QueueLength), ""}
		switch {
		case w.Kind == redlatch.KindUnknown:
			mode, waiting.text = "?", "-"
		case w.Kind == redlatch.KindReentrant:
			waiting.text = "-"
		case w.QueueLength > 0:
			waiting.style = yellow
		}
		rows[i] = slices.Concat([]cell{{w.Name, cyan}, {string(w.Kind), ""}, {mode, ""}}, w.holding(), []cell{waiting, {processes(w.Processes), ""}, {w.Server, ""}})
	}
	lines, _ := s.lines("NAME* KIND MODE HOLDER* HELD WAITED LEASE WAITING PROCS"+servers, rows)
	fmt.Fprintln(out, strings.Join(lines, "\n"))
}

// holding is who holds the lock, in a list: HOLDER HELD WAITED LEASE.
func (w *watched) holding() []cell {
	holder := cell{"free", dim}
	if w.Kind == redlatch.KindUnknown {
		holder = cell{cut(w.Problem, 100), red}
	} else if len(w.Holders) > 0 {
		holder = cell{who(w.Holders[0].Process, w.Holders[0].Owner) + others(w.Inspection), ""}
	}
	return []cell{holder, {someSeconds(w.HeldFor), ""}, {someSeconds(w.WaitedFor), ""}, {some(w.Remaining), ""}}
}

func (a *app) showCommand() *cobra.Command {
	var form string
	c := &cobra.Command{
		Use:   "show NAME",
		Short: "Show one lock: who holds it, who waits, since when",
		Long: `show prints what the server knows about the lock NAME, of any kind: its holders, since when they hold it, how long
they had waited before, what is left of their leases; the queue in order; the processes that wait. Only these know
how many waiters of a reentrant lock they have. A process without a name is "(gone?)" if CLIENT LIST has no connection
of it, "(not known)" if that may not be read. The exit status is 1 if the key is not a lock.`,
		Example: `  redlatch show orders:42
  redlatch show orders:42 -o json | jq -r '.holders[0].client'`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.with("show", func(client *redlatch.Client) error {
				in, err := look(cmd.Context(), client, args[0])
				if err != nil {
					return err
				}
				raw, _ := given("name", args[0])
				run, _ := client.Once(raw).Last(cmd.Context()) // else it may not be read
				run.Process = shownProcess(run.Process)
				if form == "json" && !run.Began.IsZero() {
					text, err := joined(in, map[string]redlatch.OnceRun{"last_run": run})
					return errors.Join(err, writeJSON(a.std.out, json.RawMessage(text)))
				} else if form == "json" {
					return writeJSON(a.std.out, in)
				}
				screenOf(a.std.out).lock(a.std.out, in)
				if !run.Began.IsZero() {
					fmt.Fprintf(a.std.out, "\nLast run as a job of Once: %s ago, by %s; the next is due in %s\n",
						since(in.At, run.Began), cmp.Or(who(run.Process, ""), "?"), some(run.Due.Sub(in.At)))
				} else if in.Kind == redlatch.KindNone && in.Processes <= 0 && in.Token == 0 {
					fmt.Fprintln(a.std.err, "Is the name right? Its key would be "+quote.Name(in.Key)+": --prefix is the application's Config.Prefix, redlatch ls lists the held locks.")
				}
				return nil
			})
		},
	}
	output(c, &form)
	return c
}

// lock writes all about one lock.
func (s screen) lock(out io.Writer, in redlatch.Inspection) {
	state := s.paint(green, "free")
	if in.Kind == redlatch.KindUnknown {
		state = s.paint(red, "can't be read")
	}
	if in.Held() {
		state = s.paint(yellow, "held") + map[redlatch.Mode]string{redlatch.ModeRead: " for reading", redlatch.ModeWrite: " for writing"}[in.Mode]
	}
	kind := cmp.Or(map[redlatch.Kind]string{
		redlatch.KindNone:      "none: no key and no queue of this name",
		redlatch.KindReentrant: "reentrant (a fair lock with an empty queue looks the same)",
	}[in.Kind], string(in.Kind))
	name := brief(in.Name)
	if s.width > 0 { // leaves room behind it
		name = cut(in.Name, max(s.width-20, 8))
	}
	fmt.Fprintf(out, "%s  %s\n", s.paint(bold, name), state)
	field := func(known bool, name, format string, args ...any) {
		if known {
			fmt.Fprintf(out, "%-10s "+format+"\n", append([]any{name}, args...)...)
		}
	}
	field(true, "kind", "%s", kind)
	field(in.Key != in.Name, "key", "%s", brief(in.Key))
	field(in.Problem != "", "problem", "%s", in.Problem)
	left := some(in.Remaining) + " left"
	if in.Remaining <= 0 {
		left = "has no end"
	}
	field(in.Held(), "lease", "%s", left)
	field(in.Token > 0, "token", "%d", in.Token)
	queued := in.QueueLength > 0
	field(queued, "waiting", "%d in the queue, of %s", in.QueueLength, processesThat(in.Processes, "", ""))
	field(!queued && in.Processes != 0, "waiting", "%s for the next unlock", processesThat(in.Processes, "listens", "listen"))
	if len(in.Waiting) > 0 {
		rows := make([][]cell, len(in.Waiting))
		for i, w := range in.Waiting {
			rows[i] = []cell{{who(w.Process, ""), cyan}, {cmp.Or(w.Addr, "-"), ""}, {since(in.At, w.AskedSince), ""}}
		}
		lines, _ := s.lines("PROCESS* ADDRESS WAITS", rows)
		fmt.Fprintf(out, "\n%s\n%s\n", s.paint(bold, fmt.Sprintf("Waiting processes (%d)", len(rows))), strings.Join(lines, "\n"))
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
	rows := make([][]cell, len(in.Holders))
	for i, h := range in.Holders {
		rows[i] = []cell{
			{who(h.Process, h.Owner), cyan}, {cmp.Or(h.Addr, "-"), ""}, {string(h.Mode), ""}, {strconv.Itoa(h.Count), ""},
			{since(in.At, h.HeldSince), ""}, {some(waited(h)), ""}, {some(h.Remaining), ""}, {h.Owner, ""}, {cmp.Or(h.TraceID, "-"), dim},
		}
	}
	const heads = "PROCESS* ADDRESS MODE COUNT HELD WAITED LEASE"
	lines, whole := s.lines(heads+" OWNER TRACE", rows)
	if !whole {
		lines, _ = s.lines(heads, rows)
	}
	for i, line := range lines {
		fmt.Fprintln(out, line)
		if i > 0 && !whole {
			s.below(out, "owner", in.Holders[i-1].Owner)
			s.below(out, "trace", in.Holders[i-1].TraceID)
		}
	}
}

// below writes a value, if there is one, on lines of its own, whole.
func (s screen) below(out io.Writer, label, text string) {
	for part := ""; text != ""; text = text[len(part):] {
		part = head(text, max(s.width-len(label)-3, 8))
		fmt.Fprintf(out, "  %s %s\n", s.paint(dim, label), part)
		label = strings.Repeat(" ", len(label))
	}
}

// queue writes the table of waiters. Where the terminal is too narrow, owners are shown
// without the client's id, which PROCESS stands for.
func (s screen) queue(out io.Writer, in redlatch.Inspection) {
	rows := make([][]cell, len(in.Queue))
	for i, w := range in.Queue {
		rows[i] = []cell{
			{strconv.Itoa(i + 1), dim}, {who(w.Process, w.Owner), cyan}, {cmp.Or(w.Addr, "-"), ""}, {string(w.Mode), ""},
			{since(in.At, w.AskedSince), ""}, {w.Owner, ""},
		}
	}
	const heads = "# PROCESS* ADDRESS MODE WAITS OWNER*"
	lines, whole := s.lines(heads, rows)
	if !whole {
		for _, row := range rows {
			if _, rest, ok := strings.Cut(row[5].text, ":"); ok {
				row[5].text = "…:" + rest
			}
		}
		lines, _ = s.lines(heads, rows)
	}
	fmt.Fprintln(out, strings.Join(lines, "\n"))
}
