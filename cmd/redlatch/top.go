package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/redlatch/redlatch"
)

func (a *app) topCommand() *cobra.Command {
	var interval time.Duration
	c := &cobra.Command{
		Use:   "top [PATTERN]",
		Short: "Show the hottest locks, live",
		Long: `top shows the locks whose names match PATTERN (default: all) and refreshes every --interval, at least a second. It
needs a terminal, and works over ssh.

` + topHelp + `

A turn is seen once per refresh at most: the metrics of the SDK count all of them.`,
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
			v := &topView{server: a.flags.server(), board: newBoard(), pattern: strings.Join(args, ""), interval: interval}
			return a.with("top", func(client *redlatch.Client) error { return top(cmd.Context(), client, in, out, v) })
		},
	}
	c.Flags().DurationVar(&interval, "interval", time.Second, "how often to refresh")
	return c
}

func top(ctx context.Context, client *redlatch.Client, in, out *os.File, v *topView) error {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
	old, err := term.MakeRaw(int(in.Fd()))
	if err != nil {
		stop()
		return fmt.Errorf("the terminal: %w", err)
	}
	_, _ = io.WriteString(out, "\x1b[?1049h\x1b[?25l")
	keys, looks := make(chan string), make(chan *looked, 1)
	go readKeys(ctx, in, keys) // ends with its input: with the process
	var looking sync.WaitGroup
	defer func() {
		stop()
		looking.Wait()
		_, _ = io.WriteString(out, "\x1b[?25h\x1b[?1049l")
		_ = term.Restore(int(in.Fd()), old)
	}()
	next := time.NewTimer(0)
	defer next.Stop()
	resize := time.NewTicker(250 * time.Millisecond)
	defer resize.Stop()
	for shown := ""; ; {
		if v.width, v.height, err = term.GetSize(int(out.Fd())); err != nil {
			v.width, v.height = 80, 24
		}
		if text := v.render(); text != shown {
			_, _ = io.WriteString(out, text)
			shown = text
		}
		select {
		case <-ctx.Done():
			return nil
		case l := <-looks:
			v.see(l)
			next.Reset(max(v.interval-l.took, l.took)) // on a server with very many keys: no more than half of the time
		case k, ok := <-keys:
			if !ok || v.key(k) {
				return nil
			}
		case <-next.C:
			if open := v.open; v.paused {
				next.Reset(v.interval)
			} else {
				looking.Go(func() { looks <- lookAll(ctx, client, v.pattern, open) }) // the next one follows its answer
			}
		case <-resize.C:
		}
	}
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

// keyPattern is one key: the sequence of a terminal, or a character.
var keyPattern = regexp.MustCompile(`(?s)\x1b[\[O][^@-~]*[@-~]?|.`)

// splitKeys takes apart what a terminal sent at once.
func splitKeys(b []byte) []string {
	keys := keyPattern.FindAllString(string(b), -1)
	for i, k := range keys {
		keys[i] = cmp.Or(keyNames[k], k)
	}
	return keys
}
