package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/redlatch/redlatch/examples/internal/demoserver"
	"github.com/redlatch/redlatch/internal/testbed"
)

// TestTheSaleFitsTheServer: a server behind a slow line gets a smaller sale than
// the same server nearby, the locks sell out on both, and the sentence at the end
// says so.
func TestTheSaleFitsTheServer(t *testing.T) {
	server := startServer(t, demoserver.Private)
	far := testbed.NewProxy(t, strings.TrimPrefix(server.URL, "redis://"))
	far.Delay(testbed.Requests, 5*time.Millisecond)
	far.Delay(testbed.Replies, 5*time.Millisecond)

	stockOf := func(url string) int {
		t.Helper()
		var out strings.Builder
		began := time.Now()
		good, err := run(t.Context(), []string{"-redis", url, "-strategy", "none,rlock", "-for", "3s"}, &out)
		t.Logf("\n%s", out.String())
		if err != nil || !good {
			t.Fatalf("got %t, %v; want a good run", good, err)
		}
		if took := time.Since(began); took > 3*time.Second+spareTime {
			t.Errorf("it took %v", took)
		}
		found := regexp.MustCompile(`(?m)^([0-9,]+) to sell`).FindStringSubmatch(out.String())
		if found == nil {
			t.Fatal("it does not say how much there is to sell")
		}
		if want := "the exact strategy sold exactly " + found[1] + ", and nobody got two"; !strings.Contains(out.String(), want) {
			t.Errorf("the last sentence lacks %q", want)
		}
		var stock int
		if _, err := fmt.Sscan(strings.ReplaceAll(found[1], ",", ""), &stock); err != nil {
			t.Fatal(err)
		}
		return stock
	}
	near, away := stockOf(server.URL), stockOf("redis://"+far.Addr())
	for range 2 {
		if away >= near { // a machine that stands still while the server is measured makes the sale small
			near = stockOf(server.URL)
		}
	}
	if away >= near {
		t.Errorf("%d to sell nearby, %d behind 10 ms more: not sized", near, away)
	}
	nothingLeft(t, server)
}

// TestTheDayHasAnEnd: a strategy may take what the others leave, and not what
// they will need.
func TestTheDayHasAnEnd(t *testing.T) {
	s := &schedule{over: time.Now().Add(time.Minute), takes: []time.Duration{time.Second, 20 * time.Second, 10 * time.Second}}
	for nr, want := range []time.Duration{30 * time.Second, 50 * time.Second, time.Minute} {
		if got := s.limit(nr); got > want || got < want-5*time.Second {
			t.Errorf("strategy %d may take %v, want %v", nr, got, want)
		}
	}
	s.over = time.Now().Add(-time.Minute)
	if got := s.limit(0); got != time.Second {
		t.Errorf("after the end of the day it may take %v, want a second", got)
	}
}

// TestProgress: a log gets a line now and then, without control characters.
func TestProgress(t *testing.T) {
	file, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	p := newProgress(file)
	p.say("not yet %d", 1)
	p.last = time.Now().Add(-progressEvery)
	p.say("now %d", 2)
	p.say("not again %d", 3)
	p.clear()
	if text, err := os.ReadFile(file.Name()); err != nil || string(text) != "... now 2\n" {
		t.Errorf("the log has %q, %v", text, err)
	}
}

// TestWrongRatesAreInBrackets: the rate of a sale that went wrong must not be
// read as speed.
func TestWrongRatesAreInBrackets(t *testing.T) {
	l := load{Stock: 10}
	for _, tc := range []struct {
		sold int
		want string
	}{{10, " 10 "}, {12, " (12) "}} {
		var out strings.Builder
		o := outline{spec: spec{name: "setnx"}, audit: audit{Sold: tc.sold, Left: max(0, 10-tc.sold)}, took: time.Second}
		if tc.sold > 10 {
			o.audit.Problems = []string{"2 oversold"}
		}
		printRow(&out, l, o)
		if !strings.Contains(out.String(), tc.want) {
			t.Errorf("%d sold of 10 in a second: %q lacks %q", tc.sold, out.String(), tc.want)
		}
	}
}

// TestTheSentence names what went wrong and what did not.
func TestTheSentence(t *testing.T) {
	l := load{Stock: 100}
	row := func(name string, exact bool, a audit, turned int) outline {
		return outline{spec: spec{name: name, exact: exact}, audit: a, results: []result{{Turned: turned}}}
	}
	none := row("none", false, audit{Sold: 120, Twice: 1, Problems: []string{"20 oversold"}}, 0)
	exact := row("rlock", true, audit{Sold: 100}, 0)
	for _, tc := range []struct {
		rows []outline
		want string
	}{
		{[]outline{none, exact, exact}, "without a lock 20 too many were sold and 1 buyer got two; " +
			"each of the 2 exact strategies sold exactly 100, and nobody got two"},
		{[]outline{row("setnx", false, audit{Sold: 100}, 0)}, "with SET NX and a blind DEL nothing went wrong this time"},
		{[]outline{row("rw", true, audit{Sold: 60, Left: 40}, 50)}, "rw closed before all was sold, and was exact until then"},
		{[]outline{row("fair", true, audit{Sold: 101, Problems: []string{"1 oversold"}}, 0)}, "fair FAILED, which must not happen"},
	} {
		if got := sentence(l, tc.rows); got != tc.want {
			t.Errorf("got  %s\nwant %s", got, tc.want)
		}
	}
	var out strings.Builder
	if conclude(&out, l, []outline{row("none", false, audit{Sold: 100}, 0)}) {
		t.Error("a demo in which nothing fails was taken for one that shows something")
	}
}
