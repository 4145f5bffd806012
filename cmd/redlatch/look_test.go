package main

import (
	"bytes"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/testbed"
)

func TestLs(t *testing.T) {
	s, c := beside(t, named("shop/1"))
	other := client(t, s, named("shop/2"))
	call(t, s, "ls").fails(exitOK, "no locks")
	testbed.Equal(t, call(t, s, "ls", "-o", "json").ends(exitOK).out, "[]\n")
	s.Do(t, "HSET", "user:1", "name", "x")
	defer s.Do(t, "DEL", "user:1")
	var held []redlatch.Hold
	for _, l := range []redlatch.Locker{
		c.RLock("orders:1"), c.FairLock("orders:2"), c.ReadWriteLock("cache").ReadLock(), other.ReadWriteLock("cache").ReadLock(), c.RLock("evil\x1b[31m\n"),
	} {
		held = append(held, hold(t, l))
	}
	waits := waiting(t, t.Context(), other.FairLock("orders:2"))
	untilQueued(t, c, "orders:2", 1)

	got := call(t, s, "ls").ends(exitOK)
	lines := strings.Split(strings.TrimSpace(got.out), "\n")
	if len(lines) != 5 || strings.Contains(got.out, "\x1b") { // colours or worse in a file
		t.Fatalf("%q", got.out)
	}
	for i, words := range [][]string{
		{"NAME", "KIND", "HOLDER"}, {"cache", "read-write", "read", "+1"}, {`evil\x1b[31m\n`},
		{"orders:1", "reentrant", "lock", "shop/1"}, {"orders:2", "fair", "lock", "shop/1", " 1 "},
	} {
		need(t, lines[i], words...)
	}
	got = call(t, s, "ls", "--limit", "2").ends(exitOK, "cache", "evil")
	got.warns("the first 2 locks by name, of 4")
	testbed.Equal(t, len(got.rows()), 2, "rows")
	call(t, s, "ls", "--limit", "0").fails(exitUsage)
	list := decoded[[]redlatch.Inspection](t, call(t, s, "ls", "orders:*", "-o", "json").ends(exitOK).out)
	if len(list) != 2 || list[1].Queue[0].Client != "shop/2" || list[0].Holders[0].Client != "shop/1" {
		t.Errorf("%+v", list)
	}
	unlock(t, held...)
	unlock(t, <-waits)
}

// Where the terminal is narrow, names are cut and columns keep their places.
func TestTableFitsTheTerminal(t *testing.T) {
	t.Parallel()
	rows := [][]cell{{{strings.Repeat("n", 80), cyan}, {"plain", ""}, {"x", ""}}, {{"ü", ""}, {"fair", ""}, {"y", red}}}
	lines, whole := screen{width: 40, colour: true}.lines("NAME* KIND Z", rows)
	testbed.Equal(t, whole, false, "whether all of it is said to be there")
	colours := strings.NewReplacer("\x1b[1m", "", "\x1b[36m", "", "\x1b[31m", "", "\x1b[0m", "")
	for i, line := range lines {
		testbed.AtMost(t, len([]rune(colours.Replace(line))), 40, "characters of line", i)
		lacks(t, colours.Replace(line), "\x1b")
	}
	need(t, strings.Join(lines, "\n"), "…", "\x1b[36m")

	// So do names of any length and script.
	rows = nil
	for _, name := range []string{"orders:42", "注文:42", "주문", "🔒", "pru\u0308fung", "заказ", "ا\u064eلطلب", strings.Repeat("ロック", 30)} {
		rows = append(rows, []cell{{name, ""}, {"plain", ""}, {"x", ""}})
	}
	for _, width := range []int{0, 40, 79} {
		lines, _ := screen{width: width}.lines("NAME* KIND Z", rows)
		at := columnsOf(strings.Split(lines[0], "KIND")[0])
		for _, line := range lines[1:] {
			name, _, _ := strings.Cut(line, "plain")
			if columnsOf(name) != at || width > 0 && columnsOf(line) > width {
				t.Errorf("%d wide: the second column begins at %d, not at %d, in %q", width, columnsOf(name), at, line)
			}
		}
	}
}

func TestShow(t *testing.T) {
	s, c := beside(t, named("shop/1"), func(c *redlatch.Config) { c.Prefix = "p:" })
	h := hold(t, c.ReadWriteLock("x").WriteLock())
	call(t, s, "show", "x", "--prefix", "p:").ends(exitOK, "held for writing", "read-write", "p:x", "shop/1", "127.0.0.1:", c.ID()+":g")
	call(t, s, "show", "x").ends(exitOK, "free")
	in := decoded[redlatch.Inspection](t, call(t, s, "show", "p:x", "-o", "json").ends(exitOK).out)
	testbed.Equal(t, in.Holders[0].Client, "shop/1", "the holder")
	unlock(t, h)
	unlock(t, hold(t, c.RLock("y", redlatch.Fenced())))
	call(t, s, "show", "y", "--prefix", "p:").ends(exitOK, "free", "token").warns() // the name is right
	s.Do(t, "HSET", "p:z", uuid.NewString()+":1", "1")
	call(t, s, "show", "z", "--prefix", "p:").ends(exitOK, "held", "lease      has no end")
	s.Do(t, "SET", "data", "1")
	call(t, s, "show", "dtaa", "--prefix", "shop:").ends(exitOK, "no key").warns("Is the name right?", `"shop:dtaa"`)
	call(t, s, "ls", "order*").fails(exitOK, `no locks match "order*"`)
	call(t, s, "show", "data").fails(exitError, "its key is no lock")
	s.Do(t, "DEL", "data", "p:z")
	call(t, s, "show", "x", "-o", "xml").fails(exitUsage)
}

// On a narrow terminal owner and trace stay whole, and names keep their ends.
func TestShowOnANarrowTerminal(t *testing.T) {
	t.Parallel()
	owner := "343714c0-5d1f-4c0a-9b6e-2f6c1d2a9e11:g1f-mf3k2l9x.1a"
	at := time.UnixMilli(1_800_000_000_000)
	in := redlatch.Inspection{Name: "orders:42", Key: "orders:42", At: at, Kind: redlatch.KindFair, Mode: redlatch.ModeLock, HolderCount: 1, QueueLength: 1, Processes: 1}
	p := redlatch.Process{Client: "checkout/pod-7", ClientID: "343714c0-5d1f-4c0a-9b6e-2f6c1d2a9e11", Addr: "10.2.0.17:50882"}
	in.Holders = []redlatch.Holder{{Owner: owner, Process: p, Mode: redlatch.ModeLock, Count: 1, TraceID: "fc8373abcaab18957461bffbdffc39d7"}}
	in.Queue = []redlatch.Waiter{{Owner: owner, Process: p, Mode: redlatch.ModeLock}}
	for _, width := range []int{0, 60, 80, 200} {
		var b bytes.Buffer
		screen{width: width}.lock(&b, in)
		for line := range strings.Lines(b.String()) {
			if n := len([]rune(strings.TrimRight(line, "\n"))); width > 0 && n > width {
				t.Errorf("width %d: a line of %d: %s", width, n, line)
			}
		}
		need(t, b.String(), owner, "fc8373abcaab18957461bffbdffc39d7", "1 in the queue, of 1 process\n", "-mf3k2l9x.1a")
	}
}

// seenHeld is what an Inspection says of a lock that somebody holds.
func seenHeld(name, owner string, at time.Time) redlatch.Inspection {
	return redlatch.Inspection{Name: name, Key: name, At: at, Kind: redlatch.KindReentrant, Mode: redlatch.ModeLock, HolderCount: 1,
		Holders: []redlatch.Holder{{Owner: owner, Mode: redlatch.ModeLock, Count: 1}}}
}

// watch tells a holder that renews from one that does not, and one that released from one whose lease ran out.
func TestFollower(t *testing.T) {
	t.Parallel()
	at := time.UnixMilli(1_800_000_000_000)
	f := follower{}
	for i, step := range []struct {
		after time.Duration
		owner string
		left  time.Duration
		says  string // "": nothing changed
	}{
		{0, "c:a", 28 * time.Second, "held by"},
		{7 * time.Second, "c:a", 21 * time.Second, ""},
		{time.Second, "c:a", 30 * time.Second, "renewed"},
		{time.Second, "c:a", 29 * time.Second, ""},
		{time.Second, "", 0, "released"},
		{time.Second, "c:b", 30 * time.Second, "held by"},
		{10 * time.Second, "c:b", 20 * time.Second, ""},
		{5 * time.Second, "c:b", 15 * time.Second, "overdue"},
		{time.Second, "c:b", 14 * time.Second, ""},
		{time.Second, "c:b", 30 * time.Second, "renewed"},
		{29 * time.Second, "c:b", time.Second, "overdue"},
		{time.Second, "", 0, "expired"},
		{time.Second, "c:d", 30 * time.Second, "held by"},
		{time.Minute, "", 0, "released"}, // it may have renewed meanwhile
	} {
		at = at.Add(step.after)
		gone := step.left == time.Second || step.owner == "c:d"
		in := redlatch.Inspection{Name: "x", Key: "x", At: at, Kind: redlatch.KindNone}
		if step.owner != "" {
			in = seenHeld("x", step.owner, at)
			in.Holders[0].Remaining, in.Holders[0].HeldSince = step.left, at.Add(-time.Millisecond)
			in.Holders[0].Process = redlatch.Process{ClientID: "c", Client: "shop/1"}
			if gone { // it was killed: no connection has its name any more
				in.Holders[0].Process = redlatch.Process{ClientID: "c", Unlisted: true}
			}
		}
		lines := f.changes(in)
		if step.says == "" && len(lines) > 0 || step.says != "" && (len(lines) != 1 || !strings.HasPrefix(lines[0].text, step.says)) {
			t.Errorf("step %d: %v, not %q", i, lines, step.says)
		}
		if step.says == "released" && !strings.Contains(lines[0].text, "held for up to ") { // it ended between two looks
			t.Errorf("step %d: %v", i, lines)
		}
		if (step.says == "expired" || gone) && !strings.Contains(lines[0].text, "shop/1 (gone?)") {
			t.Errorf("step %d: %v: it has forgotten the name", i, lines)
		}
	}
}

// Shells complete the names of locks, also of odd ones, and wait no longer than a second for a server that is silent.
func TestCompletion(t *testing.T) {
	s, c := beside(t)
	for _, name := range []string{"orders:1", "orders:2", "odd*\n", "other"} {
		defer unlock(t, hold(t, c.RLock(name)))
	}
	for _, command := range []string{"show", "watch", "unlock", "run"} {
		for begun, want := range map[string]string{"ord": "orders:1\norders:2\n", "odd*": "odd*\\n\n", "none": "", "order s": ""} {
			lines := strings.SplitAfter(strings.TrimSuffix(call(t, s, "__complete", command, begun).out, ":4\n"), "\n")
			slices.Sort(lines)
			testbed.Equal(t, strings.Join(lines, ""), want, command, begun)
		}
	}
	s.Freeze(t)
	began := time.Now()
	got := call(t, s, "__complete", "show", "ord")
	if took := time.Since(began); took > 5*time.Second || strings.Contains(got.out, "orders") {
		t.Errorf("after %v: %s", took, got.out)
	}
	s.Thaw(t)
}

func TestWatch(t *testing.T) {
	s, c := beside(t, named("shop/1"))
	w := begin(t, s, "watch", "x", "--interval", "100ms")
	w.says("free")
	h := hold(t, c.RLock("x"))
	need(t, w.says("held by"), "shop/1")
	unlock(t, h)
	w.says("released")
	w.signal(syscall.SIGTERM)
	w.ends(exitOK)
}

// The help tells the exit statuses, and shells complete commands and the values of flags.
func TestHelp(t *testing.T) {
	t.Parallel()
	call(t, nil, "help").ends(exitOK, "Exit status", "run ", "doctor", "REDIS_URL")
	call(t, nil, "--version").ends(exitOK, "redlatch version ", "go1.")
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		testbed.AtLeast(t, len(call(t, nil, "completion", shell).ends(exitOK).out), 1000, "bytes for", shell)
	}
	call(t, nil, "__complete", "run", "--kind", "").ends(exitOK, "fair")
}

// Durations for people.
func TestSpans(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		-1: "0s", 3 * time.Millisecond: "3ms", 4200 * time.Millisecond: "4.2s", 59 * time.Second: "59s", 723 * time.Second: "12m03s",
		5*time.Hour + 7*time.Minute: "5h07m", 76 * time.Hour: "3d04h",
	} {
		testbed.Equal(t, span(d), want, d)
	}
}
