package main

import (
	"math"
	"testing"
	"time"
)

func TestPercentile(t *testing.T) {
	values := func(ms ...int) []time.Duration {
		var d []time.Duration
		for _, v := range ms {
			d = append(d, time.Duration(v)*time.Millisecond)
		}
		return d
	}
	hundred := make([]int, 100)
	for i := range hundred {
		hundred[i] = 100 - i
	}
	for _, test := range []struct {
		name   string
		values []time.Duration
		p      float64
		want   int
	}{
		{"none", nil, 50, 0},
		{"one", values(7), 99, 7},
		{"of two, the lower is the median", values(9, 3), 50, 3},
		{"median of five", values(5, 1, 4, 2, 3), 50, 3},
		{"p99 of a hundred", values(hundred...), 99, 99},
		{"p100 is the largest", values(hundred...), 100, 100},
		{"p0 is the smallest", values(hundred...), 0, 1},
	} {
		if got := percentile(test.values, test.p); got != time.Duration(test.want)*time.Millisecond {
			t.Errorf("%s: got %v, want %d ms", test.name, got, test.want)
		}
	}
}

func TestJain(t *testing.T) {
	for _, test := range []struct {
		name   string
		shares []int
		want   float64
	}{
		{"nobody", nil, 0},
		{"nothing", []int{0, 0}, 0},
		{"equal", []int{5, 5, 5, 5}, 1},
		{"one has all", []int{12, 0, 0, 0}, 0.25},
		{"half", []int{1, 1, 0, 0}, 0.5},
		{"uneven", []int{1, 3}, 0.8},
	} {
		if got := jain(test.shares); math.Abs(got-test.want) > 1e-9 {
			t.Errorf("%s: got %v, want %v", test.name, got, test.want)
		}
	}
}

// TestFairnessWindow: a process that goes on alone, when the others have served
// all their buyers, does not count as unfair; one that was starved does.
func TestFairnessWindow(t *testing.T) {
	start := time.Now()
	turn := func(worker, ms int) entry {
		return entry{Worker: worker, At: start.Add(time.Duration(ms) * time.Millisecond), Wait: time.Duration(ms) * time.Millisecond}
	}
	even := outline{results: []result{
		{Entries: []entry{turn(0, 1), turn(0, 3)}},
		{Entries: []entry{turn(1, 2), turn(1, 3), turn(1, 8), turn(1, 9)}},
	}}
	if index, longest := even.fairness(2); index != 1 || longest != 9*time.Millisecond {
		t.Errorf("alternating: index %v, longest %v; want 1 and 9 ms", index, longest)
	}
	starved := outline{results: []result{
		{Entries: []entry{turn(0, 1), turn(0, 2), turn(0, 3)}},
		{Entries: []entry{turn(1, 2), turn(1, 8), turn(1, 9)}},
	}}
	if index, _ := starved.fairness(2); math.Abs(index-0.8) > 1e-9 {
		t.Errorf("starved: index %v, want 0.8 (3 turns to 1)", index)
	}
}

func TestThousands(t *testing.T) {
	for n, want := range map[int]string{0: "0", 999: "999", 1000: "1,000", 12345: "12,345", 1234567: "1,234,567", -1234: "-1,234"} {
		if got := thousands(n); got != want {
			t.Errorf("%d: got %q, want %q", n, got, want)
		}
	}
}

// TestLoad: the same seed gives the same load, every click belongs to exactly
// one process, and a buyer's clicks go to different ones.
func TestLoad(t *testing.T) {
	l := load{Buyers: 1000, Processes: 3, Seed: 7, SlowEvery: 50}
	all := l.clicks()
	byUser := map[int]int{}
	for i, c := range all {
		byUser[c.user]++
		if c.nr != i || c != l.clicks()[i] {
			t.Fatalf("click %d is not repeatable: %+v", i, c)
		}
		if i > 0 && all[i-1].user == c.user && (i-1)%l.Processes == i%l.Processes {
			t.Fatalf("clicks %d and %d of one buyer go to one process", i-1, i)
		}
	}
	if len(byUser) != l.Buyers || len(all) < l.Buyers*5/4 {
		t.Errorf("%d buyers with %d clicks; want %d buyers, a quarter of whom click again", len(byUser), len(all), l.Buyers)
	}
	served := 0
	for p := range l.Processes {
		served += len(l.clicksOf(p))
	}
	if served != len(all) {
		t.Errorf("the processes serve %d clicks of %d", served, len(all))
	}
}
