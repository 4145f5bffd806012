package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/redlatch/redlatch"
)

func (a *app) topCommand() *cobra.Command {
	var interval time.Duration
	var listen bool
	c := &cobra.Command{
		Use:   "top [PATTERN]",
		Short: "Show the hottest locks, live",
		Long: `top shows the locks whose names match PATTERN (default: all) and refreshes every --interval, at
least a second. It needs a terminal, and works over ssh.

Keys:
  up, down, j, k   choose a lock          enter, o   open it         esc, backspace   back
  s, S             sort by the next, the previous column; 1 to 5 sort by waiters, turns/s, longest held,
                   longest waiter, name
  r                reverse the order      /          filter by a part of the name
  space, p         pause                  +, -       refresh less, more often
  ?, h             show these keys        q, Ctrl-C  quit

WAIT is the length of the queue; "2 proc" are processes that listen for the unlock of a plain lock: only
they know how many waiters they have. TURNS/S are the changes of holders that top has seen, at most one per
refresh; hence the ≥. With --listen it counts the messages of all unlocks instead. Listening costs each
unlock as much as one more waiting process, and is not possible on a cluster.`,
		Example: `  redlatch top
  redlatch top 'orders:*' --interval 2s`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			in, out := file(a.std.in), file(a.std.out)
			if in == nil || out == nil || !term.IsTerminal(int(in.Fd())) || !term.IsTerminal(int(out.Fd())) {
				return usageError("top needs a terminal; programs use redlatch ls -o json")
			}
			if interval < time.Second {
				return usageError("interval: at least 1s")
			}
			client, err := a.open("top")
			if err != nil {
				return err
			}
			defer client.Close()
			var turns func() map[string]int
			if listen {
				l, err := a.listen(cmd.Context())
				if err != nil {
					return err
				}
				defer l.close()
				turns = l.take
			}
			pattern := ""
			if len(args) > 0 {
				pattern = args[0]
			}
			return a.top(cmd.Context(), client, in, out, newTopView(newBoard(turns), a.flags.server(), pattern, interval))
		},
	}
	c.Flags().DurationVar(&interval, "interval", time.Second, "how often to refresh")
	c.Flags().BoolVar(&listen, "listen", false, "count turns by the messages of unlocks")
	return c
}

// looked is what one look at the server came to.
type looked struct {
	list []redlatch.Inspection
	open *redlatch.Inspection // the lock that is open
	err  error
	at   time.Time
	took time.Duration
}

func (a *app) top(ctx context.Context, client *redlatch.Client, in, out *os.File, v *topView) error {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	old, err := term.MakeRaw(int(in.Fd()))
	if err != nil {
		return fmt.Errorf("the terminal: %w", err)
	}
	defer func() {
		_, _ = io.WriteString(out, "\x1b[?25h\x1b[?1049l")
		_ = term.Restore(int(in.Fd()), old)
	}()
	_, _ = io.WriteString(out, "\x1b[?1049h\x1b[?25l")

	keys := make(chan string)
	go readKeys(ctx, in, keys) // ends with its input: with the process
	looks := make(chan looked, 1)
	look := func() {
		open := v.open
		go func() { // ends with the answers, which ctx and the time limit bound
			looks <- a.look(ctx, client, v.pattern, open)
		}()
	}
	look()
	busy := true
	next := time.NewTimer(v.interval)
	defer next.Stop()
	resize := time.NewTicker(250 * time.Millisecond)
	defer resize.Stop()
	due, took := false, time.Duration(0)
	draw := func() {
		w, h, err := term.GetSize(int(out.Fd()))
		if err != nil {
			w, h = 80, 24
		}
		v.width, v.height = w, h
		_, _ = io.WriteString(out, v.render())
	}
	draw()
	for {
		select {
		case <-ctx.Done():
			return waitLook(busy, looks)
		case l := <-looks:
			busy = false
			took = l.took
			v.see(l)
			draw()
		case k, ok := <-keys:
			if !ok || v.key(k) {
				stop()
				return waitLook(busy, looks)
			}
			draw()
		case <-next.C:
			due = true
		case <-resize.C:
			if w, h, err := term.GetSize(int(out.Fd())); err == nil && (w != v.width || h != v.height) {
				draw()
			}
		}
		if due && !busy {
			due = false
			next.Reset(max(v.interval, took)) // on a server with very many keys: no more than half of the time
			if !v.paused {
				busy = true
				look()
			}
		}
	}
}

// waitLook lets the last look end, so that nothing is left of it.
func waitLook(busy bool, looks <-chan looked) error {
	if busy {
		<-looks
	}
	return nil
}

func (a *app) look(ctx context.Context, client *redlatch.Client, pattern, open string) (l looked) {
	l.at = time.Now()
	defer func() { l.took = time.Since(l.at) }()
	l.list, _, l.err = list(ctx, client, pattern, maxListed)
	if open != "" && l.err == nil {
		in, err := look(ctx, client, open)
		if err == nil {
			l.open = &in
		} else if isGone(err) { // else its row in the list tells
			l.err = err
		}
	}
	return l
}

// readKeys sends each key that is pressed: a character, or a name.
func readKeys(ctx context.Context, in io.Reader, keys chan<- string) {
	defer close(keys)
	buf := make([]byte, 64)
	for {
		n, err := in.Read(buf)
		for _, k := range splitKeys(buf[:n]) {
			select {
			case keys <- k:
			case <-ctx.Done():
				return
			}
		}
		if err != nil {
			return
		}
	}
}

var keyNames = map[string]string{
	"\x1b[A": "up", "\x1b[B": "down", "\x1bOA": "up", "\x1bOB": "down", "\x1b[5~": "pageup", "\x1b[6~": "pagedown",
	"\x1b": "esc", "\r": "enter", "\n": "enter", "\x7f": "back", "\b": "back", "\x03": "quit", "\x04": "quit",
}

// splitKeys takes apart what a terminal sent at once.
func splitKeys(b []byte) []string {
	var out []string
	for len(b) > 0 {
		n := 1
		if b[0] == 0x1b && len(b) > 1 && (b[1] == '[' || b[1] == 'O') {
			for n = 2; n < len(b) && (b[n] < '@' || b[n] > '~'); n++ {
			}
			n = min(n+1, len(b))
		} else if b[0] >= 0xc0 {
			for n < len(b) && b[n]&0xc0 == 0x80 {
				n++
			}
		}
		k := string(b[:n])
		if name, ok := keyNames[k]; ok {
			k = name
		}
		out = append(out, k)
		b = b[n:]
	}
	return out
}

// isGone reports whether the server could not be reached.
func isGone(err error) bool { return errors.Is(err, redlatch.ErrUnavailable) }
