//go:build unix

package main

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/creack/pty"

	"github.com/redlatch/redlatch"
	scan "github.com/redlatch/redlatch/internal/inspect"
	"github.com/redlatch/redlatch/internal/testbed"
)

// terminal is the program on a pseudo terminal.
type terminal struct {
	*command
	pty  *os.File
	read chan struct{}
}

func onTerminal(t *testing.T, s *testbed.Server, width, height uint16, args ...string) *terminal {
	t.Helper()
	cmd := prepare(s, args...)
	cmd.Env = append(cmd.Env, "TERM=xterm-256color")
	f, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: height, Cols: width})
	if err != nil {
		t.Fatal(err)
	}
	c := &terminal{&command{t: t, cmd: cmd, ended: make(chan struct{})}, f, make(chan struct{})}
	go func() { // ends with the terminal
		defer close(c.read)
		buf := make([]byte, 65536)
		for {
			n, err := f.Read(buf)
			_, _ = c.Write(buf[:n])
			if err != nil {
				return
			}
		}
	}()
	go func() { // ends with the process
		_ = cmd.Wait()
		close(c.ended)
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-c.ended
		_ = f.Close()
		<-c.read
	})
	return c
}

var escapes = regexp.MustCompile("\x1b\\[[0-9;?]*[A-Za-z]")

// screen is the last whole frame, as people see it.
func (c *terminal) screen() string {
	frames := strings.Split(c.text(), "\x1b[H")
	for i := len(frames) - 1; i > 0; i-- {
		if strings.HasSuffix(frames[i], "\x1b[J") {
			return escapes.ReplaceAllString(strings.ReplaceAll(frames[i], "\r", ""), "")
		}
	}
	return ""
}

// shows waits until the screen has all parts, and no line is wider than the terminal.
func (c *terminal) shows(width int, parts ...string) string {
	c.t.Helper()
	var last string
	until(c.t, fmt.Sprintf("the screen shows %q", parts), func() bool {
		last = c.screen()
		for _, p := range parts {
			if !strings.Contains(last, p) {
				return false
			}
		}
		return last != ""
	}, func() string { return last })
	for line := range strings.Lines(last) {
		if n := len([]rune(strings.TrimRight(line, "\n"))); n > width {
			c.t.Errorf("a line has %d characters: %q", n, line)
		}
	}
	return last
}

func (c *terminal) press(keys string) {
	c.t.Helper()
	if _, err := c.pty.WriteString(keys); err != nil {
		c.t.Fatal(err)
	}
}

// lineOf is the number of the line that begins with a text.
func lineOf(screen, text string) int {
	for i, line := range strings.Split(screen, "\n") {
		if strings.HasPrefix(line, text) {
			return i
		}
	}
	return -1
}

func TestTop(t *testing.T) {
	s := server(t)
	c, w := client(t, s, named("shop/1")), client(t, s, named("shop/2"))
	a, b := hold(t, c.RLock("aaa")), hold(t, c.FairLock("fff"))
	var waits []chan redlatch.Hold
	for range 3 {
		got := make(chan redlatch.Hold, 1)
		waits = append(waits, got)
		go func() { // ends with the lock
			h, err := w.FairLock("fff").Lock(t.Context())
			if err != nil {
				t.Error(err)
			}
			got <- h
		}()
	}
	untilState(t, c, "fff", func(in redlatch.Inspection) bool { return in.QueueLength == 3 })

	top := onTerminal(t, s, 100, 24, "top")
	screen := top.shows(100, "2 locks, every 1s, by waiters", "NAME", "TURNS/S", "aaa", "fff", "shop/1", "q quit", s.Addr(), "≥")
	if lineOf(screen, "fff") > lineOf(screen, "aaa") {
		t.Errorf("the one with waiters is not the first:\n%s", screen)
	}
	top.press("5")
	screen = top.shows(100, "by name")
	if lineOf(screen, "fff") < lineOf(screen, "aaa") {
		t.Errorf("not by name:\n%s", screen)
	}
	top.press("r")
	top.shows(100, "by name (reversed)")
	top.press("/ff")
	if screen = top.shows(100, "filter: ff_"); lineOf(screen, "aaa") >= 0 {
		t.Errorf("not filtered:\n%s", screen)
	}
	top.press("\r\r") // done with the filter; open
	top.shows(100, "fff  held", "Holders (1)", "Queue (3)", "shop/2", "Seen holding it")

	// The open lock is handed over and the screen follows.
	unlock(t, b)
	b = <-waits0(t, waits)
	top.shows(100, "Queue (2)", "now             shop/2 g", "  shop/1 g")
	if err := pty.Setsize(top.pty, &pty.Winsize{Rows: 12, Cols: 60}); err != nil {
		t.Fatal(err)
	}
	until(t, "the screen is 60 wide", func() bool {
		for line := range strings.Lines(top.screen()) {
			if len([]rune(strings.TrimRight(line, "\n"))) > 60 {
				return false
			}
		}
		return true
	}, top.screen)
	top.press("\x1b")
	top.shows(60, "NAME")
	top.press("?")
	top.shows(60, "refresh less, more often")
	top.press("xp")
	top.shows(60, "paused")
	top.press("q")
	if st := top.status(); st != 0 {
		t.Errorf("status %d", st)
	}
	until(t, "the terminal is as before", func() bool {
		return strings.HasSuffix(strings.TrimSpace(top.text()), "\x1b[?25h\x1b[?1049l")
	}, func() string { return fmt.Sprintf("%q", top.text()[max(len(top.text())-60, 0):]) })
	unlock(t, a)
	unlock(t, b)
	for range 2 {
		unlock(t, <-waits0(t, waits))
	}
}

// waits0 is a channel that gets the next of the holds.
func waits0(t *testing.T, waits []chan redlatch.Hold) chan redlatch.Hold {
	t.Helper()
	out := make(chan redlatch.Hold, 1)
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(time.Millisecond) {
		for _, w := range waits {
			select {
			case h := <-w:
				out <- h
				return out
			default:
			}
		}
	}
	t.Fatal("nobody got the lock")
	return nil
}

// A server that is gone is said, and its return is seen; Ctrl-C ends it all the same.
func TestTopServerGone(t *testing.T) {
	s := server(t)
	top := onTerminal(t, s, 80, 24, "top", "--timeout", "1s")
	top.shows(80, "no locks")
	s.Kill(t)
	top.shows(80, "can't be reached")
	s.Restart(t, testbed.Empty)
	c := client(t, s)
	h := hold(t, c.RLock("back"))
	top.shows(80, "back")
	unlock(t, h)
	top.press("\x03")
	if st := top.status(); st != 0 {
		t.Errorf("status %d", st)
	}
}

// With --listen turns are counted however short they are.
func TestTopListens(t *testing.T) {
	s := server(t)
	c := client(t, s)
	listens := func() int64 { n := s.Do(t, "PUBSUB", "NUMPAT"); v, _ := n.AsInt64(); return v }
	top := onTerminal(t, s, 80, 24, "top", "--listen")
	until(t, "it listens", func() bool { return listens() == 3 }, func() string { return fmt.Sprint(listens()) })
	for _, name := range []string{"plain", "{tag}ged"} {
		h := hold(t, c.RLock(name))
		top.shows(80, name)
		for range 200 {
			unlock(t, h)
			h = hold(t, c.RLock(name))
		}
		rate := regexp.MustCompile(regexp.QuoteMeta(name) + ` .*≥([2-9]|1\d|20)\.`) // looks alone see one turn a second
		until(t, "all are counted", func() bool { return rate.MatchString(top.screen()) }, top.screen)
		unlock(t, h)
	}
	top.press("q")
	for channel, want := range map[string]string{
		"redisson_lock__channel:{a}": "a", "redisson_lock__channel:{a}b": "{a}b", "redisson_rwlock:{a:b}": "a:b", "redisson_rwlock:{a}b}": "a}b",
		"redlatch_grant:{a}:343714c0-1111-4222-8333-444455556666": "a", "redlatch_grant:{t}x:343714c0-1111-4222-8333-444455556666": "{t}x",
		"redisson_lock__channel:{a}:343714c0-1111-4222-8333-444455556666:57": "a",
	} {
		if m := channelOf.FindStringSubmatch(channel); m == nil || m[1]+m[2] != want {
			t.Errorf("%s is of %q", channel, m)
		}
	}
}

// What is needed for the orders is computed from what was seen.
func TestBoard(t *testing.T) {
	b := newBoard()
	now := time.UnixMilli(1_800_000_000_000)
	in := func(name, owner string, since time.Duration, queue int) redlatch.Inspection {
		i := redlatch.Inspection{Name: name, Key: name, At: now, Mode: redlatch.ModeLock, QueueLength: queue, HolderCount: 1,
			Holders: []redlatch.Holder{{Owner: owner, Mode: redlatch.ModeLock, HeldSince: now.Add(-since)}}}
		for range queue {
			i.Queue = append(i.Queue, redlatch.Waiter{Owner: "w", AskedSince: now.Add(-since / 2)})
		}
		return i
	}
	for n := range 20 {
		b.see(&looked{began: now, locks: []redlatch.Inspection{in("fast", fmt.Sprint(n), time.Second, 1), in("long", "x", time.Hour, 0), in("queue", "y", time.Minute, 7)}})
		now = now.Add(time.Second)
	}
	for order, want := range []string{"queue", "fast", "long", "queue", "fast"} {
		if got := b.sorted(order, false, "")[0].Name; got != want {
			t.Errorf("%s: %s is first", orders[order].name, got)
		}
	}
	if w := b.locks["fast"]; w.Rate < 0.7 || w.Rate > 1 || len(w.turns) != 20 || !w.turns[0].Ended || w.turns[19].Ended {
		t.Errorf("%.2f turns/s, %d turns", w.Rate, len(w.turns))
	}
	if w := b.locks["fast"]; w.turns[0].How != "" {
		t.Errorf("a turn that was seen to end: %+v", w.turns[0])
	}
	b.see(&looked{began: now})
	if w := b.locks["long"]; w == nil || w.Held() || !w.turns[0].Ended {
		t.Errorf("%+v", w)
	}
	b.see(&looked{began: now.Add(2 * time.Minute)})
	if len(b.locks) != 0 {
		t.Errorf("%d locks are remembered", len(b.locks))
	}
}

// However many locks come and go, and change hands, a board keeps a bounded number of them and of their turns.
func TestBoardIsBounded(t *testing.T) {
	b, now := newBoard(), time.UnixMilli(1_800_000_000_000)
	look := func(lock, owner int) {
		l := &looked{began: now}
		for i := range maxListed {
			name := fmt.Sprint(lock, " ", i)
			l.locks = append(l.locks, redlatch.Inspection{Name: name, Key: name, At: now, Mode: redlatch.ModeLock, HolderCount: 1,
				Holders: []redlatch.Holder{{Owner: fmt.Sprint(owner), Mode: redlatch.ModeLock}}})
		}
		b.see(l)
		now = now.Add(time.Second)
	}
	for n := range 30 {
		look(min(n, 10), n)
	}
	turns := 0
	for _, w := range b.locks {
		turns += len(w.turns)
	}
	if len(b.locks) > 3*maxListed || turns > maxAllTurns+len(b.locks) {
		t.Errorf("%d locks with %d turns", len(b.locks), turns)
	}
}

// A turn that ended while nobody looked is not said to have lasted that long, nor to have lost its lease.
func TestTurnsThatNobodySaw(t *testing.T) {
	at := time.UnixMilli(1_800_000_000_000)
	look := func(w *watched, after time.Duration, owner string, left time.Duration) {
		at = at.Add(after)
		in := redlatch.Inspection{Name: "x", Key: "x", At: at}
		if owner != "" {
			in.Holders = []redlatch.Holder{{Owner: owner, Mode: redlatch.ModeLock, Remaining: left}}
		}
		w.see(in)
	}
	var w watched
	look(&w, 0, "a", 2*time.Second)
	look(&w, time.Minute, "b", 2*time.Second) // nobody looked for a minute
	look(&w, time.Second, "b", time.Second)
	look(&w, time.Second, "c", 2*time.Second) // b did not renew
	look(&w, time.Second, "", 0)
	want := []string{"unseen", "expired", ""}
	for i, turn := range w.turns {
		if looks := []int{1, 2, 1}; turn.How != want[i] || turn.Looks != looks[i] || turn.To.Sub(turn.From) > 2*time.Second {
			t.Errorf("%s: %q for %s", turn.Owner, turn.How, turn.To.Sub(turn.From))
		}
	}
}

// A program gets no screen.
func TestTopNeedsATerminal(t *testing.T) {
	if st, _, errs := callWith(t, "", nil, "top"); st != exitUsage || !strings.Contains(errs, "terminal") {
		t.Errorf("%d %s", st, errs)
	}
}

// A scan takes its share of the server's time, says so, and --full-speed lifts that.
func TestBudget(t *testing.T) {
	s := server(t)
	defer s.Do(t, "FLUSHALL")
	fill := func(locks string) {
		s.Do(t, "FLUSHALL")
		s.Do(t, "EVAL", `for i = 1, ARGV[2] do
			redis.call('HSET', 'orders:' .. i, ARGV[1] .. i, 1)
			redis.call('PEXPIRE', 'orders:' .. i, 300000)
		end`, "0", "8743c9c0-0795-4907-87fd-6c719a6b4586:", locks)
	}
	used := func() (used time.Duration) {
		for name, text := range s.Info(t, "cpu") {
			if seconds, err := strconv.ParseFloat(text, 64); err == nil && strings.HasSuffix(name, "_main_thread") {
				used += time.Duration(seconds * float64(time.Second))
			}
		}
		return used
	}
	if used() == 0 {
		t.Skip("this server does not tell what its thread took")
	}
	c := client(t, s)
	took := func(p *scan.Pace, limit time.Duration) (locks int, of time.Duration) {
		ctx, cancel := context.WithTimeout(scan.WithPace(t.Context(), p), limit)
		defer cancel()
		before := used()
		for _, err := range c.Locks(ctx, "") {
			if err != nil {
				break // its time is over
			}
			locks++
		}
		return locks, used() - before
	}
	fill("20000")
	all, full := took(nil, patience)
	few, paced := took(scan.NewPace(0.02, 0), 4*time.Second)
	t.Logf("%v for %d locks at full speed, %v for %d in four seconds", full, all, paced, few)
	if share := 4 * time.Second / 50; paced > 3*share || full < 4*share || few >= all {
		t.Errorf("%v for %d locks, and %v for %d at full speed", paced, few, full, all)
	}

	fill("4000")
	top := onTerminal(t, s, 120, 24, "top")
	top.shows(120, budget, "a look takes ")
	top.press("q")
	top = onTerminal(t, s, 120, 24, "top", "--full-speed")
	if screen := top.shows(120, "000 locks, every 1s"); strings.Contains(screen, budget) {
		t.Errorf("at full speed:\n%s", screen)
	}
	top.press("q")
	if st, out, errs := call(t, s, "ls", "orders:1?", "--full-speed"); st != 0 || strings.Count(out, "\n") != 11 || errs != "" {
		t.Errorf("%d %s%s", st, out, errs)
	}
	ls := begin(t, s, "ls")
	ls.says("this takes " + budget + "; --full-speed lifts that")
	p := serving(t, s, "--full-speed")
	if text := p.event("locks", ""); strings.Contains(text, `"share":`) || !strings.Contains(text, `"took_seconds":`) {
		t.Errorf("%.200s", text)
	}
}
