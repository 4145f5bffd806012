package main

import (
	"errors"
	"math"
	"regexp"
	"testing"
	"time"

	"github.com/redlatch/redlatch/bench/internal/work"
)

func TestJainIndex(t *testing.T) {
	for _, c := range []struct {
		counts []float64
		want   float64
	}{
		{[]float64{5, 5, 5, 5}, 1},
		{[]float64{8, 0, 0, 0}, 0.25},
		{[]float64{0, 0}, 0},
	} {
		if got := jainIndex(c.counts); got != c.want {
			t.Errorf("Jain's index of %v is %v, not %v", c.counts, got, c.want)
		}
	}
}

func TestUsage(t *testing.T) {
	u := usage{calls: map[string]int64{}, micros: map[string]int64{}}
	err := u.add("# CPU\r\nused_cpu_sys:1.5\r\nused_cpu_user:2.25\r\nused_cpu_sys_children:9\r\n" +
		"cmdstat_evalsha:calls=10,usec=7,usec_per_call=0.70\r\ncmdstat_set:calls=4,usec=1\r\ncmdstat_pexpire:calls=3,usec=1\r\n")
	if err != nil {
		t.Fatal(err)
	}
	if u.cpu != 3.75 {
		t.Errorf("cpu %v", u.cpu)
	}
	if got := u.sent(nil); got != 10 {
		t.Errorf("%d commands sent, without set", got)
	}
	if got := u.sent([]string{"set"}); got != 14 {
		t.Errorf("%d commands sent, with set", got)
	}
	if got := u.executed([]string{"set"}); got != 8 {
		t.Errorf("%d µs in the commands sent, with set", got)
	}
	if got := u.renewals(); got != 3 {
		t.Errorf("%d renewals", got)
	}
	if err := u.add("cmdstat_get:calls=many\r\n"); err == nil {
		t.Error("nonsense was accepted")
	}
}

func waitsOf(d ...time.Duration) work.Sparse {
	h := work.NewHistogram()
	for _, one := range d {
		h.Add(one)
	}
	return h.Sparse()
}

// TestFiguresAddUpTheProcesses: rates add up, costs are for one acquisition, the longest wait is anybody's.
func TestFiguresAddUpTheProcesses(t *testing.T) {
	f, err := pairFigures(row{}, entry{}, []result{
		{Elapsed: 2 * time.Second, Counts: []uint64{50, 40}, Waits: waitsOf(time.Second), Mallocs: 300, CPU: time.Millisecond},
		{Elapsed: 2 * time.Second, Counts: []uint64{10}, Waits: waitsOf(2*time.Millisecond, 3*time.Millisecond), Mallocs: 100, CPU: time.Millisecond},
	}, usage{calls: map[string]int64{"evalsha": 300}, micros: map[string]int64{"evalsha": 700}}, 0)
	if err != nil {
		t.Fatal(err)
	}
	for unit, want := range map[string]float64{
		"acq/s": 50, "wait-max-ns": 1e9, "jain": 10_000.0 / (3 * 4200), "cmds/acq": 3, "exec-ns/acq": 7000, "allocs/acq": 4, "cli-cpu-ns/acq": 20_000,
	} {
		if got, ok := f.of(unit); !ok || math.Abs(got-want) > want*0.001 {
			t.Errorf("%s is %v, not %v", unit, got, want)
		}
	}
}

// TestUnknownFiguresAreLeftOut: zeros would look like the best of all.
func TestUnknownFiguresAreLeftOut(t *testing.T) {
	f, err := pairFigures(row{}, entry{}, []result{{Elapsed: time.Second, Counts: []uint64{3, 0}}}, usage{}, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, unit := range []string{"cmds/acq", "exec-ns/acq", "srv-cpu-ns/acq", "allocs/acq", "B/acq", "pair-p50-ns"} {
		if v, ok := f.of(unit); ok {
			t.Errorf("%s, which nobody has told, is %v", unit, v)
		}
	}
	if _, err := pairFigures(row{}, entry{}, []result{{Elapsed: time.Second, Counts: []uint64{0}}}, usage{}, 0); !errors.Is(err, errNothing) {
		t.Errorf("nobody acquired the lock: %v", err)
	}
}

// TestServersAreWatchedForAnotherTime: figures of the server are for the acquisitions of the time that it was watched.
func TestServersAreWatchedForAnotherTime(t *testing.T) {
	results := []result{{Elapsed: 2 * time.Second, Counts: []uint64{100}}, {Elapsed: 2 * time.Second, Counts: []uint64{100}}}
	f, err := pairFigures(row{}, entry{}, results, usage{calls: map[string]int64{"evalsha": 300}}, 1500*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	if got, _ := f.of("cmds/acq"); math.Abs(got-2) > 1e-9 {
		t.Errorf("300 commands in 1.5 s, 200 acquisitions in 2 s: %v commands each", got)
	}
}

// benchmarkLine is what benchstat reads: a name with its parts, a count, then values and their units.
var benchmarkLine = regexp.MustCompile(`^Benchmark[A-Z]\S*/lock=[a-z]\S* [1-9]\d*( [-+.e\d]+ [a-zA-Z]\S*)+$`)

// TestLineIsABenchmarks, as benchstat reads them, and its last part is nothing that it takes for GOMAXPROCS.
func TestLineIsABenchmarks(t *testing.T) {
	f := figures{n: 7}
	f.add("acq/s", 1234567.891)
	f.add("wait-p50-ns", 0)
	got := f.line(row{name: "multi/one-node"}, entry{name: "redlatch-fair", build: "now"})
	if want := "BenchmarkMulti/one-node/lock=redlatch-fair/build=now 7 1.23457e+06 acq/s 0 wait-p50-ns"; got != want {
		t.Errorf("%q, not %q", got, want)
	}
	for _, e := range contenders() {
		if regexp.MustCompile(`-\d+$`).MatchString(e.String()) {
			t.Errorf("%s ends like a number of processors", e)
		}
	}
}
