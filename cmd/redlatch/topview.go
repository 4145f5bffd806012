package main

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"
)

// topView is the screen of top: what is shown, and how keys change it.
type topView struct {
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

func newTopView(b *board, pattern string, interval time.Duration) *topView {
	return &topView{board: b, pattern: pattern, interval: interval, width: 80, height: 24}
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
		v.typing = true
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
}

var topHelp = []string{
	"up, down, j, k    choose a lock        enter, o     open it",
	"esc, backspace    back                 /            filter by a part of the name",
	"s, S              next, previous column to sort by",
	"1 2 3 4 5         waiters, turns/s, longest held, longest waiter, name",
	"r                 reverse the order    space, p     pause",
	"+, -              refresh less, more often",
	"q, Ctrl-C         quit",
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
	title := "redlatch top"
	if v.pattern != "" {
		title += " " + printable(v.pattern)
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
		lines = append(lines, cut("filter: "+printable(v.filter)+"_", v.width))
	case v.filter != "":
		lines = append(lines, cut("filter: "+printable(v.filter)+"   (esc clears it)", v.width))
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
	footer := "enter open  s sort  / filter  p pause  ? keys  q end"
	if v.open != "" {
		footer = "esc back  p pause  ? keys  q end"
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
	if len(list) == 0 {
		return []string{"no locks"}
	}
	at, rows := v.line(list), v.rows()
	v.offset = min(max(v.offset, at-rows+1), at)
	v.offset = max(min(v.offset, len(list)-rows), 0)
	cells := make([][]cell, 0, rows)
	for i := v.offset; i < min(v.offset+rows, len(list)); i++ {
		cells = append(cells, topRow(list[i]))
	}
	var b strings.Builder
	s.table(&b, []string{"NAME", "KIND", "MODE", "HOLDER", "HELD", "LEASE", "WAIT", "LONGEST", "TURNS/S"},
		[]bool{true, false, false, true, false, false, false, false, false}, cells)
	lines := strings.Split(strings.TrimRight(b.String(), "\n"), "\n")
	marked := at - v.offset + 1
	lines[marked] = "\x1b[7m" + strings.ReplaceAll(lines[marked], "\x1b[0m", "\x1b[0;7m") + "\x1b[0m"
	return lines
}

func topRow(w *watched) []cell {
	row := lockRow(w.Inspection)
	held := "-"
	if d := w.heldFor(); d > 0 {
		held = span(d)
	}
	longest := "-"
	if d := w.waitsFor(); d > 0 {
		longest = span(d)
	}
	style := ""
	if w.waiters() > 0 {
		style = yellow
	}
	return []cell{row[0], row[1], row[2], row[3], {held, ""}, row[5], {fmt.Sprint(w.waiters()), style}, {longest, ""}, {fmt.Sprintf("%.1f", w.rate), ""}}
}

// renderOpen shows one lock in depth.
func (v *topView) renderOpen(s screen) []string {
	var b strings.Builder
	s.lock(&app{std: streams{out: &b}}, v.opened.Inspection)
	lines := strings.Split(strings.TrimRight(b.String(), "\n"), "\n")
	if len(v.opened.Turns) > 0 {
		lines = append(lines, "", s.paint(bold, "Seen holding it, the last first"))
		for i := len(v.opened.Turns) - 1; i >= 0; i-- {
			t := v.opened.Turns[i]
			end := "until " + t.To.Local().Format("15:04:05")
			if !t.Ended {
				end = "now"
			}
			lines = append(lines, cut(fmt.Sprintf("%s  %s  %s", t.From.Local().Format("15:04:05"), end, t.Who), v.width))
		}
	}
	return lines
}
