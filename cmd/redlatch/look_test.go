package main

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
)

func TestLs(t *testing.T) {
	s := server(t)
	c, other := client(t, s, named("shop/1")), client(t, s, named("shop/2"))
	if st, out, errs := call(t, s, "ls"); st != 0 || out != "" || !strings.Contains(errs, "no locks") {
		t.Errorf("%d %q %q", st, out, errs)
	}
	if st, out, _ := call(t, s, "ls", "-o", "json"); st != 0 || strings.TrimSpace(out) != "[]" {
		t.Errorf("%d %q", st, out)
	}
	s.Do(t, "HSET", "user:1", "name", "x")
	defer s.Do(t, "DEL", "user:1")
	a, b := hold(t, c.RLock("orders:1")), hold(t, c.FairLock("orders:2"))
	r1, r2 := hold(t, c.ReadWriteLock("cache").ReadLock()), hold(t, other.ReadWriteLock("cache").ReadLock())
	evil := hold(t, c.RLock("evil\x1b[31m\n"))
	waits := make(chan redlatch.Hold, 1)
	go func() { // ends with the lock
		h, err := other.FairLock("orders:2").Lock(t.Context())
		if err != nil {
			t.Error(err)
		}
		waits <- h
	}()
	untilState(t, c, "orders:2", func(in redlatch.Inspection) bool { return in.QueueLength == 1 })

	st, out, _ := call(t, s, "ls")
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if st != 0 || len(lines) != 5 {
		t.Fatalf("%d:\n%s", st, out)
	}
	for i, words := range [][]string{
		{"NAME", "KIND", "HOLDER"}, {"cache", "read-write", "read", "+1"}, {`evil\x1b[31m\n`},
		{"orders:1", "reentrant", "lock", "shop/1"}, {"orders:2", "fair", "lock", "shop/1", " 1 "},
	} {
		need(t, lines[i], words...)
	}
	if strings.Contains(out, "\x1b") {
		t.Errorf("colours or worse in a file: %q", out)
	}
	st, out, errs := call(t, s, "ls", "--limit", "2")
	if st != 0 || strings.Count(out, "\n") != 3 || !strings.Contains(errs, "the first 2 locks by name, of 4") {
		t.Errorf("the first two: %d %s\n%s", st, errs, out)
	}
	need(t, out, "cache", "evil")
	if st, _, errs := call(t, s, "ls", "--limit", "0"); st != exitUsage {
		t.Errorf("none: %d %s", st, errs)
	}
	st, out, _ = call(t, s, "ls", "orders:*", "-o", "json")
	var got []redlatch.Inspection
	if err := json.Unmarshal([]byte(out), &got); err != nil || st != 0 || len(got) != 2 {
		t.Fatalf("%d, %v:\n%s", st, err, out)
	}
	if got[1].Queue[0].Client != "shop/2" || got[0].Holders[0].Client != "shop/1" {
		t.Errorf("%+v", got)
	}
	for _, h := range []redlatch.Hold{a, b, r1, r2, evil} {
		unlock(t, h)
	}
	unlock(t, <-waits)
}

// Where the terminal is narrow, names are cut and columns keep their places.

func TestTableFitsTheTerminal(t *testing.T) {
	rows := [][]cell{{{strings.Repeat("n", 80), cyan}, {"plain", ""}, {"x", ""}}, {{"ü", ""}, {"fair", ""}, {"y", red}}}
	lines, whole := screen{width: 40, colour: true}.lines("NAME* KIND Z", rows)
	if whole {
		t.Error("all of it is said to be there")
	}
	for i, line := range lines {
		plain := line
		for _, code := range []string{"\x1b[1m", "\x1b[36m", "\x1b[31m", "\x1b[0m"} {
			plain = strings.ReplaceAll(plain, code, "")
		}
		if n := len([]rune(plain)); n > 40 || strings.Contains(plain, "\x1b") {
			t.Errorf("line %d has %d characters: %q", i, n, line)
		}
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
	s := server(t)
	c := client(t, s, named("shop/1"), func(c *redlatch.Config) { c.Prefix = "p:" })
	h := hold(t, c.ReadWriteLock("x").WriteLock())
	st, out, _ := call(t, s, "show", "x", "--prefix", "p:")
	if st != 0 {
		t.Fatal(st)
	}
	need(t, out, "held for writing", "read-write", "p:x", "shop/1", "127.0.0.1:", c.ID()+":g")
	if st, out, _ := call(t, s, "show", "x"); st != 0 || !strings.Contains(out, "free") {
		t.Errorf("%d %s", st, out)
	}
	st, out, _ = call(t, s, "show", "p:x", "-o", "json")
	var in redlatch.Inspection
	if err := json.Unmarshal([]byte(out), &in); err != nil || st != 0 || in.Holders[0].Client != "shop/1" {
		t.Errorf("%d %v %s", st, err, out)
	}
	unlock(t, h)
	s.Do(t, "SET", "data", "1")
	if st, out, errs := call(t, s, "show", "dtaa"); st != 0 || !strings.Contains(out, "no key") || !strings.Contains(errs, "Is the name right?") {
		t.Errorf("a name that is not there: %d %s %s", st, out, errs)
	}
	if st, _, errs := call(t, s, "ls", "order*"); st != 0 || !strings.Contains(errs, `no locks match "order*"`) {
		t.Errorf("a pattern without locks: %d %s", st, errs)
	}
	if st, _, errs := call(t, s, "show", "data"); st != exitError || !strings.Contains(errs, "not a lock") {
		t.Errorf("%d %s", st, errs)
	}
	s.Do(t, "DEL", "data")
	if st, _, _ := call(t, s, "show", "x", "-o", "xml"); st != exitUsage {
		t.Errorf("%d", st)
	}
}

// On a narrow terminal owner and trace stay whole, and names keep their ends.

func TestShowOnANarrowTerminal(t *testing.T) {
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

// watch tells a holder that renews from one that does not, and one that released from one whose lease ran out.
func TestFollower(t *testing.T) {
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
		in := redlatch.Inspection{Name: "x", Key: "x", At: at, Kind: redlatch.KindNone}
		if step.owner != "" {
			in.Kind, in.Mode, in.HolderCount = redlatch.KindReentrant, redlatch.ModeLock, 1
			in.Holders = []redlatch.Holder{{Owner: step.owner, Mode: redlatch.ModeLock, Count: 1, Remaining: step.left}}
		}
		lines := f.changes(in)
		if step.says == "" && len(lines) > 0 || step.says != "" && (len(lines) != 1 || !strings.HasPrefix(lines[0].text, step.says)) {
			t.Errorf("step %d: %v, not %q", i, lines, step.says)
		}
	}
}

// Shells complete the names of locks, also of odd ones, and wait no longer than a second for a server that is silent.
func TestCompletion(t *testing.T) {
	s := server(t)
	c := client(t, s)
	for _, name := range []string{"orders:1", "orders:2", "odd*\n", "other"} {
		defer unlock(t, hold(t, c.RLock(name)))
	}
	for _, command := range []string{"show", "watch", "unlock", "run"} {
		for begun, want := range map[string]string{"ord": "orders:1\norders:2\n", "odd*": "odd*\\n\n", "none": "", "order s": ""} {
			_, out, _ := call(t, s, "__complete", command, begun)
			lines := strings.SplitAfter(strings.TrimSuffix(out, ":4\n"), "\n")
			slices.Sort(lines)
			if got := strings.Join(lines, ""); got != want {
				t.Errorf("%s %s: %q", command, begun, out)
			}
		}
	}
	s.Freeze(t)
	began := time.Now()
	_, out, _ := call(t, s, "__complete", "show", "ord")
	if took := time.Since(began); took > 5*time.Second || strings.Contains(out, "orders") {
		t.Errorf("after %v: %s", took, out)
	}
	s.Thaw(t)
}

func TestWatch(t *testing.T) {
	s := server(t)
	c := client(t, s, named("shop/1"))
	w := begin(t, s, "watch", "x", "--interval", "100ms")
	w.says("free")
	h := hold(t, c.RLock("x"))
	need(t, w.says("held by"), "shop/1")
	unlock(t, h)
	w.says("released")
	_ = w.cmd.Process.Signal(syscall.SIGTERM)
	if st := w.status(); st != 0 {
		t.Errorf("status %d: %s", st, w.text())
	}
}

// The help tells the exit statuses, and shells complete commands and the values of flags.
func TestHelp(t *testing.T) {
	st, out, _ := callWith(t, "", nil, "help")
	if st != 0 {
		t.Error(st)
	}
	need(t, out, "Exit status", "run ", "doctor", "REDIS_URL")
	if st, out, errs := callWith(t, "", nil, "--version"); st != 0 || !strings.HasPrefix(out, "redlatch version ") || !strings.Contains(out, "go1.") {
		t.Errorf("--version: %d %q %s", st, out, errs)
	}
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		if st, out, errs := callWith(t, "", nil, "completion", shell); st != 0 || len(out) < 1000 {
			t.Errorf("%s: %d %s", shell, st, errs)
		}
	}
	if _, out, _ := callWith(t, "", nil, "__complete", "run", "--kind", ""); !strings.Contains(out, "fair") {
		t.Error(out)
	}
}

// Durations for people.
func TestSpans(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-1: "0s", 3 * time.Millisecond: "3ms", 4200 * time.Millisecond: "4.2s", 59 * time.Second: "59s", 723 * time.Second: "12m03s",
		5*time.Hour + 7*time.Minute: "5h07m", 76 * time.Hour: "3d04h",
	} {
		if got := span(d); got != want {
			t.Errorf("%v: %s, want %s", d, got, want)
		}
	}
}
