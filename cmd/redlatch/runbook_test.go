package main

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/luascript"
	"github.com/redlatch/redlatch/internal/testbed"
)

// What docs/OPERATIONS.md says that commands print is what they print.
func TestRunbookOutputs(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "OPERATIONS.md"))
	testbed.Must(t, err)
	at := time.Date(2026, time.November, 22, 3, 11, 11, 947_000_000, time.Local)
	ago := func(d time.Duration) time.Time { return at.Add(-d) }
	const seven, two = "343714c0-5d1f-4c0a-9b6e-2f6c1d2a9e11", "a09f4338-bf39-4519-bf9b-dae22584e1f5"
	pod7 := redlatch.Process{ClientID: seven, Client: "checkout/pod-7", Addr: "10.2.0.17:50882"}
	pod2 := redlatch.Process{ClientID: two, Client: "checkout/pod-2", Addr: "10.2.0.31:41022"}
	orders := redlatch.Inspection{
		Name: "orders:42", Key: "orders:42", At: at, Kind: redlatch.KindFair, Mode: redlatch.ModeLock, Remaining: 27 * time.Second,
		Token: 1795317008957847, HolderCount: 1, QueueLength: 2, Processes: 1,
		Holders: []redlatch.Holder{{
			Process: pod7, Owner: seven + ":g1f-mwr9e2pb.1a.4100", Mode: redlatch.ModeLock, Count: 1, Remaining: 27 * time.Second,
			AskedSince: ago(67100 * time.Millisecond), HeldSince: ago(63 * time.Second), TraceID: "fc8373abcaab18957461bffbdffc39d7",
		}},
		Queue: []redlatch.Waiter{
			{Process: pod2, Owner: two + ":glwn-mwr9e9q3.9", Mode: redlatch.ModeLock, AskedSince: ago(58 * time.Second)},
			{Process: pod2, Owner: two + ":glx8-mwr9f97v.a", Mode: redlatch.ModeLock, AskedSince: ago(12 * time.Second)},
		},
	}
	printed := func(what string, write func(out io.Writer)) {
		t.Helper()
		var b bytes.Buffer
		write(&b)
		if out := b.String(); !strings.Contains(string(text), "```\n"+out) && !strings.Contains(string(text), out+"```") {
			t.Errorf("%s prints, and docs/OPERATIONS.md does not say:\n%s", what, out)
		}
	}
	printed("show", func(out io.Writer) { screen{}.lock(out, orders) })
	free := redlatch.Inspection{Name: "orders:42", Key: "orders:42", At: at, Kind: redlatch.KindNone, Processes: 1}
	printed("unlock", func(out io.Writer) { screen{}.lock(out, free) })
	printed("ls", func(out io.Writer) {
		screen{}.list(out, seen("", []redlatch.Inspection{
			{
				Name: "catalogue", At: at, Kind: redlatch.KindReadWrite, Mode: redlatch.ModeRead, Remaining: 29 * time.Second, HolderCount: 3,
				QueueLength: 5, Processes: 2, Holders: []redlatch.Holder{{Process: pod7, AskedSince: ago(1200 * time.Millisecond), HeldSince: ago(1200 * time.Millisecond)}},
			},
			orders,
			{
				Name: "report", At: at, Kind: redlatch.KindReentrant, Mode: redlatch.ModeLock, Remaining: 24 * time.Second, HolderCount: 1,
				Holders: []redlatch.Holder{{Process: redlatch.Process{Client: "cron/pod-1"}, AskedSince: ago(2*time.Hour + 10*time.Minute), HeldSince: ago(2*time.Hour + 10*time.Minute)}},
			},
		}), "")
	})
	printed("history", func(out io.Writer) {
		screen{}.history(out, []redlatch.Eviction{{
			At: time.Date(2026, time.November, 22, 3, 14, 2, 0, time.UTC), Name: "orders:42", Kind: redlatch.KindFair, Holds: 1,
			By: "ann@bastion", Reason: "pod-7 hangs, restarted",
			Evicted: []redlatch.Evicted{{Owner: orders.Holders[0].Owner, Process: "checkout/pod-7 10.2.0.17:50882"}},
		}})
	})
	printed("watch", func(out io.Writer) {
		f := follower{}
		for _, left := range []time.Duration{27 * time.Second, 29 * time.Second} {
			in := orders
			in.Remaining, in.Holders = left, []redlatch.Holder{orders.Holders[0]}
			in.Holders[0].Remaining = left
			screen{}.changes(out, in.At, f.changes(in))
			orders.At = orders.At.Add(7 * time.Second)
		}
	})
	gone := redlatch.Process{ClientID: seven, Unlisted: true}
	left := orders
	left.Holders = []redlatch.Holder{orders.Holders[0]}
	left.Holders[0].Process = gone
	printed("ls --by process", func(out io.Writer) {
		screen{}.parties(out, "process", lsFlags{by: "process"}.grouped(seen("", []redlatch.Inspection{left}), 1), "")
	})
	copied := orders
	copied.Kind, copied.Queue = redlatch.KindReentrant, nil
	printed("ls of a quorum", func(out io.Writer) {
		locks := append(seen("a.internal:6379", []redlatch.Inspection{copied}), seen("b.internal:6379", []redlatch.Inspection{copied})...)
		screen{}.parties(out, "owner", lsFlags{by: "owner"}.grouped(locks, 3), " SERVERS*")
	})
	printed("watch of one that died", func(out io.Writer) {
		f, free := follower{}, left
		left.At, free.At, free.Holders = at.Add(20*time.Second), at.Add(37*time.Second), nil
		alive := left
		alive.At, alive.Holders = at.Add(7*time.Second), []redlatch.Holder{orders.Holders[0]}
		alive.Holders[0].Remaining, left.Holders[0].Remaining = 30*time.Second, 17*time.Second
		f.changes(alive)
		screen{}.changes(out, left.At, f.changes(left))
		screen{}.changes(out, free.At, f.changes(free))
	})
}

// The commands of docs/OPERATIONS.md work as printed, and answer: of one lock about that lock, of all about it, too.
func TestRunbookCommands(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "OPERATIONS.md"))
	testbed.Must(t, err)
	s, token := server(t), filepath.Join(t.TempDir(), "token")
	testbed.Must(t, os.WriteFile(token, []byte("a token of the test's"), 0o600))
	job := func(context.Context) error { return nil }
	_, err = client(t, s, named("cron/pod-1")).Once("nightly").Do(t.Context(), time.Hour, job)
	testbed.Must(t, err)
	owner := regexp.MustCompile(`--owner (\S+)`).FindStringSubmatch(string(text))[1]
	nameConnection(t, s, "redlatch:checkout/pod-7:"+owner[:36])
	here := strings.NewReplacer("'", "", "/etc/redlatch/token", token, "/usr/local/bin/report", "true", "redis://a.internal:6379", "redis://"+s.Addr(),
		"-u redis://b.internal:6379 -u redis://c.internal:6379", "", "redlatch serve", "redlatch serve --listen 127.0.0.1:0")
	answers := map[string][]string{
		"ls": {"orders:42"}, "show": {"orders:42"}, "unlock": {"orders:42 was taken away from " + owner}, "history": {"REASON"}, "doctor": {"round trip"}, "run": nil, "top": nil,
		"show nightly": {"Last run as a job of Once"}, "show nightly-report": {"free"}, "ls --process": {"orders:42"}, "watch": {"checkout/pod-7"}, "watch nightly-report": {"free"}, "serve": {"http://"},
	}
	shown, done := false, map[string]bool{}
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "```") {
			shown = !shown
		}
		line, _, _ = strings.Cut(line, " #")
		if line, _, _ = strings.Cut(line, " | "); !shown || !strings.HasPrefix(line, "redlatch ") || done[line] {
			continue
		}
		done[line] = true
		s.Do(t, "HSET", "orders:42", owner, "1")
		words := strings.Fields(here.Replace(line))[1:]
		want, ok := answers[strings.Join(words[:min(2, len(words))], " ")]
		if !ok {
			want, ok = answers[words[0]]
		}
		switch name := words[0]; {
		case !ok:
			t.Errorf("%q: what is it to answer?", line)
		case name == "watch", name == "serve":
			p := begin(t, s, words...)
			p.says(want[0])
			p.signal(os.Interrupt)
			p.ends(exitOK)
		case name == "top":
			call(t, s, words...).fails(exitUsage, "needs a terminal")
		default:
			if !strings.Contains(line, "-u ") {
				words = append([]string{"--url", "redis://" + s.Addr()}, words...)
			}
			callWith(t, strings.NewReader("yes\n"), words...).ends(exitOK, want...)
		}
	}
	testbed.AtLeast(t, len(done), 20, "commands that were found")
	s.Do(t, "DEL", "orders:42", luascript.OnceKey("nightly"), "redlatch_history:{}")
}
