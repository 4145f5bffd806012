package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/luascript"
)

// ls finds all that a process holds and waits for, and all processes of a lock, however many there are; the members of
// a MultiLock stand together.
func TestLsByProcess(t *testing.T) {
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
	waits := make(chan redlatch.Hold, 1)
	go func() { // ends with the lock
		h, err := last.FairLock("queue").Lock(t.Context())
		if err != nil {
			t.Error(err)
		}
		waits <- h
	}()
	untilState(t, last, "queue", func(in redlatch.Inspection) bool { return in.QueueLength == 1 })

	lines := func(args ...string) []string {
		st, out, errs := call(t, s, append([]string{"ls"}, args...)...)
		if st != 0 {
			t.Errorf("%v: %d %s", args, st, errs)
		}
		return strings.Split(strings.TrimSpace(out), "\n")
	}
	if got := lines("--by", "process"); len(got) != pods+1 || strings.Join(strings.Fields(got[1]), " ") != "pod-19. 3 1 a, b, catalogue, queue" {
		t.Errorf("by process: %d lines: %q", len(got), got)
	}
	if got := lines("--by", "host"); len(got) != 2 || !strings.HasPrefix(strings.Join(strings.Fields(got[1]), " "), "127.0.0.1 23 1 a, b, catalogue") {
		t.Errorf("by host: %q", got)
	}
	if got := lines("--by", "owner", "--process", "pod-19."); len(got) != 4 || strings.Join(strings.Fields(got[1])[2:], " ") != "2 0 a, b" {
		t.Errorf("by owner: %q", got)
	}
	if got := lines("--process", "pod-19."); len(got) != 5 {
		t.Errorf("of a process: %q", got)
	}
	var parties []party
	if err := json.Unmarshal([]byte(strings.Join(lines("--by", "process", "-o", "json"), "\n")), &parties); err != nil || len(parties) != pods || len(parties[0].Holds) != 3 {
		t.Errorf("%v %+v", err, parties)
	}
	for _, args := range [][]string{{"--by", "odd"}, {"--sort", "odd"}} {
		if st, _, errs := call(t, s, append([]string{"ls"}, args...)...); st != exitUsage {
			t.Errorf("%v: %d %s", args, st, errs)
		}
	}
	unlock(t, both)
	unlock(t, queue)
	unlock(t, <-waits)
}

// ls has the orders of top.
func TestLsSort(t *testing.T) {
	s := server(t)
	c := client(t, s)
	late, early := hold(t, c.RLock("a")), time.Now().Add(-time.Hour)
	s.Do(t, "HSET", "b", c.ID()+":g1-"+strconv.FormatInt(early.UnixMilli(), 36)+".1", "1")
	s.Do(t, "PEXPIRE", "b", "300000")
	defer s.Do(t, "DEL", "b")
	for order, first := range map[string]string{"name": "a ", "held": "b "} {
		if _, out, errs := call(t, s, "ls", "--sort", order); !strings.HasPrefix(strings.Split(out, "\n")[1], first) {
			t.Errorf("by %s: %s%s", order, out, errs)
		}
	}
	unlock(t, late)
}

// Where nothing is found, what there is elsewhere is named: the prefix, or the pattern, may be wrong.
func TestLsWrongPrefix(t *testing.T) {
	s := server(t)
	defer unlock(t, hold(t, client(t, s, func(c *redlatch.Config) { c.Prefix = "shop:" }).RLock("orders:1")))
	for _, args := range [][]string{{"--prefix", "store:"}, {"orders:*"}} {
		if st, out, errs := call(t, s, append([]string{"ls"}, args...)...); st != 0 || out != "" || !strings.Contains(errs, `; found "shop:orders:1"`) {
			t.Errorf("%v: %d %s%s", args, st, out, errs)
		}
	}
	_, _, errs := call(t, s, "ls", "--prefix", "store:")
	need(t, errs, `nothing under the prefix "store:"`)
	if st, out, errs := call(t, s, "ls", "--prefix", "shop:"); st != 0 || errs != "" || !strings.Contains(out, "orders:1") {
		t.Errorf("%d %s%s", st, out, errs)
	}
}

// show and ls name the processes that wait for a plain lock; a holder that is gone, and one of whom nothing may be known,
// look different.
func TestShowWhoWaits(t *testing.T) {
	s := server(t)
	c, w := client(t, s, named("shop/1")), client(t, s, named("shop/2"))
	h := hold(t, c.RLock("x"))
	waits := make(chan redlatch.Hold, 1)
	go func() { // ends with the lock
		h, err := w.RLock("x").Lock(t.Context())
		if err != nil {
			t.Error(err)
		}
		waits <- h
	}()
	untilState(t, c, "x", func(in redlatch.Inspection) bool { return len(in.Waiting) == 1 && in.Waiting[0].Client != "" })
	_, out, _ := call(t, s, "show", "x")
	need(t, out, "Waiting processes (1)", "shop/2 ", "127.0.0.1:")
	if _, out, _ := call(t, s, "ls", "--by", "process", "--process", "shop/2"); strings.Join(strings.Fields(out), " ") != "PROCESS HOLDS WAITS LOCKS shop/2 0 1 x" {
		t.Error(out)
	}
	p := serving(t, s)
	need(t, p.event("lock", "x"), `"waiting":[{`, `"shop/2"`)
	unlock(t, h)
	unlock(t, <-waits)

	const gone = "8743c9c0-0795-4907-87fd-6c719a6b4586"
	s.Do(t, "HSET", "x", gone+":g1-mwr9e5v7.1", "1")
	s.Do(t, "HSET", "y", gone+":57", "1")
	defer s.Do(t, "DEL", "x", "y")
	_, out, _ = call(t, s, "ls")
	need(t, out, gone+" (gone?)", gone+" (Java)")
	s.Do(t, "ACL", "SETUSER", "default", "-client|list")
	defer s.Do(t, "ACL", "SETUSER", "default", "+client|list")
	_, out, _ = call(t, s, "show", "x")
	need(t, out, gone+" (not known)")
}

// show tells of a job of Once when it ran, by whom, and when it is due.
func TestShowJob(t *testing.T) {
	s := server(t)
	if _, err := client(t, s, named("cron/1")).Once("nightly").Do(t.Context(), time.Hour, func(context.Context) error { return nil }); err != nil {
		t.Fatal(err)
	}
	defer s.Do(t, "DEL", luascript.OnceKey("nightly"))
	st, out, errs := call(t, s, "show", "nightly")
	if st != 0 || errs != "" {
		t.Errorf("%d %s", st, errs)
	}
	need(t, out, "nightly  free", "Last run as a job of Once: ", " ago, by cron/1; the next is due in 59m")
	_, out, _ = call(t, s, "show", "nightly", "-o", "json")
	var got struct {
		Name string
		Last redlatch.OnceRun `json:"last_run"`
	}
	if err := json.Unmarshal([]byte(out), &got); err != nil || got.Name != "nightly" || got.Last.Client != "cron/1" || time.Since(got.Last.Began).Abs() > time.Minute {
		t.Errorf("%v %s", err, out)
	}
	if _, out, _ := call(t, s, "show", "other"); strings.Contains(out, "Last run") {
		t.Error(out)
	}
}
