package main

import (
	"context"
	"errors"
	"fmt"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/redlatch/redlatch"
)

func (a *app) watchCommand() *cobra.Command {
	var o output
	var interval time.Duration
	c := &cobra.Command{
		Use:   "watch NAME",
		Short: "Follow one lock: a line for each change",
		Long: `watch checks the lock NAME every --interval and prints a line for each change: who took it, who
released it, how long the queue is. It may miss turns that are shorter than the interval. With -o json each
change is one line in the format of show -o json. It ends with Ctrl-C, status 0. While the server can't be
reached it says so and keeps trying.`,
		Example: `  redlatch watch orders:42
  redlatch watch orders:42 -o json | jq -c '[.at, .holders[0].client]'`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			asJSON, err := o.json()
			if err != nil {
				return err
			}
			if interval < 100*time.Millisecond {
				return usageError("interval: at least 100ms")
			}
			client, err := a.open("watch")
			if err != nil {
				return err
			}
			defer client.Close()
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
			defer stop()
			return a.watch(ctx, client, args[0], interval, asJSON)
		},
	}
	o.add(c)
	c.Flags().DurationVar(&interval, "interval", time.Second, "how often to check")
	return c
}

func (a *app) watch(ctx context.Context, client *redlatch.Client, name string, interval time.Duration, asJSON bool) error {
	s := screenOf(a.std.out)
	tick := time.NewTicker(interval)
	defer tick.Stop()
	var last *redlatch.Inspection
	down := false
	for {
		in, err := client.Inspect(ctx, name)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, redlatch.ErrUnavailable):
			if !down {
				fmt.Fprintln(a.std.err, "redlatch:", message(err))
			}
			down = true
		case err != nil:
			return err
		default:
			down = false
			lines := changes(last, in)
			if len(lines) > 0 {
				if asJSON {
					if err := writeJSON(a.std.out, in, true); err != nil {
						return err
					}
				} else {
					for _, l := range lines {
						fmt.Fprintln(a.std.out, s.paint(dim, in.At.Local().Format("15:04:05.000"))+"  "+s.paint(l.style, l.text))
					}
				}
			}
			last = &in
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// changes tells what happened between two looks; nil: the first look.
func changes(was *redlatch.Inspection, is redlatch.Inspection) []cell {
	var out []cell
	before := redlatch.Inspection{}
	if was != nil {
		before = *was
	}
	has := func(in redlatch.Inspection, h redlatch.Holder) int {
		return slices.IndexFunc(in.Holders, func(o redlatch.Holder) bool { return o.Owner == h.Owner && o.Mode == h.Mode })
	}
	for _, h := range before.Holders {
		if has(is, h) < 0 {
			text := "let go    " + describe(h)
			if !h.Since.IsZero() {
				text += ", asked for it " + since(is.At, h.Since) + " ago"
			}
			out = append(out, cell{text, green})
		}
	}
	for _, h := range is.Holders {
		switch i := has(before, h); {
		case i < 0:
			out = append(out, cell{"held by   " + describe(h) + ", lease " + leaseLeft(h.Remaining), yellow})
		case before.Holders[i].Count != h.Count:
			out = append(out, cell{fmt.Sprintf("re-entry  %s, %d holds", describe(h), h.Count), ""})
		}
	}
	if was == nil && !is.Held() {
		out = append(out, cell{"free", green})
	}
	if is.QueueLength != before.QueueLength {
		text := fmt.Sprintf("waiting   %d", is.QueueLength)
		if len(is.Queue) > 0 {
			text += ", next " + who(is.Queue[0].Process, is.Queue[0].Owner) + " " + ownerName(is.Queue[0].Owner)
		}
		out = append(out, cell{text, ""})
	}
	if is.Processes != before.Processes && is.Kind != redlatch.KindFair {
		out = append(out, cell{fmt.Sprintf("listening %s process(es)", processes(is.Processes)), ""})
	}
	return out
}

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
