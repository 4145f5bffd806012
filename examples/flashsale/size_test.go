package main

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/redlatch/redlatch/examples/internal/demoserver"
	"github.com/redlatch/redlatch/internal/testbed"
)

// TestTheSaleFitsTheServer: a server behind a slow line gets a smaller sale than
// the same server nearby, and the locks sell out on both.
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
		if !regexp.MustCompile(`(?m)^rlock +` + found[1] + ` +0 +0 +0 .* exact$`).MatchString(out.String()) {
			t.Error("the lock did not sell out")
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
	s := &schedule{over: time.Now().Add(time.Minute), clicks: 10, click: []time.Duration{100 * time.Millisecond, 2 * time.Second, time.Second}}
	for nr, want := range []time.Duration{30 * time.Second, 50 * time.Second, time.Minute} {
		if got := s.limit(nr); got > want || got < want-5*time.Second {
			t.Errorf("strategy %d may take %v, want %v", nr, got, want)
		}
	}
	s.over = time.Now().Add(-time.Minute)
	testbed.Equal(t, s.limit(0), time.Second, "after the end of the day")
}

// TestWrongRatesAreInBrackets: the rate of a sale that went wrong must not be
// read as speed.
func TestWrongRatesAreInBrackets(t *testing.T) {
	for _, tc := range []struct {
		sold int
		want string
	}{{10, " 10 "}, {12, " (12) "}} {
		var out strings.Builder
		printRow(&out, row{strategy: strategy{name: "setnx"}, stock: 10, sold: tc.sold, left: max(0, 10-tc.sold), took: time.Second})
		if !strings.Contains(out.String(), tc.want) {
			t.Errorf("%d sold of 10 in a second: %q lacks %q", tc.sold, out.String(), tc.want)
		}
	}
}
