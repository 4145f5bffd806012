//go:build unix

package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"regexp"
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
	testbed.Must(t, err)
	c := &terminal{&command{t: t, cmd: cmd, ended: make(chan struct{})}, f, make(chan struct{})}
	go func() { // ends with the terminal
		defer close(c.read)
		_, _ = io.Copy(c, f)
	}()
	t.Cleanup(func() {
		_ = f.Close()
		<-c.read
	})
	c.follow()
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

// fits reports whether no line of a screen is wider than the terminal.
func fits(screen string, width int) bool {
	for line := range strings.Lines(screen) {
		if len([]rune(strings.TrimRight(line, "\n"))) > width {
			return false
		}
	}
	return true
}

// shows waits until the screen has all parts, and no line is wider than the terminal.
func (c *terminal) shows(width int, parts ...string) string {
	c.t.Helper()
	var last string
	until(c.t, fmt.Sprintf("the screen shows %q", parts), func() bool {
		last = c.screen()
		return last != "" && hasAll(last, parts)
	}, func() string { return last })
	if !fits(last, width) {
		c.t.Errorf("a line is wider than %d characters:\n%s", width, last)
	}
	return last
}

func (c *terminal) press(keys string) {
	c.t.Helper()
	_, err := c.pty.WriteString(keys)
	testbed.Must(c.t, err)
}

// quit ends it as its user does.
func (c *terminal) quit() {
	c.t.Helper()
	c.press("q")
	c.ends(exitOK)
}

func TestTop(t *testing.T) {
	s, c := beside(t, named("shop/1"))
	w := client(t, s, named("shop/2"))
	a, b := hold(t, c.RLock("aaa")), hold(t, c.FairLock("fff"))
	var waits []<-chan redlatch.Hold
	for i := range 3 {
		waits = append(waits, waiting(t, t.Context(), w.FairLock("fff")))
		untilQueued(t, c, "fff", i+1)
	}

	call(t, s, "top").fails(exitUsage, "terminal") // a program gets no screen
	top := onTerminal(t, s, 100, 24, "top")
	screen := top.shows(100, "2 locks, every 1s, by waiters", "NAME", "TURNS/S", "aaa", "fff", "shop/1", "q quit", s.Addr(), "≥")
	if strings.Index(screen, "\nfff") > strings.Index(screen, "\naaa") {
		t.Errorf("the one with waiters is not the first:\n%s", screen)
	}
	top.press("5")
	if screen = top.shows(100, "by name"); strings.Index(screen, "\nfff") < strings.Index(screen, "\naaa") {
		t.Errorf("not by name:\n%s", screen)
	}
	top.press("r")
	top.shows(100, "by name (reversed)")
	top.press("/ff")
	lacks(t, top.shows(100, "filter: ff_"), "\naaa")
	top.press("\r\r") // done with the filter; open
	top.shows(100, "fff  held", "Holders (1)", "Queue (3)", "shop/2", "Seen holding it")

	// The open lock is handed over and the screen follows.
	unlock(t, b)
	b = <-waits[0]
	top.shows(100, "Queue (2)", "now             shop/2 g", "  shop/1 g")
	testbed.Must(t, pty.Setsize(top.pty, &pty.Winsize{Rows: 12, Cols: 60}))
	until(t, "the screen is 60 wide", func() bool { return fits(top.screen(), 60) }, top.screen)
	top.press("\x1b")
	top.shows(60, "NAME")
	top.press("?")
	top.shows(60, "refresh less, more often")
	top.press("xp")
	top.shows(60, "paused")
	top.quit()
	until(t, "the terminal is as before", func() bool {
		return strings.HasSuffix(strings.TrimSpace(top.text()), "\x1b[?25h\x1b[?1049l")
	}, func() string { return fmt.Sprintf("%q", top.text()[max(len(top.text())-60, 0):]) })
	unlock(t, a, b)
	unlock(t, <-waits[1])
	unlock(t, <-waits[2])
}

// A server that is gone is said, and its return is seen; Ctrl-C ends it all the same.
func TestTopServerGone(t *testing.T) {
	t.Parallel()
	s := server(t)
	top := onTerminal(t, s, 80, 24, "top", "--timeout", "1s")
	top.shows(80, "no locks")
	s.Kill(t)
	top.shows(80, "can't be reached")
	s.Restart(t, testbed.Empty)
	h := hold(t, client(t, s).RLock("back"))
	top.shows(80, "back")
	unlock(t, h)
	top.press("\x03")
	top.ends(exitOK)
}

// listens waits until the screen has subscribed to the channels of all locks.
func (c *terminal) listens(s *testbed.Server) {
	c.t.Helper()
	until(c.t, "it listens", func() bool { return s.Int(c.t, "PUBSUB", "NUMPAT") == 3 }, c.screen)
}

// With --listen turns are counted however short they are.
func TestTopListens(t *testing.T) {
	s, c := beside(t)
	top := onTerminal(t, s, 80, 24, "top", "--listen")
	top.listens(s)
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
	t.Parallel()
	b := newBoard()
	now := time.UnixMilli(1_800_000_000_000)
	in := func(name, owner string, since time.Duration, queue int) redlatch.Inspection {
		i := seenHeld(name, owner, now)
		i.QueueLength, i.Holders[0].HeldSince = queue, now.Add(-since)
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
		testbed.Equal(t, b.sorted(order, false, "")[0].Name, want, "the first by", orders[order].name)
	}
	if w := b.locks["fast"]; w.Rate < 0.7 || w.Rate > 1 || len(w.turns) != 20 || !w.turns[0].Ended || w.turns[0].How != "" || w.turns[19].Ended {
		t.Errorf("%.2f turns/s: %+v", w.Rate, w.turns)
	}
	b.see(&looked{began: now})
	if w := b.locks["long"]; w == nil || w.Held() || !w.turns[0].Ended {
		t.Errorf("%+v", w)
	}
	b.see(&looked{began: now.Add(2 * time.Minute)})
	testbed.Equal(t, len(b.locks), 0, "locks that are remembered")
}

// However many locks come and go, and change hands, a board keeps a bounded number of them and of their turns.
func TestBoardIsBounded(t *testing.T) {
	t.Parallel()
	b, now := newBoard(), time.UnixMilli(1_800_000_000_000)
	look := func(lock, owner int) {
		l := &looked{began: now}
		for i := range maxListed {
			l.locks = append(l.locks, seenHeld(fmt.Sprint(lock, " ", i), fmt.Sprint(owner), now))
		}
		b.see(l)
		now = now.Add(time.Second)
	}
	for n := range 12 {
		look(min(n, 4), n)
	}
	turns := 0
	for _, w := range b.locks {
		turns += len(w.turns)
	}
	testbed.AtMost(t, len(b.locks), 3*maxListed, "locks")
	testbed.AtMost(t, turns, maxAllTurns+len(b.locks), "turns")
}

// A turn that ended while nobody looked is not said to have lasted that long, nor to have lost its lease.
func TestTurnsThatNobodySaw(t *testing.T) {
	t.Parallel()
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

// A lease that runs out while a look goes on ends the turn of the lock that is open at the time of the look into it.
func TestTurnThatEndsDuringALook(t *testing.T) {
	t.Parallel()
	b, began := newBoard(), time.UnixMilli(1_800_000_000_000)
	for _, left := range []time.Duration{4 * time.Second, time.Second} {
		in := seenHeld("x", "a", began.Add(4*time.Second-left))
		in.Holders[0].Remaining = left
		b.see(&looked{began: in.At, locks: []redlatch.Inspection{in}})
	}
	gone := redlatch.Inspection{Name: "x", Key: "x", At: began.Add(4100 * time.Millisecond)}
	b.see(&looked{began: began.Add(3900 * time.Millisecond), open: map[string]redlatch.Inspection{"x": gone}})
	if turns := b.locks["x"].turns; len(turns) != 1 || turns[0].How != "expired" {
		t.Errorf("%+v", turns)
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
	c := client(t, s)
	took := func(p *scan.Pace, limit time.Duration) (locks int, of time.Duration) {
		ctx, cancel := context.WithTimeout(scan.WithPace(t.Context(), p), limit)
		defer cancel()
		before := s.CommandStats(t).CPU
		for _, err := range c.Locks(ctx, "") {
			if err != nil {
				t.Logf("after %d locks: %v", locks, err) // its time is over
				break
			}
			locks++
		}
		return locks, s.CommandStats(t).CPU - before
	}
	fill("20000")
	many, full := took(nil, patience)
	few, paced := took(scan.NewPace(0.02, 0), 4*time.Second)
	t.Logf("%v for %d locks at full speed, %v for %d in four seconds", full, many, paced, few)
	if share := 4 * time.Second / 50; paced > 3*share || full < 4*share || few >= many {
		t.Errorf("%v for %d locks, and %v for %d at full speed", paced, few, full, many)
	}
	begin(t, s, "ls").says("this takes " + budget + "; --full-speed lifts that") // of so many also where this machine is slow itself

	fill("4000")
	top := onTerminal(t, s, 120, 24, "top")
	top.shows(120, budget, "a look takes ")
	top.quit()
	top = onTerminal(t, s, 120, 24, "top", "--full-speed")
	lacks(t, top.shows(120, "000 locks, every 1s"), budget)
	top.quit()
	all := call(t, s, "ls", "orders:1?", "--full-speed")
	all.warns()
	testbed.Equal(t, len(all.rows()), 10, "rows")
	need(t, serving(t, s).event("locks", ""), `"took_seconds":`)
	for _, full := range []string{"--full-speed=false", "--full-speed"} {
		said := strings.Contains(serving(t, s, full).get("/api/settings").text, budget)
		testbed.Equal(t, said, full != "--full-speed", "whether the page says its budget, with", full)
	}
}
