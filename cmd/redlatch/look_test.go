package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/testbed"
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
		{"orders:1", "plain", "lock", "shop/1"}, {"orders:2", "fair", "lock", "shop/1", " 1 "},
	} {
		need(t, lines[i], words...)
	}
	if strings.Contains(out, "\x1b") {
		t.Errorf("colours or worse in a file: %q", out)
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
	var b bytes.Buffer
	rows := [][]cell{{{strings.Repeat("n", 80), cyan}, {"plain", ""}, {"x", ""}}, {{"ü", ""}, {"fair", ""}, {"y", red}}}
	screen{width: 40, colour: true}.table(&b, []string{"NAME", "KIND", "Z"}, []bool{true, false, false}, rows)
	for i, line := range strings.Split(strings.TrimRight(b.String(), "\n"), "\n") {
		plain := line
		for _, code := range []string{"\x1b[1m", "\x1b[36m", "\x1b[31m", "\x1b[0m"} {
			plain = strings.ReplaceAll(plain, code, "")
		}
		if n := len([]rune(plain)); n > 40 || strings.Contains(plain, "\x1b") {
			t.Errorf("line %d has %d characters: %q", i, n, line)
		}
	}
	need(t, b.String(), "…", "\x1b[36m")
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
		screen{width: width}.lock(&app{std: streams{out: &b}}, in)
		for line := range strings.Lines(b.String()) {
			if n := len([]rune(strings.TrimRight(line, "\n"))); width > 0 && n > width {
				t.Errorf("width %d: a line of %d: %s", width, n, line)
			}
		}
		need(t, b.String(), owner, "fc8373abcaab18957461bffbdffc39d7", "1 in the queue, of 1 process\n", "-mf3k2l9x.1a")
	}
	if got := cutMiddle("{tag}orders:42", 9); got != "{ta…rs:42" {
		t.Error(got)
	}
}

// watch tells a holder that renews from one that does not, and one that released from one
// whose lease ran out.
func TestFollower(t *testing.T) {
	at := time.UnixMilli(1_800_000_000_000)
	f := follower{leases: map[string]held{}}
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
			in.Kind, in.Mode, in.HolderCount = redlatch.KindPlain, redlatch.ModeLock, 1
			in.Holders = []redlatch.Holder{{Owner: step.owner, Mode: redlatch.ModeLock, Count: 1, Remaining: step.left}}
		}
		lines := f.changes(in)
		if step.says == "" && len(lines) > 0 || step.says != "" && (len(lines) != 1 || !strings.HasPrefix(lines[0].text, step.says)) {
			t.Errorf("step %d: %v, not %q", i, lines, step.says)
		}
	}
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

func TestUnlock(t *testing.T) {
	s := server(t)
	c := client(t, s, named("shop/1"))
	h := hold(t, c.RLock("x"))
	owner := inspect(t, c, "x").Holders[0].Owner
	held := func() bool { in := inspect(t, c, "x"); return in.Held() && in.Holders[0].Owner == owner }
	for _, tc := range []struct {
		status int
		input  string
		args   []string
	}{
		{exitUsage, "", nil},
		{exitUsage, "", []string{"--owner", owner, "--any-owner"}},
		{exitOtherOwner, "yes\n", []string{"--owner", owner + "x"}},
		{exitOtherOwner, "", []string{"--owner", "shop/2", "--yes"}},
		{exitError, "no\n", []string{"--owner", owner}},
		{exitError, "", []string{"--owner", owner}},
	} {
		if st, _, errs := callWith(t, tc.input, s, append([]string{"unlock", "x"}, tc.args...)...); st != tc.status || !held() {
			t.Errorf("%v: status %d, held %v: %s", tc.args, st, held(), errs)
		}
	}
	st, out, errs := callWith(t, "yes\n", s, "unlock", "x", "--owner", owner[:20])
	if st != 0 || held() {
		t.Errorf("%d %s", st, errs)
	}
	need(t, out, "takes the lock away from "+owner, "shop/1", "wakes", "was taken away from")
	if err := h.Unlock(t.Context()); !errors.Is(err, redlatch.ErrLeaseLost) {
		t.Error(err)
	}

	h = hold(t, c.RLock("x"))
	if st, _, errs := call(t, s, "unlock", "x", "--owner", "shop/1", "--yes"); st != 0 {
		t.Errorf("%d %s", st, errs)
	}
	_ = h.Unlock(t.Context())
	if st, out, _ := call(t, s, "unlock", "x", "--owner", "shop/1", "--yes"); st != 0 || !strings.Contains(out, "nothing to do") {
		t.Errorf("%d %s", st, out)
	}
	// Two readers of one process are two owners.
	r1, r2 := hold(t, c.ReadWriteLock("rw").ReadLock()), hold(t, c.ReadWriteLock("rw").ReadLock())
	if st, _, errs := call(t, s, "unlock", "rw", "--owner", "shop/1", "--yes"); st != exitUsage || !strings.Contains(errs, "2 holders") {
		t.Errorf("%d %s", st, errs)
	}
	if st, _, errs := call(t, s, "unlock", "rw", "--any-owner", "--yes"); st != 0 || inspect(t, c, "rw").Held() {
		t.Errorf("%d %s", st, errs)
	}
	_, _ = r1.Unlock(t.Context()), r2.Unlock(t.Context())
}

// A script has nobody to ask.
func TestUnlockAsksNoScript(t *testing.T) {
	s := server(t)
	c := client(t, s)
	h := hold(t, c.RLock("x"))
	p := begin(t, s, "unlock", "x", "--any-owner")
	if st := p.status(); st != exitUsage || !inspect(t, c, "x").Held() {
		t.Errorf("%d: %s", st, p.text())
	}
	need(t, p.text(), "--yes")
	unlock(t, h)
}

func TestDoctor(t *testing.T) {
	s := server(t)
	st, out, _ := call(t, s, "doctor", "--need", "rlock,fair,read-write,fenced,links,operators,acks")
	if st != 0 {
		t.Errorf("status %d:\n%s", st, out)
	}
	keys := s.Do(t, "KEYS", "*")
	if left, err := keys.AsStrSlice(); err != nil || len(left) > 1 {
		t.Errorf("it leaves %v", left)
	} else if ttl := s.Do(t, "TTL", left[0]); !strings.HasPrefix(left[0], "redisson_lock_token:") {
		t.Errorf("it leaves %v", left)
	} else if n, _ := ttl.AsInt64(); n > 60 {
		t.Errorf("it leaves %s for %d s", left[0], n)
	}
	need(t, out, "round trip", "noeviction", "clock", "permissions fair: all there", "lock read-write: taken and freed", "0 problem(s)")

	s.Do(t, "CONFIG", "SET", "maxmemory", "100mb", "maxmemory-policy", "allkeys-lru")
	st, out, _ = call(t, s, "doctor")
	if st != exitError {
		t.Errorf("status %d:\n%s", st, out)
	}
	need(t, out, "allkeys-lru can evict a lock", "-> CONFIG SET maxmemory-policy noeviction", "1 problem(s)")
	s.Do(t, "CONFIG", "SET", "maxmemory", "0")
	if st, _, _ := call(t, s, "doctor"); st != 0 {
		t.Errorf("a warning alone: %d", st)
	}
	if st, _, _ := call(t, s, "doctor", "--strict"); st != exitError {
		t.Errorf("a warning with --strict: %d", st)
	}
	s.Do(t, "CONFIG", "SET", "maxmemory-policy", "noeviction", "min-replicas-to-write", "1")
	if st, out, _ := call(t, s, "doctor"); st != exitError || !strings.Contains(out, "min-replicas-to-write is 1") {
		t.Errorf("%d:\n%s", st, out)
	}
	s.Do(t, "CONFIG", "SET", "min-replicas-to-write", "0")
}

// repeats is a server, or something in its place, that says this of every command but those for which it has an answer.
func repeats(t *testing.T, says string, answers map[string]string) string {
	t.Helper()
	ln, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ln.Close() })
	serve := func(c net.Conn) {
		defer c.Close()
		for r := bufio.NewReader(c); ; {
			var n int
			if _, err := fmt.Fscanf(r, "*%d\r\n", &n); err != nil {
				return
			}
			words := make([]string, n)
			for i := range words {
				var size int
				_, _ = fmt.Fscanf(r, "$%d\r\n", &size)
				b := make([]byte, size+2)
				_, _ = io.ReadFull(r, b)
				words[i] = string(b[:size])
			}
			answer, ok := answers[strings.ToUpper(words[0])]
			if !ok {
				answer = fmt.Sprintf("-ERR %s", strings.ReplaceAll(says, "WHAT", words[0]))
			}
			_, _ = io.WriteString(c, answer+"\r\n")
		}
	}
	go func() { // ends with the listener
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go serve(c) // ends with the connection
		}
	}()
	return ln.Addr().String()
}

// A server that does not understand what a password came with repeats it. Nothing that is printed does.
func TestNothingShowsThePassword(t *testing.T) {
	const password = "geheim"
	login := map[string]string{"AUTH": "+OK", "CLIENT": "+OK", "PING": "+PONG"}
	for _, says := range []string{
		"unknown command 'WHAT', with args beginning with: '3' 'AUTH' 'ops' '" + password + "' ", "unknown command `WHAT`, with args beginning with: `3`, `AUTH`, `ops`, `gehe",
		"bad request: WHAT 3 AUTH ops " + password + " SETNAME x",
	} {
		for _, answers := range []map[string]string{nil, login} {
			addr := repeats(t, says, answers)
			for _, args := range [][]string{{"doctor"}, {"doctor", "-o", "json"}, {"ls"}, {"show", "x"}, {"unlock", "x", "--any-owner", "-y"}, {"run", "x", "-n", "--", "true"}} {
				st, out, errs := callWith(t, "", nil, append([]string{"--timeout", "1s", "--url", "redis://ops:" + password + "@" + addr}, args...)...)
				if st == 0 || strings.Contains(out+errs, "gehe") {
					t.Errorf("%v of a server that says %q: status %d\n%s%s", args, says, st, out, errs)
				}
			}
		}
	}
}

// Each permission that is missing is named.
func TestDoctorNamesPermissions(t *testing.T) {
	s := server(t)
	all := []string{"ACL", "SETUSER", "app", "reset", "on", ">pw", "+@all", "~*", "&*"}
	for _, tc := range []struct {
		without []string
		need    string
		named   string
	}{
		{[]string{"-pexpire"}, "rlock", "+pexpire"},
		{[]string{"-subscribe"}, "rlock", "+subscribe"},
		{[]string{"-linsert", "-zcount"}, "fair", "+linsert +zcount"},
		{[]string{"-hscan", "-zcount"}, "read-write", "+hscan +zcount"},
		{[]string{"resetchannels", "&redlatch_grant:*"}, "rlock", "&redisson_lock__channel:{*"},
		{[]string{"resetkeys", "~redlatch-doctor*", "~redisson_*"}, "rlock", "~redlatch_trace:{* ~redlatch_void:{*"},
		{[]string{"-scan", "-client|list"}, "operators", "+client|list +scan"},
		{[]string{"-evalsha", "-eval"}, "rlock", "scripts can't be run"},
	} {
		s.Do(t, append(all, tc.without...)...)
		tries := 1
		if tc.named == "+subscribe" {
			tries = 3 // the refusal is waited for for 300 ms: a busy machine's server may be slower
		}
		var st int
		var out, errs string
		found := false
		for ; tries > 0 && !found; tries-- {
			st, out, errs = callWith(t, "", nil, "doctor", "--need", tc.need, "-o", "json", "--url", "redis://app:pw@"+s.Addr())
			var findings []finding
			if err := json.Unmarshal([]byte(out), &findings); err != nil {
				t.Fatalf("%v: %v\n%s%s", tc.without, err, out, errs)
			}
			for _, f := range findings {
				found = found || f.Level == problem && strings.HasPrefix(f.Check, "permissions") && strings.Contains(f.Text, tc.named)
			}
		}
		if st != exitError || !found {
			t.Errorf("%v: status %d, %s is not named:\n%s", tc.without, st, tc.named, out)
		}
	}
	s.Do(t, "ACL", "DELUSER", "app")
}

// Flags come before the environment, that before the file.
func TestConfig(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	s := server(t, "--unixsocket", socket)
	c := client(t, s, func(c *redlatch.Config) { c.Prefix = "p:" })
	h := hold(t, c.RLock("x"))
	dir := t.TempDir()
	path := filepath.Join(dir, "config.toml")
	write := func(text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(fmt.Sprintf("url = \"redis://%s\"\nprefix = \"p:\"\ntimeout = \"3s\"\n", s.Addr()))
	if st, out, errs := callWith(t, "", nil, "--config", path, "show", "x"); st != 0 || !strings.Contains(out, "held") {
		t.Errorf("file: %d %s %s", st, out, errs)
	}
	t.Setenv("REDLATCH_CONFIG", path)
	t.Setenv("REDLATCH_PREFIX", "q:")
	if st, out, _ := callWith(t, "", nil, "show", "x"); st != 0 || strings.Contains(out, "held") {
		t.Errorf("environment: %d %s", st, out)
	}
	if st, out, _ := callWith(t, "", nil, "show", "x", "--prefix", "p:"); st != 0 || !strings.Contains(out, "held") {
		t.Errorf("flag: %d %s", st, out)
	}
	write("urll = \"x\"\n")
	if st, _, errs := callWith(t, "", nil, "show", "x"); st != exitUsage || !strings.Contains(errs, "urll") {
		t.Errorf("wrong file: %d %s", st, errs)
	}
	write("")
	// A URL means what it means to redlatch.Open: what that takes is taken, what that refuses is refused.
	for _, url := range []string{"redis://" + s.Addr() + "/", "valkey://" + s.Addr(), "unix://" + socket} {
		for _, command := range []string{"ls", "doctor"} {
			if st, out, errs := callWith(t, "", nil, command, "--url", url); st != exitOK {
				t.Errorf("%s of %s: status %d\n%s%s", command, url, st, out, errs)
			}
		}
	}
	if st, _, errs := callWith(t, "", nil, "ls", "--url", "redis://"+s.Addr()+"?pool_size=9"); st != exitUsage || !strings.Contains(errs, "pool_size") {
		t.Errorf("a parameter that would be ignored: %d %s", st, errs)
	}
	if st, _, errs := callWith(t, "", nil, "show", "x", "--url", "http://secret@host"); st != exitUsage || strings.Contains(errs, "secret") {
		t.Errorf("wrong url: %d %s", st, errs)
	}
	t.Setenv("REDLATCH_TIMEOUT", "soon")
	if st, _, errs := callWith(t, "", nil, "show", "x"); st != exitUsage || !strings.Contains(errs, "REDLATCH_TIMEOUT") {
		t.Errorf("wrong variable: %d %s", st, errs)
	}
	unlock(t, h)
}

// A password among the arguments shows in the list of processes: that is said once, and a file takes its place.
func TestURLFile(t *testing.T) {
	s := server(t)
	c := client(t, s)
	s.Do(t, "ACL", "SETUSER", "ops", "on", ">geheim", "+@all", "~*", "&*")
	h := hold(t, c.RLock("x"))
	url := "redis://ops:geheim@" + s.Addr()
	path := filepath.Join(t.TempDir(), "url")
	if err := os.WriteFile(path, []byte(url+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	const said = "shows in the list of processes"
	for _, command := range [][]string{{"ls"}, {"doctor"}, {"unlock", "x", "--owner", "nobody", "-y"}} {
		if _, _, errs := callWith(t, "", nil, append([]string{"-u", url}, command...)...); strings.Count(errs, said) != 1 {
			t.Errorf("%v with a password in its URL: %s", command, errs)
		}
		if _, _, errs := call(t, s, command...); strings.Contains(errs, said) {
			t.Errorf("%v without a password: %s", command, errs)
		}
	}
	shows := func(what string, args ...string) {
		t.Helper()
		if st, out, errs := callWith(t, "", nil, append([]string{"show", "x"}, args...)...); st != 0 || !strings.Contains(out, "held") || errs != "" {
			t.Errorf("%s: status %d: %s%s", what, st, out, errs)
		}
	}
	shows("--url-file", "--url-file", path)
	r, w, err := os.Pipe() // as a shell's <(…), which can be read once only
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	_, err = w.WriteString(url)
	if err := errors.Join(err, w.Close()); err != nil {
		t.Fatal(err)
	}
	shows("a pipe", "--url-file", fmt.Sprintf("/dev/fd/%d", r.Fd()))
	config := filepath.Join(t.TempDir(), "config.toml")
	if err := os.WriteFile(config, fmt.Appendf(nil, "url-file = %q\n", path), 0o600); err != nil {
		t.Fatal(err)
	}
	shows("the configuration's", "--config", config)
	t.Setenv("REDIS_URL", "redis://127.0.0.1:1")
	shows("--url-file before REDIS_URL", "--url-file", path)
	if st, _, _ := callWith(t, "", nil, "show", "x", "--config", config); st != exitUnavailable {
		t.Errorf("REDIS_URL before the configuration's: %d", st)
	}
	t.Setenv("REDLATCH_URL_FILE", path)
	shows("REDLATCH_URL_FILE before REDIS_URL")
	for _, args := range [][]string{{"--url", url, "--url-file", path}, {"--url-file", path + "x"}} {
		if st, _, errs := callWith(t, "", nil, append([]string{"show", "x"}, args...)...); st != exitUsage {
			t.Errorf("%v: %d %s", args, st, errs)
		}
	}
	unlock(t, h)
}

func TestPasswordFile(t *testing.T) {
	s := testbed.Standalone(t)
	s.Do(t, "ACL", "SETUSER", "ops", "on", ">geheim", "+@all", "~*", "&*")
	path := filepath.Join(t.TempDir(), "pw")
	if err := os.WriteFile(path, []byte("geheim\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if st, _, errs := call(t, s, "show", "x", "--username", "ops", "--password-file", path); st != 0 {
		t.Errorf("%d %s", st, errs)
	}
	// As a shell's <(…), which can be read once only: the doctor connects twice.
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	_, err = w.WriteString("geheim\n")
	if err := errors.Join(err, w.Close()); err != nil {
		t.Fatal(err)
	}
	if st, out, errs := call(t, s, "doctor", "--username", "ops", "--password-file", fmt.Sprintf("/dev/fd/%d", r.Fd())); st != 0 {
		t.Errorf("from a pipe: %d %s%s", st, out, errs)
	}
	if st, _, errs := call(t, s, "show", "x", "--username", "ops"); st == 0 {
		t.Errorf("without a password: %d %s", st, errs)
	}
}

// Every command has a help text with an example, and they are completed.
func TestHelp(t *testing.T) {
	root := newRoot(&app{std: streams{strings.NewReader(""), &bytes.Buffer{}, &bytes.Buffer{}}})
	for _, c := range root.Commands() {
		if c.Long == "" || !strings.Contains(c.Example, "redlatch "+c.Name()) || c.Short == "" || c.Args == nil {
			t.Errorf("%s: help, example or a check of its arguments is missing", c.Name())
		}
	}
	st, out, _ := callWith(t, "", nil, "help")
	if st != 0 {
		t.Error(st)
	}
	need(t, out, "Exit status", "run ", "doctor", "REDIS_URL")
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		if st, out, errs := callWith(t, "", nil, "completion", shell); st != 0 || len(out) < 1000 {
			t.Errorf("%s: %d %s", shell, st, errs)
		}
	}
	if _, out, _ := callWith(t, "", nil, "__complete", "run", "--kind", ""); !strings.Contains(out, "fair") {
		t.Error(out)
	}
}

// A clock that stands still, and durations for people.
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

// readers puts a read lock with that many readers, each of its own client, into the server, and returns their owners.
func readers(t *testing.T, s *testbed.Server, key string, n int, leaseMs int) []string {
	t.Helper()
	m := s.Do(t, "TIME")
	now, err := m.AsIntSlice()
	if err != nil {
		t.Fatal(err)
	}
	hash, leases := []string{"HSET", key, "mode", "read"}, []string{"ZADD", "redlatch_rw_leases:{" + key + "}"}
	var owners []string
	for i := range n {
		owner := fmt.Sprintf("%08d-0000-4000-8000-000000000000:g1-mf3k2l9x.1", i)
		owners = append(owners, owner)
		hash = append(hash, owner, "1")
		leases = append(leases, fmt.Sprint(now[0]*1000+int64(leaseMs)), owner)
	}
	s.Do(t, hash...)
	s.Do(t, leases...)
	for _, k := range []string{key, leases[1]} {
		s.Do(t, "PEXPIRE", k, "300000")
		t.Cleanup(func() { s.Do(t, "DEL", k) })
	}
	return owners
}

// nameConnection makes a connection with that name in CLIENT LIST.
func nameConnection(t *testing.T, s *testbed.Server, name string) {
	t.Helper()
	c, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{s.Addr()}, ClientName: name, ForceSingleClient: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
}

// A holder beyond the thousand that an Inspection shows is found by its owner, by the beginning of that and by name.
func TestUnlockFindsEveryHolder(t *testing.T) {
	s := server(t)
	c := client(t, s)
	owners := readers(t, s, "x", 2500, 300_000)
	hidden := func() []string {
		in := inspect(t, c, "x")
		var out []string
		for _, o := range owners {
			if !slices.ContainsFunc(in.Holders, func(h redlatch.Holder) bool { return h.Owner == o }) {
				out = append(out, o)
			}
		}
		return out
	}()
	if len(hidden) < 1000 {
		t.Fatalf("%d of %d holders are not shown", len(hidden), len(owners))
	}
	nameConnection(t, s, "redlatch:shop/9:"+hidden[2][:36])
	for i, wanted := range []string{hidden[0], hidden[1][:36], "shop/9"} {
		st, out, errs := call(t, s, "unlock", "x", "--owner", wanted, "--yes")
		if left := s.Do(t, "HEXISTS", "x", hidden[i]); st != 0 || !strings.Contains(out, hidden[i]) {
			t.Errorf("%s: status %d %s", wanted, st, errs)
		} else if n, _ := left.AsInt64(); n != 0 {
			t.Errorf("%s is still there", hidden[i])
		}
	}
	for wanted, status := range map[string]int{hidden[0]: exitOtherOwner, "nobody": exitOtherOwner, "*": exitOtherOwner, "000": exitUsage} {
		if st, _, errs := call(t, s, "unlock", "x", "--owner", wanted, "--yes"); st != status {
			t.Errorf("%s: status %d, not %d: %s", wanted, st, status, errs)
		}
	}
	fields := s.Do(t, "HLEN", "x")
	if left, _ := fields.AsInt64(); left != int64(len(owners)-3+1) { // and the mode
		t.Errorf("%d fields are left of %d readers", left, len(owners))
	}
}

// Readers whose leases have ended are none to take the lock from.
func TestUnlockBesideDeadReaders(t *testing.T) {
	s := server(t)
	owners := readers(t, s, "x", 2500, -1000)
	for _, wanted := range []string{"nobody", owners[0], "0000"} {
		if st, out, errs := call(t, s, "unlock", "x", "--owner", wanted, "--yes"); st == exitError {
			t.Errorf("%s: status %d: %s%s", wanted, st, out, errs)
		}
	}
}

// Anybody can name a connection: with two names for one client nobody is evicted by either.
func TestUnlockRefusesTwoNamesForOneClient(t *testing.T) {
	s := server(t)
	c := client(t, s, named("shop/1"))
	h := hold(t, c.RLock("x"))
	nameConnection(t, s, "redlatch:shop/2:"+c.ID())
	for _, name := range []string{"shop/1", "shop/2"} {
		if st, _, errs := call(t, s, "unlock", "x", "--owner", name, "--yes"); st != exitUsage || !inspect(t, c, "x").Held() || !strings.Contains(errs, "shop/1, shop/2") {
			t.Errorf("%s: status %d: %s", name, st, errs)
		}
	}
	unlock(t, h)
}
