package main

import (
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/quote"
)

// topView is the screen of top: what is shown, and how keys change it.
type topView struct {
	server   string
	board    *board
	pattern  string
	interval time.Duration

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
	opened  watched
	err     error
	last    time.Time
}

func newTopView(b *board, server, pattern string, interval time.Duration) *topView {
	return &topView{server: server, board: b, pattern: pattern, interval: interval, width: 80, height: 24}
}

// see takes in what the server said.
func (v *topView) see(l looked) {
	v.err, v.last = l.err, l.at
	if l.err != nil {
		return
	}
	v.board.see(l.list, l.at)
	if l.open != nil && l.open.Name == v.open {
		v.opened.see(*l.open)
	}
}

// key acts on a key; true: the end.
func (v *topView) key(k string) bool {
	if k == "quit" {
		return true
	}
	if v.typing {
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
		return false
	}
	if v.help {
		v.help = false
		return k == "q"
	}
	switch k {
	case "q":
		return true
	case "?", "h":
		v.help = true
	case "s":
		v.order = (v.order + 1) % orders
	case "S":
		v.order = (v.order + orders - 1) % orders
	case "1", "2", "3", "4", "5":
		v.order = int(k[0] - '1')
	case "r":
		v.reverse = !v.reverse
	case "/":
		v.typing = v.open == "" // one lock has nothing to filter
	case " ", "p":
		v.paused = !v.paused
	case "+":
		v.interval = min(v.interval+time.Second, time.Minute)
	case "-":
		v.interval = max(v.interval-time.Second, time.Second)
	case "esc", "back":
		if v.open == "" {
			v.filter = ""
		}
		v.open = ""
	case "enter", "o":
		v.openChosen()
	case "up", "k":
		v.move(-1)
	case "down", "j":
		v.move(1)
	case "pageup":
		v.move(-max(v.rows()-1, 1))
	case "pagedown":
		v.move(max(v.rows()-1, 1))
	}
	return false
}

func (v *topView) rows() int { return max(v.height-5, 1) }

func (v *topView) list() []*watched { return v.board.sorted(v.order, v.reverse, v.filter) }

// move moves the cursor.
func (v *topView) move(by int) {
	list := v.list()
	if len(list) == 0 {
		return
	}
	v.at = min(max(v.line(list)+by, 0), len(list)-1)
	v.chosen = list[v.at].Key
}

// line is where the chosen lock is now; a lock that is gone leaves the cursor where it was.
func (v *topView) line(list []*watched) int {
	for i, w := range list {
		if w.Key == v.chosen {
			v.at = i
		}
	}
	v.at = min(max(v.at, 0), max(len(list)-1, 0))
	return v.at
}

func (v *topView) openChosen() {
	list := v.list()
	if v.open != "" || len(list) == 0 {
		return
	}
	w := list[v.line(list)]
	v.open, v.chosen = w.Name, w.Key
	v.opened = *w
	v.opened.Turns = slices.Clone(w.Turns) // the board goes on with its own
}

var topHelp = []string{
	"up, down, j, k    choose a lock        enter, o     open it",
	"esc, backspace    back                 /            filter by a part of the name",
	"s, S              next, previous column to sort by",
	"1 2 3 4 5         waiters, turns/s, longest held, longest waiter, name",
	"r                 reverse the order    space, p     pause",
	"+, -              refresh less, more often",
	"q, Ctrl-C         quit",
	"",
	"HELD     since the holder asked for the lock: its wait is part of it",
	"WAIT     waiters in the queue; \"2 proc\": processes that listen for the unlock",
	"         (only they know how many waiters of a plain lock, or readers, they have)",
	"LONGEST  how long the first of the queue has waited",
	"TURNS/S  changes of holders; ≥: short turns are missed, --listen counts them",
}

// render is the whole screen.
func (v *topView) render() string {
	s := screen{width: v.width, colour: true}
	var lines []string
	state := fmt.Sprintf("%d locks, every %s, by %s", len(v.board.locks), v.interval, orderNames[v.order])
	if v.reverse {
		state += " (reversed)"
	}
	if v.paused {
		state += ", paused"
	}
	title := "redlatch top  " + quote.Text(v.server)
	if v.pattern != "" {
		title += "  " + quote.Text(v.pattern)
	}
	if !v.last.IsZero() {
		title += "  " + v.last.Format("15:04:05")
	}
	lines = append(lines, s.paint(bold, cut(title, v.width)), cut(state, v.width))
	switch {
	case v.err != nil && isGone(v.err):
		lines = append(lines, s.paint(red, cut("the server can't be reached: "+message(v.err), v.width)))
	case v.err != nil:
		lines = append(lines, s.paint(red, cut(message(v.err), v.width)))
	case v.typing:
		lines = append(lines, cut("filter: "+quote.Text(v.filter)+"_", v.width))
	case v.filter != "" && v.open == "" && !v.help:
		lines = append(lines, cut("filter: "+quote.Text(v.filter)+"   (esc clears it)", v.width))
	default:
		lines = append(lines, "")
	}
	switch {
	case v.help:
		lines = append(lines, topHelp...)
	case v.open != "":
		lines = append(lines, v.renderOpen(s)...)
	default:
		lines = append(lines, v.renderList(s)...)
	}
	for i, l := range lines {
		if !strings.Contains(l, "\x1b") {
			lines[i] = cut(l, v.width)
		}
	}
	footer := "enter open  s sort  / filter  p pause  ? keys and columns  q quit"
	switch {
	case v.help:
		footer = "any key back  q quit"
	case v.open != "":
		footer = "esc back  p pause  ? keys and columns  q quit"
	}
	for len(lines) < v.height-1 {
		lines = append(lines, "")
	}
	if over := len(lines) - (v.height - 1); over > 0 {
		lines = lines[:max(v.height-1, 0)]
	}
	lines = append(lines, s.paint(dim, cut(footer, v.width)))
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
	cells := make([][]cell, 0, rows)
	for i := v.offset; i < min(v.offset+rows, len(list)); i++ {
		cells = append(cells, v.row(list[i]))
	}
	var b strings.Builder
	s.table(&b, []string{"NAME", "KIND", "HOLDER", "HELD", "LEASE", "WAIT", "LONGEST", "TURNS/S"},
		[]bool{true, false, true, false, false, false, false, false}, cells)
	lines := strings.Split(strings.TrimRight(b.String(), "\n"), "\n")
	marked := at - v.offset + 1
	lines[marked] = "\x1b[7m" + strings.ReplaceAll(lines[marked], "\x1b[0m", "\x1b[0;7m") + "\x1b[0m"
	return lines
}

// row is a lock on one line. The mode of a read-write lock stands in place of its kind.
func (v *topView) row(w *watched) []cell {
	row := lockRow(w.Inspection)
	name, kind, holder, lease := row[0], row[1], row[3], row[5]
	switch {
	case w.Kind == redlatch.KindUnknown:
		holder.style = red
	case !w.Held():
		holder = cell{"free", dim}
	case w.Kind == redlatch.KindReadWrite:
		kind.text = string(w.Mode)
	}
	held := "-"
	if d := w.heldFor(); d > 0 {
		held = span(d)
	}
	longest := "-"
	if d := w.waitsFor(); d > 0 {
		longest = span(d)
	}
	wait := cell{"-", ""}
	switch {
	case w.QueueLength > 0:
		wait = cell{fmt.Sprint(w.QueueLength), yellow}
	case w.Processes > 0:
		wait = cell{fmt.Sprintf("%d proc", w.Processes), yellow}
	}
	turns := fmt.Sprintf("%.1f", w.rate)
	if v.board.turns == nil {
		turns = "≥" + turns
	}
	return []cell{name, kind, holder, {held, ""}, lease, wait, {longest, ""}, {turns, ""}}
}

// renderOpen shows one lock in depth.
func (v *topView) renderOpen(s screen) []string {
	var b strings.Builder
	s.lock(&app{std: streams{out: &b}}, v.opened.Inspection)
	lines := strings.Split(strings.TrimRight(b.String(), "\n"), "\n")
	if len(v.opened.Turns) > 0 {
		lines = append(lines, "", s.paint(bold, "Seen holding it, the last first"))
		for i := len(v.opened.Turns) - 1; i >= 0; i-- {
			lines = append(lines, v.turn(s, v.opened.Turns[i]))
		}
	}
	return lines
}

// turn is a holder of the past, or the present one, on one line.
func (v *topView) turn(s screen, t turn) string {
	const clock = "15:04:05"
	end, style := "now           ", ""
	switch {
	case t.Ended && t.How == "unseen":
		end = "seen  " + t.To.Local().Format(clock)
	case t.Ended && t.Looks == 1 && t.How == "":
		end = "seen once     "
	case t.Ended:
		end = "until " + t.To.Local().Format(clock)
	}
	text := fmt.Sprintf("%s  %s  %s", t.From.Local().Format(clock), end, t.Who)
	if t.How == "expired" {
		text, style = text+", lost: its lease ran out", red
	}
	return s.paint(style, cut(text, v.width))
}
