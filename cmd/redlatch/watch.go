package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/redlatch/redlatch"
)

func (a *app) watchCommand() *cobra.Command {
	var form string
	var interval time.Duration
	c := &cobra.Command{
		Use:   "watch NAME",
		Short: "Follow one lock: a line for each change",
		Long: `watch checks the lock NAME every --interval and prints a line for each change. It may miss turns that are shorter
than that. With -o json each change is one line in the format of show -o json. Ctrl-C ends it, with status 0. If
the server can't be reached any more, it says so and tries on.

  renewed    the holder lives: it has renewed its lease
  overdue    a living holder would have renewed by now; a fixed lease is never renewed
  expired    the lease ran out
  released   unlocked, or taken away, or deleted: the server does not say which`,
		Example: `  redlatch watch orders:42
  redlatch watch orders:42 -o json | jq -c '[.at, .holders[0].client]'`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if interval < 100*time.Millisecond {
				return usageError("interval: at least 100ms")
			}
			return a.with("watch", func(client *redlatch.Client) error {
				return a.watch(cmd.Context(), client, args[0], interval, form == "json")
			})
		},
	}
	output(c, &form)
	c.Flags().DurationVar(&interval, "interval", time.Second, "how often to check")
	return c
}

func (a *app) watch(ctx context.Context, client *redlatch.Client, name string, interval time.Duration, asJSON bool) error {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	s := screenOf(a.std.out)
	tick := time.NewTicker(interval)
	defer tick.Stop()
	follow, down := follower{}, false
	for {
		in, err := look(ctx, client, name)
		switch {
		case ctx.Err() != nil:
			return nil
		case isGone(err) && down: // it has said so
		case isGone(err):
			fmt.Fprintln(a.std.err, "redlatch:", message(err))
			down = true
		case err != nil:
			return err
		default:
			down = false
			if lines := follow.changes(in); !asJSON {
				s.changes(a.std.out, in.At, lines)
			} else if len(lines) > 0 {
				if err := json.NewEncoder(a.std.out).Encode(in); err != nil {
					return err
				}
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// changes writes what happened until a look.
func (s screen) changes(out io.Writer, at time.Time, lines []cell) {
	for _, l := range lines {
		fmt.Fprintln(out, s.paint(dim, at.Local().Format("15:04:05.000"))+"  "+s.paint(l.style, l.text))
	}
}

// follower remembers the looks at a lock.
type follower struct{ watched }

// changes tells what happened since the last look.
func (f *follower) changes(is redlatch.Inspection) (out []cell) {
	say := func(style, format string, args ...any) { out = append(out, cell{fmt.Sprintf(format, args...), style}) }
	before, first, was := f.Inspection, f.first.IsZero(), map[string]turn{}
	for _, h := range before.Holders {
		was[key(h)] = *f.turn(h) // see leaves no holder without one
	}
	f.see(is)
	for _, h := range before.Holders {
		if f.turn(h) != nil {
			continue
		}
		word, style, lasted := "released", green, ""
		if was[key(h)].lease.over(f.At) {
			word, style = "expired", red
		}
		if !h.HeldSince.IsZero() {
			lasted = ", held for up to " + since(f.At, h.HeldSince) // it ended at some time since the last look
		}
		say(style, "%-9s %s%s", word, describe(h), lasted)
	}
	for _, h := range is.Holders {
		old, known := was[key(h)]
		t, lease := f.turn(h), some(h.Remaining)
		switch {
		case !known:
			say(yellow, "held by   %s, lease %s", describe(h), lease)
		case old.count != h.Count:
			say("", "re-entry  %s, %d holds", describe(h), h.Count)
		case !old.lease.end.IsZero() && t.lease.end.Sub(old.lease.end) > 50*time.Millisecond:
			t.lease.overdue = false
			say("", "renewed   %s, lease %s", describe(h), lease)
		case t.lease.late() && !t.lease.overdue:
			t.lease.overdue = true
			say(red, "overdue   %s, not renewed, lease %s", describe(h), lease)
		}
	}
	if first && !is.Held() {
		say(green, "free")
	}
	if is.QueueLength != before.QueueLength {
		next := ""
		if len(is.Queue) > 0 {
			next = ", next " + whoOwns(is.Queue[0].Process, is.Queue[0].Owner)
		}
		say("", "waiting   %d%s", is.QueueLength, next)
	}
	if is.Processes != before.Processes && is.Kind != redlatch.KindFair {
		say("", "waiting   %s", processesThat(is.Processes, "listens", "listen"))
	}
	return out
}

// key tells holders apart.
func key(h redlatch.Holder) string { return string(h.Mode) + " " + h.Owner }

// describe is a holder in a line.
func describe(h redlatch.Holder) string {
	text := who(h.Process, h.Owner)
	if h.Addr != "" {
		text += " (" + h.Addr + ")"
	}
	text += " " + ownerName(h.Owner)
	if h.Mode != redlatch.ModeLock {
		text += " for " + string(h.Mode)
	}
	return text
}
