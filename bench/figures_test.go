package main

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"testing"
	"time"

	"github.com/redlatch/redlatch/bench/internal/work"
	"github.com/redlatch/redlatch/internal/testbed"
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
		testbed.Equal(t, jainIndex(c.counts), c.want, c.counts)
	}
}

func TestUsage(t *testing.T) {
	u := usage{calls: map[string]int64{}, micros: map[string]int64{}}
	err := u.add("# CPU\r\nused_cpu_sys:1.5\r\nused_cpu_user:2.25\r\nused_cpu_sys_children:9\r\n" +
		"cmdstat_evalsha:calls=10,usec=7,usec_per_call=0.70\r\ncmdstat_set:calls=4,usec=1\r\ncmdstat_pexpire:calls=3,usec=1\r\n")
	testbed.Must(t, err)
	got := []any{u.cpu, u.sent(nil), u.sent([]string{"set"}), u.executed([]string{"set"}), u.renewals()}
	testbed.Equal(t, fmt.Sprint(got...), "3.75 10 14 8 3", "CPU, commands without and with SET, their µs, renewals")
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

// TestFigures: rates of the processes add up, costs are for one acquisition, the longest wait is anybody's. What nobody has
// told is left out: a zero would look like the best of all.
func TestFigures(t *testing.T) {
	const ms = time.Millisecond
	unknown := math.NaN()
	for name, tc := range map[string]struct {
		results []result
		server  usage
		watched time.Duration
		want    map[string]float64
	}{
		"two processes": {[]result{
			{Elapsed: 2 * time.Second, Counts: []uint64{50, 40}, Waits: waitsOf(time.Second), Mallocs: 300, CPU: ms},
			{Elapsed: 2 * time.Second, Counts: []uint64{10}, Waits: waitsOf(2*ms, 3*ms), Mallocs: 100, CPU: ms},
		}, usage{calls: map[string]int64{"evalsha": 300}, micros: map[string]int64{"evalsha": 700}}, 0, map[string]float64{
			"acq/s": 50, "wait-max-ns": 1e9, "jain": 10_000.0 / (3 * 4200), "cmds/acq": 3, "exec-ns/acq": 7000, "allocs/acq": 4, "cli-cpu-ns/acq": 20_000,
		}},
		"nothing told": {[]result{{Elapsed: time.Second, Counts: []uint64{3, 0}}}, usage{}, 0, map[string]float64{
			"cmds/acq": unknown, "exec-ns/acq": unknown, "srv-cpu-ns/acq": unknown, "allocs/acq": unknown, "B/acq": unknown, "pair-p50-ns": unknown,
		}},
		"300 commands in the 1.5 s that the server is watched, 200 acquisitions in 2 s": {
			[]result{{Elapsed: 2 * time.Second, Counts: []uint64{100}}, {Elapsed: 2 * time.Second, Counts: []uint64{100}}},
			usage{calls: map[string]int64{"evalsha": 300}}, 1500 * ms, map[string]float64{"cmds/acq": 2},
		},
	} {
		f, err := pairFigures(row{}, entry{}, tc.results, tc.server, tc.watched)
		testbed.Must(t, err)
		for unit, want := range tc.want {
			if got, ok := f.of(unit); ok == math.IsNaN(want) || math.Abs(got-want) > want*0.001 {
				t.Errorf("%s: %s is %v, %t, not %v", name, unit, got, ok, want)
			}
		}
	}
	if _, err := pairFigures(row{}, entry{}, []result{{Elapsed: time.Second, Counts: []uint64{0}}}, usage{}, 0); !errors.Is(err, errNothing) {
		t.Errorf("nobody acquired the lock: %v", err)
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
	testbed.Equal(t, got, "BenchmarkMulti/one-node/lock=redlatch-fair/build=now 7 1.23457e+06 acq/s 0 wait-p50-ns")
	for _, e := range contenders() {
		if regexp.MustCompile(`-\d+$`).MatchString(e.String()) {
			t.Errorf("%s ends like a number of processors", e)
		}
	}
}
