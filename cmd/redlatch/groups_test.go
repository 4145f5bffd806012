package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/luascript"
	"github.com/redlatch/redlatch/internal/testbed"
)

// ls finds all that a process holds and waits for, and all processes of a lock, however many there are; the members of
// a MultiLock stand together.
func TestLsByProcess(t *testing.T) {
	t.Parallel()
	s := server(t)
	const pods = 20 // a list has sixteen
	var clients []*redlatch.Client
	for i := range pods {
		c := client(t, s, named(fmt.Sprintf("pod-%d.", i)))
		clients = append(clients, c)
		defer unlock(t, hold(t, c.ReadWriteLock("catalogue").ReadLock()))
	}
	last := clients[pods-1]
	queue := hold(t, clients[0].FairLock("queue"))
	both := hold(t, redlatch.MultiLock(last.RLock("a"), last.RLock("b")))
	waits := waiting(t, t.Context(), last.FairLock("queue"))
	untilQueued(t, last, "queue", 1)

	const all = "a, b, catalogue, queue"
	for _, tc := range []struct {
		args  []string
		rows  int
		first string // has this
	}{
		{[]string{"--by", "process"}, pods, "pod-19. 3 1 " + all},
		{[]string{"--by", "host"}, 1, "127.0.0.1 23 1 " + all},
		{[]string{"--by", "owner", "--process", "pod-19."}, 3, " 2 0 a, b"},
		{[]string{"--process", "pod-19."}, 4, "a reentrant lock pod-19."},
	} {
		rows := call(t, s, append([]string{"ls"}, tc.args...)...).rows()
		if len(rows) != tc.rows || !strings.Contains(rows[0], tc.first) {
			t.Errorf("%v: %d rows: %q", tc.args, len(rows), rows)
		}
	}
	parties := decoded[[]party](t, call(t, s, "ls", "--by", "process", "-o", "json").out)
	if len(parties) != pods || len(parties[0].Holds) != 3 {
		t.Errorf("%+v", parties)
	}
	call(t, s, "ls", "--by", "odd").fails(exitUsage)
	call(t, s, "ls", "--sort", "odd").fails(exitUsage)
	unlock(t, both, queue)
	unlock(t, <-waits)
}

// The copies of a quorum's hold are on several servers: one look shows on which, as the runbook prints the command. A
// server that does not answer is named, and hides no other. It is freed at each.
func TestLsQuorum(t *testing.T) {
	t.Parallel()
	var servers []*testbed.Server
	var copies []redlatch.Member
	for range 3 {
		s := server(t)
		c := client(t, s, named("shop/1"))
		if servers == nil {
			unlock(t, hold(t, c.RLock("other"))) // no Client counts for itself
		}
		servers, copies = append(servers, s), append(copies, c.RLock("x"))
	}
	a, b, c := servers[0], servers[1], servers[2]
	hosts := strings.NewReplacer("a.internal:6379", a.Addr(), "b.internal:6379", b.Addr(), "c.internal:6379", c.Addr())
	asPrinted := strings.Fields(hosts.Replace(inRunbook(t, "redlatch ls --by owner -u ")))[1:]
	h := hold(t, redlatch.QuorumLock(copies...))
	var rows []string
	until(t, "each has a copy", func() bool {
		rows = call(t, nil, asPrinted...).rows()
		return len(rows) == 1 && strings.Contains(rows[0], "3 of 3")
	}, func() string { return strings.Join(rows, "\n") })
	all := slices.Sorted(slices.Values([]string{a.Addr(), b.Addr(), c.Addr()}))
	if row := rows[0]; !strings.HasPrefix(row, "shop/1 g") || !strings.HasSuffix(row, " 3 0 x 3 of 3: "+strings.Join(all, ", ")) {
		t.Errorf("%q", row)
	}

	list := call(t, nil, append(slices.DeleteFunc(slices.Clone(asPrinted), func(word string) bool { return word == "--by" || word == "owner" }), "-o", "json")...)
	if locks := decoded[[]struct{ Server string }](t, list.out); len(locks) != 3 || locks[2].Server != all[2] {
		t.Errorf("%+v", locks)
	}
	call(t, nil, "show", "x", "-u", "redis://"+a.Addr(), "-u", "redis://"+b.Addr()).fails(exitUsage, "only ls")

	b.Freeze(t)
	t.Cleanup(func() { b.Thaw(t) })
	left := call(t, nil, append(asPrinted, "--timeout", "1s")...).ends(exitUnavailable, "shop/1 g", " 2 of 3: ", a.Addr(), c.Addr())
	left.warns(b.Addr() + ": ")
	parties := decoded[[]party](t, call(t, nil, append(asPrinted, "--timeout", "1s", "-o", "json")...).ends(exitUnavailable).out)
	if len(parties) != 1 || parties[0].Asked != 3 || len(parties[0].Servers) != 2 || !slices.Equal(parties[0].Servers[c.Addr()], []string{"x"}) {
		t.Errorf("%+v", parties)
	}
	b.Thaw(t)
	for _, s := range servers {
		call(t, s, "unlock", "x", "--owner", "shop/1", "--yes").ends(exitOK) // a copy may have ended by itself
	}
	taken(t, h)
}

// Who only waits has nothing on any server, and a lock that one of a process waits for and another holds is named once.
func TestLsOfWhoWaits(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	screen{}.parties(&out, "owner", []*party{
		{Name: "shop/1 g1", Waits: []string{"x"}, Asked: 2}, {Name: "shop/2 g1", Holds: []string{"x", "y"}, Waits: []string{"x", "z"}},
	}, " SERVERS")
	if text := out.String(); !strings.Contains(text, "  0 of 2\n") || !strings.Contains(text, " x, y, z ") {
		t.Error(text)
	}
}

// A killed process has no name: its copies on several servers are told to be of one by the ends of its Clients' ids.
func TestLsQuorumOfTheDead(t *testing.T) {
	t.Parallel()
	var urls []string
	for i := range 2 {
		s := server(t)
		defer s.Do(t, "DEL", "x", "y")
		s.Do(t, "HSET", "x", fmt.Sprintf("%08d-d45d-4d97-92c2-f58ab8a79cc6:g1-mwr9e5v7.1", i), "1")
		s.Do(t, "HSET", "y", fmt.Sprintf("%08d-d45d-4d97-92c2-f58a11111111:g1-mwr9e5v7.1", i), "1")
		urls = append(urls, "-u", "redis://"+s.Addr())
	}
	rows := call(t, nil, append(urls, "ls", "--by", "owner")...).rows()
	if len(rows) != 2 || !strings.Contains(rows[1], " (gone?) g1 2 0 x 2 of 2: ") {
		t.Errorf("%q", rows)
	}
}

// inRunbook is the command of the runbook that begins so.
func inRunbook(t *testing.T, begins string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "OPERATIONS.md"))
	testbed.Must(t, err)
	for line := range strings.Lines(string(text)) {
		if command, _, _ := strings.Cut(line, "#"); strings.HasPrefix(command, begins) {
			return strings.TrimSpace(command)
		}
	}
	t.Fatalf("docs/OPERATIONS.md has no command %q", begins)
	return ""
}

// ls has the orders of top.
func TestLsSort(t *testing.T) {
	s, c := beside(t)
	late, early := hold(t, c.RLock("a")), time.Now().Add(-time.Hour)
	s.Do(t, "HSET", "b", c.ID()+":g1-"+strconv.FormatInt(early.UnixMilli(), 36)+".1", "1")
	s.Do(t, "PEXPIRE", "b", "300000")
	for name, since := range map[string]time.Time{"a": time.Now(), "b": early} { // processes that wait
		s.Do(t, "ZADD", "redlatch_wait:{"+name+"}", strconv.FormatInt(since.UnixMicro(), 10), c.ID())
	}
	defer s.Do(t, "DEL", "b", "redlatch_wait:{a}", "redlatch_wait:{b}")
	for order, first := range map[string]string{"name": "a ", "held": "b ", "waiter": "b "} {
		if rows := call(t, s, "ls", "--sort", order).rows(); !strings.HasPrefix(rows[0], first) {
			t.Errorf("by %s: %q", order, rows)
		}
	}
	unlock(t, late)
}

// Where nothing is found, what there is elsewhere is named: the prefix, or the pattern, may be wrong.
func TestLsWrongPrefix(t *testing.T) {
	t.Parallel()
	s := server(t)
	defer unlock(t, hold(t, client(t, s, func(c *redlatch.Config) { c.Prefix = "shop:" }).RLock("orders:1")))
	const found = `; found "shop:orders:1"`
	call(t, s, "ls", "orders:*").fails(exitOK, found)
	call(t, s, "ls", "--prefix", "store:").fails(exitOK, found, `nothing under the prefix "store:"`)
	call(t, s, "ls", "--prefix", "shop:").ends(exitOK, "orders:1").warns()
}

// show and ls name the processes that wait for a plain lock; a holder that is gone, and one of whom nothing may be known,
// look different.
func TestShowWhoWaits(t *testing.T) {
	s, c := beside(t, named("shop/1"))
	w := client(t, s, named("shop/2"))
	h := hold(t, c.RLock("x"))
	waits := waiting(t, t.Context(), w.RLock("x"))
	untilState(t, c, "x", func(in redlatch.Inspection) bool { return len(in.Waiting) == 1 && in.Waiting[0].Client != "" })
	call(t, s, "show", "x").ends(exitOK, "Waiting processes (1)", "shop/2 ", "127.0.0.1:")
	rows := call(t, s, "ls", "--by", "process", "--process", "shop/2").rows()
	testbed.Equal(t, strings.Join(rows, "\n"), "shop/2 0 1 x", "rows")
	need(t, serving(t, s).event("lock", "x"), `"waiting":[{`, `"shop/2"`)
	unlock(t, h)
	unlock(t, <-waits)

	const gone = "8743c9c0-0795-4907-87fd-6c719a6b4586"
	s.Do(t, "HSET", "x", gone+":g1-mwr9e5v7.1", "1")
	s.Do(t, "HSET", "y", gone+":57", "1")
	s.Do(t, "ZADD", "redlatch_wait:{y}", "1", gone)
	defer s.Do(t, "DEL", "x", "y", "redlatch_wait:{y}")
	call(t, s, "ls").ends(exitOK, gone+" (gone?)", gone+" (Java)")
	call(t, s, "show", "y").ends(exitOK, gone+" (Java)", gone+" (gone?)")
	s.Do(t, "ACL", "SETUSER", "default", "-client|list")
	defer s.Do(t, "ACL", "SETUSER", "default", "+client|list")
	call(t, s, "show", "x").ends(exitOK, gone+" (not known)")
	call(t, s, "show", "y").ends(exitOK, gone+" (Java)", gone+" (not known)")
}

// show tells of a job of Once when it ran, by whom, and when it is due.
func TestShowJob(t *testing.T) {
	t.Parallel()
	s := server(t)
	job := func(context.Context) error { return nil }
	_, err := client(t, s, named("cron/1")).Once("nightly").Do(t.Context(), time.Hour, job)
	testbed.Must(t, err)
	defer s.Do(t, "DEL", luascript.OnceKey("nightly"))
	call(t, s, "show", "nightly").
		ends(exitOK, "nightly  free", "Last run as a job of Once: ", " ago, by cron/1; the next is due in 59m").warns()
	got := decoded[struct {
		Name string
		Last redlatch.OnceRun `json:"last_run"`
	}](t, call(t, s, "show", "nightly", "-o", "json").out)
	if got.Name != "nightly" || got.Last.Client != "cron/1" || time.Since(got.Last.Began).Abs() > time.Minute {
		t.Errorf("%+v", got)
	}
	c := client(t, s)
	_, err = c.Once("gone").Do(t.Context(), time.Hour, job)
	testbed.Must(t, err)
	defer s.Do(t, "DEL", luascript.OnceKey("gone"))
	c.Close()
	call(t, s, "show", "gone").ends(exitOK, ", by "+c.ID()+" (gone?); the next")
	lacks(t, call(t, s, "show", "other").out, "Last run")
}
