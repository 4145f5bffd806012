package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
	"unicode/utf8"

	"github.com/redis/rueidis"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/quote"
)

func (a *app) topCommand() *cobra.Command {
	var interval time.Duration
	var listen bool
	c := &cobra.Command{
		Use:   "top [PATTERN]",
		Short: "Show the hottest locks, live",
		Long: `top shows the locks whose names match PATTERN (default: all) and refreshes every --interval, at least a second. It
needs a terminal, and works over ssh.

` + topHelp + `

--listen costs each unlock as much as one more waiting process. The metrics of the SDK count all turns.`,
		Example: `  redlatch top 'orders:*' --interval 2s`,
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			in, out := file(a.std.in), file(a.std.out)
			if in == nil || out == nil || !term.IsTerminal(int(in.Fd())) || !term.IsTerminal(int(out.Fd())) {
				return usageError("top needs a terminal; programs use redlatch ls -o json")
			}
			if interval < time.Second {
				return usageError("interval: at least 1s")
			}
			opt, _ := a.flags.only() // open says what is wrong
			v := &topView{server: deployment(opt), board: newBoard(), pattern: strings.Join(args, ""), interval: interval, paced: !a.full}
			if listen {
				cn, err := a.connect("top")
				if err != nil {
					return err
				}
				defer cn.Close()
				client := cn.Client()
				if client.Mode() == rueidis.ClientModeCluster {
					return usageError("listen: on a cluster messages go over sharded channels, which have no patterns")
				}
				v.listener = &listener{counts: map[string]int{}}
				go v.listener.listen(cmd.Context(), client, a.flags.clean) // ends with client
			}
			return a.with("top", func(client *redlatch.Client) error { return top(cmd.Context(), client, in, out, v) })
		},
	}
	c.Flags().DurationVar(&interval, "interval", time.Second, "how often to refresh")
	a.fullSpeed(c)
	c.Flags().BoolVar(&listen, "listen", false, "count turns by the messages of unlocks, too")
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
			next.Reset(max(v.interval-l.took, l.pause))
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
	for n, err := 0, error(nil); err == nil; {
		n, err = in.Read(buf)
		for _, k := range keyPattern.FindAllString(string(buf[:n]), -1) {
			select {
			case keys <- cmp.Or(keyNames[k], k):
			case <-ctx.Done():
				return
			}
		}
	}
}

// keyPattern is one key: the sequence of a terminal, or a character.
var keyPattern = regexp.MustCompile(`(?s)\x1b[\[O][^@-~]*[@-~]?|.`)

var keyNames = map[string]string{
	"\x1b[A": "up", "\x1b[B": "down", "\x1bOA": "up", "\x1bOB": "down", "\x1b[5~": "pageup", "\x1b[6~": "pagedown",
	"\x1b": "esc", "\r": "enter", "\n": "enter", "\x7f": "back", "\b": "back", "\x03": "quit", "\x04": "quit",
}

// topView is the screen of top: what is shown, and how keys change it.
type topView struct {
	server   string
	board    *board
	pattern  string
	interval time.Duration
	listener *listener // nil: it does not listen
	paced    bool      // looks have a budget

	width, height int

	order   int
	reverse bool
	filter  string
	typing  bool // a filter is being typed
	paused  bool
	help    bool
	chosen  string // key of the lock under the cursor
	at      int    // its line
	offset  int    // first line shown
	open    string // name of the lock that is open
	opened  detail
	err     error
	deaf    string // why it hears no unlock
	last    time.Time
}

// see takes in what the server said.
func (v *topView) see(l *looked) {
	v.err, v.last = l.err, l.began
	if l.err != nil {
		return
	}
	if v.listener != nil {
		v.deaf = v.listener.take(l)
	}
	v.board.see(l)
	if in, ok := l.open[v.open]; ok {
		v.opened = v.board.detail(in)
	}
}

// typed changes the filter.
func (v *topView) typed(k string) {
	switch {
	case k == "enter":
		v.typing = false
	case k == "esc":
		v.typing, v.filter = false, ""
	case k == "back":
		_, n := utf8.DecodeLastRuneInString(v.filter)
		v.filter = v.filter[:len(v.filter)-n]
	case utf8.RuneCountInString(k) == 1 && k >= " ":
		v.filter += k
	}
}

// aliases are further names of keys.
var aliases = map[string]string{"h": "?", " ": "p", "back": "esc", "o": "enter", "k": "up", "j": "down"}

// actions are what keys do.
var actions = map[string]func(v *topView){
	"?":        func(v *topView) { v.help = true },
	"s":        func(v *topView) { v.order = (v.order + 1) % len(orders) },
	"S":        func(v *topView) { v.order = (v.order + len(orders) - 1) % len(orders) },
	"r":        func(v *topView) { v.reverse = !v.reverse },
	"/":        func(v *topView) { v.typing = v.open == "" }, // one lock has nothing to filter
	"p":        func(v *topView) { v.paused = !v.paused },
	"+":        func(v *topView) { v.interval = min(v.interval+time.Second, time.Minute) },
	"-":        func(v *topView) { v.interval = max(v.interval-time.Second, time.Second) },
	"up":       func(v *topView) { v.move(-1) },
	"down":     func(v *topView) { v.move(1) },
	"pageup":   func(v *topView) { v.move(-max(v.rows()-1, 1)) },
	"pagedown": func(v *topView) { v.move(max(v.rows()-1, 1)) },
	"enter":    (*topView).enter,
	"esc":      (*topView).back,
}

// key acts on a key; true: the end.
func (v *topView) key(k string) bool {
	switch action := actions[cmp.Or(aliases[k], k)]; {
	case k == "quit", k == "q" && !v.typing:
		return true
	case v.typing:
		v.typed(k)
	case v.help:
		v.help = false
	case len(k) == 1 && k >= "1" && k <= "5":
		v.order = int(k[0] - '1')
	case action != nil:
		action(v)
	}
	return false
}

// enter opens the chosen lock.
func (v *topView) enter() {
	if list := v.list(); v.open == "" && len(list) > 0 {
		w := list[v.line(list)]
		v.open, v.chosen, v.opened = w.Name, w.Key, v.board.detail(w.Inspection)
	}
}

// back leaves the open lock, or the filter.
func (v *topView) back() {
	if v.open == "" {
		v.filter = ""
	}
	v.open = ""
}

func (v *topView) rows() int { return max(v.height-5, 1) }

func (v *topView) list() []*watched { return v.board.sorted(v.order, v.reverse, v.filter) }

// move moves the cursor.
func (v *topView) move(by int) {
	if list := v.list(); len(list) > 0 {
		v.at = min(max(v.line(list)+by, 0), len(list)-1)
		v.chosen = list[v.at].Key
	}
}

// line is where the chosen lock is now; a lock that is gone leaves the cursor where it was.
func (v *topView) line(list []*watched) int {
	if i := slices.IndexFunc(list, func(w *watched) bool { return w.Key == v.chosen }); i >= 0 {
		v.at = i
	}
	v.at = min(max(v.at, 0), max(len(list)-1, 0))
	return v.at
}

const topHelp = `up, down, j, k    choose a lock        enter, o     open it
esc, backspace    back                 /            filter by a part of the name
s, S              next, previous column to sort by
1 2 3 4 5         waiters, turns/s, longest held, longest waiter, name
r                 reverse the order    space, p     pause
+, -              refresh less, more often
?, h              show this            q, Ctrl-C    quit

HELD     since the holder got the lock
WAITED   how long it had waited before
WAIT     waiters in the queue; "2 proc": processes that listen for the unlock
         (only they know how many waiters of a reentrant lock, or readers, they have)
LONGEST  how long the first of them has waited
TURNS/S  changes of holders; ≥: short turns are missed, --listen hears most of them;
         ?: it may not listen`

// render is the whole screen.
func (v *topView) render() string {
	s := screen{width: v.width, colour: true}
	state := fmt.Sprintf("%d locks, every %s, by %s", len(v.board.locks), v.interval, orders[v.order].name)
	if v.reverse {
		state += " (reversed)"
	}
	if v.paused {
		state += ", paused"
	}
	if v.paced {
		state += ", " + budget
	}
	if v.board.took > time.Second {
		state += ", a look takes " + span(v.board.took)
	}
	title := "redlatch top  " + quote.Text(v.server)
	if v.pattern != "" {
		title += "  " + quote.Text(v.pattern)
	}
	if !v.last.IsZero() {
		title += "  " + v.last.Format(time.TimeOnly)
	}
	said := ""
	switch {
	case v.err != nil:
		said = message(v.err)
		if isGone(v.err) {
			said = "the server can't be reached: " + said
		}
		said = s.paint(red, cut(said, v.width))
	case v.deaf != "":
		said = s.paint(red, cut("it does not listen: "+v.deaf, v.width))
	case v.typing:
		said = "filter: " + quote.Text(v.filter) + "_"
	case v.filter != "" && v.open == "" && !v.help:
		said = "filter: " + quote.Text(v.filter) + "   (esc clears it)"
	}
	lines, footer := []string{s.paint(bold, cut(title, v.width)), state, said}, ""
	switch {
	case v.help:
		lines, footer = append(lines, strings.Split(topHelp, "\n")...), "any key back  q quit"
	case v.open != "":
		lines, footer = append(lines, v.renderOpen(s)...), "esc back  p pause  ? keys and columns  q quit"
	default:
		lines, footer = append(lines, v.renderList(s)...), "enter open  s sort  / filter  p pause  ? keys and columns  q quit"
	}
	for i, l := range lines {
		if !strings.Contains(l, "\x1b") {
			lines[i] = cut(l, v.width)
		}
	}
	room := max(v.height-1, 0)
	lines = append(lines, make([]string, max(room-len(lines), 0))...)
	lines = append(lines[:room], s.paint(dim, cut(footer, v.width)))
	return "\x1b[H" + strings.Join(lines, "\x1b[K\r\n") + "\x1b[K\x1b[J"
}

func (v *topView) renderList(s screen) []string {
	list := v.list()
	switch {
	case len(list) > 0:
	case v.last.IsZero():
		return []string{"looking …"}
	case v.filter != "" && len(v.board.locks) > 0:
		return []string{"no lock has this in its name"}
	case v.pattern != "":
		return []string{"no locks match " + quote.Text(v.pattern)}
	default:
		return []string{"no locks"}
	}
	at, rows := v.line(list), v.rows()
	v.offset = min(max(v.offset, at-rows+1), at)
	v.offset = max(min(v.offset, len(list)-rows), 0)
	var cells [][]cell
	for _, w := range list[v.offset:min(v.offset+rows, len(list))] {
		cells = append(cells, v.row(w))
	}
	lines, _ := s.lines("NAME* KIND HOLDER* HELD WAITED LEASE WAIT LONGEST TURNS/S", cells)
	marked := at - v.offset + 1
	lines[marked] = "\x1b[7m" + strings.ReplaceAll(lines[marked], "\x1b[0m", "\x1b[0;7m") + "\x1b[0m"
	return lines
}

// row is a lock in the list. The mode of a read-write lock stands in place of its kind.
func (v *topView) row(w *watched) []cell {
	kind, wait, rate := string(w.Kind), cell{"-", ""}, fmt.Sprintf("≥%.1f", w.Rate)
	if v.deaf != "" { // it was asked to listen
		rate = "?"
	}
	if w.Kind == redlatch.KindReadWrite && w.Held() {
		kind = string(w.Mode)
	}
	switch {
	case w.QueueLength > 0:
		wait = cell{strconv.Itoa(w.QueueLength), yellow}
	case w.Processes > 0:
		wait = cell{strconv.Itoa(w.Processes) + " proc", yellow}
	}
	return slices.Concat([]cell{{w.Name, cyan}, {kind, ""}}, w.holding(), []cell{wait, {someSeconds(w.WaitsFor), ""}, {rate, ""}})
}

// renderOpen shows one lock in depth.
func (v *topView) renderOpen(s screen) []string {
	var b strings.Builder
	s.lock(&b, v.opened.Inspection)
	lines := strings.Split(strings.TrimRight(b.String(), "\n"), "\n")
	if len(v.opened.Turns) > 0 {
		lines = append(lines, "", s.paint(bold, "Seen holding it, the last first"))
	}
	for _, t := range slices.Backward(v.opened.Turns) {
		lines = append(lines, v.turn(s, t))
	}
	return lines
}

// turn is a holder of the past, or the present one, on one line.
func (v *topView) turn(s screen, t turn) string {
	end, style := "now           ", ""
	switch {
	case t.Ended && t.How == "unseen":
		end = "seen  " + t.To.Local().Format(time.TimeOnly)
	case t.Ended && t.Looks == 1 && t.How == "":
		end = "seen once     "
	case t.Ended:
		end = "until " + t.To.Local().Format(time.TimeOnly)
	}
	text := fmt.Sprintf("%s  %s  %s", t.From.Local().Format(time.TimeOnly), end, t.Who)
	if t.How == "expired" {
		text, style = text+", lost: its lease ran out", red
	}
	return s.paint(style, cut(text, v.width))
}
