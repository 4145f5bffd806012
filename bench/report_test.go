package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
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
	if got := least([]float64{10, 20, 30}); got != 0.5 {
		t.Errorf("the least share is %v", got)
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

func exampleOutcome() outcome {
	three := func(m metric, a, b, c float64) []figures { return []figures{{m: a}, {m: b}, {m: c}} }
	return outcome{
		row: row{
			name: "example", title: "an example", columns: []metric{throughput}, main: throughput, against: "limit",
			goals: []goal{
				{contender: "ours", metric: throughput, atLeast: true, factor: 1.15, of: bestPeer},
				{contender: "ours", metric: throughput, atLeast: true, factor: 0.95, of: "limit"},
				{contender: "ours", metric: throughput, factor: 1e6},
				{contender: "ours", metric: throughput, atLeast: true, factor: 2, of: "ours", ofRow: "before"},
				{contender: "absent", metric: throughput, factor: 1},
			},
		},
		entries: []entry{{name: "ours"}, {name: "slow", role: peer}, {name: "fast", role: peer}, {name: "limit", role: mark}},
		rounds: map[string][]figures{
			"ours": three(throughput, 36000, 1, 24000), "slow": three(throughput, 3, 2, 1),
			"fast": three(throughput, 20000, 20000, 20000), "limit": three(throughput, 30000, 30000, 30000),
		},
		earlier: map[string]outcome{"before": {entries: []entry{{name: "ours"}}, rounds: map[string][]figures{"ours": three(throughput, 8000, 8000, 8000)}}},
	}
}

func TestTable(t *testing.T) {
	var text, markdown bytes.Buffer
	exampleOutcome().write(&text, false)
	exampleOutcome().write(&markdown, true)
	for _, want := range []string{
		"example: an example (medians of 3 rounds)",
		"ours       24,000    1.00 – 36,000    1.20     0.80",
		"goal reached: ours: acq/s ≥ 1.15 × the best peer (1.20)",
		"goal missed: ours: acq/s ≥ 0.95 × limit (0.80)",
		"goal reached: ours: acq/s ≤ 1,000,000 (24,000)",
		"goal reached: ours: acq/s ≥ 2.00 × ours in before (3.00)",
	} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("no %q in\n%s", want, &text)
		}
	}
	if strings.Contains(text.String(), "absent") {
		t.Errorf("a goal about nothing is shown:\n%s", &text)
	}
	if want := "| ours | 24,000 | 1.00 – 36,000 | 1.20 | 0.80 |\n"; !strings.Contains(markdown.String(), want) {
		t.Errorf("no %q in\n%s", want, &markdown)
	}
}

func TestShort(t *testing.T) {
	for v, want := range map[float64]string{
		0: "0", 0.5: "0.50", 0.99951: "0.9995", 1: "1.00", 12.34: "12.3", 123.4: "123", 1234567: "1,234,567", -4321: "-4,321",
	} {
		if got := short(v); got != want {
			t.Errorf("%v is shown as %s, not %s", v, got, want)
		}
	}
}

// TestRunWritesEverything goes through the program as a user does.
func TestRunWritesEverything(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "out.json")
	var out bytes.Buffer
	args := []string{
		"-rounds", "2", "-duration", "50ms", "-only", "^uncontended/16$", "-contenders", "^limit$|^redislock$",
		"-json", file, "-cpuprofile", filepath.Join(dir, "cpu"), "-markdown",
	}
	if err := run(t.Context(), args, &out, t.Output()); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), "| limit |") {
		t.Errorf("no table in\n%s", &out)
	}
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var rep report
	if err := json.Unmarshal(data, &rep); err != nil {
		t.Fatal(err)
	}
	if rep.Machine.Server == "" || len(rep.Rows) != 1 || len(rep.Rows[0].Contenders) != 2 ||
		len(rep.Rows[0].Contenders[0].Rounds) != 2 || rep.Rows[0].Contenders[0].Medians[throughput] <= 0 {
		t.Errorf("the file holds %s", data)
	}
	profilesLie(t, filepath.Join(dir, "cpu-uncontended-16-limit-*.pprof"), 2)
}

// profilesLie wants n files of that pattern, with something in them.
func profilesLie(t *testing.T, pattern string, n int) {
	t.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) != n {
		t.Errorf("%s: %v, %v", pattern, files, err)
	}
	for _, name := range files {
		if info, err := os.Stat(name); err != nil || info.Size() == 0 {
			t.Errorf("the profile %s is empty (%v)", name, err)
		}
	}
}

// TestRunWritesProfiles: each process writes its own.
func TestRunWritesProfiles(t *testing.T) {
	dir := t.TempDir()
	args := []string{
		"-rounds", "1", "-duration", "200ms", "-peers", "none", "-only", "^lone/63\\+1$", "-contenders", "^redlatch$",
		"-memprofile", filepath.Join(dir, "mem"), "-trace", filepath.Join(dir, "run"),
	}
	if err := run(t.Context(), args, io.Discard, t.Output()); err != nil {
		t.Fatal(err)
	}
	profilesLie(t, filepath.Join(dir, "mem-lone-63+1-redlatch-0.pprof*"), 2)
	profilesLie(t, filepath.Join(dir, "run-lone-63+1-redlatch-0.trace*"), 2)
}

// TestTurnsAreNoted: one of two processes has the lock, or nobody; -turns tells how long.
func TestTurnsAreNoted(t *testing.T) {
	var out, tables bytes.Buffer
	args := []string{"-rounds", "1", "-duration", "100ms", "-only", "^lone/63\\+1/1ms$", "-contenders", "^redlatch$", "-turns", "-json", "-"}
	if err := run(t.Context(), args, &out, &tables); err != nil {
		t.Fatal(err)
	}
	var rep report
	if err := json.Unmarshal(out.Bytes(), &rep); err != nil {
		t.Fatal(err)
	}
	seen := rep.Rows[0].Contenders[0].Medians
	whole := 100*seen[utilisation] + seen[idleWithin] + seen[idleBetween]
	if seen[stintsSeen] < 2 || whole < 90 || whole > 110 {
		t.Errorf("%v stints; inside and idle make %v %%: %v", seen[stintsSeen], whole, seen)
	}
	if !strings.Contains(tables.String(), string(changeP99)) {
		t.Errorf("no column %q in\n%s", changeP99, &tables)
	}
}

// TestRunWritesForPrograms: with -json - the standard output is JSON and nothing else, with the goals in it.
func TestRunWritesForPrograms(t *testing.T) {
	var out, tables bytes.Buffer
	args := []string{"-rounds", "1", "-duration", "50ms", "-only", "^uncontended/16$", "-contenders", "^redlatch$|^limit$", "-json", "-"}
	if err := run(t.Context(), args, &out, &tables); err != nil {
		t.Fatal(err)
	}
	var rep report
	if err := json.Unmarshal(out.Bytes(), &rep); err != nil {
		t.Fatalf("%v in\n%s", err, &out)
	}
	if len(rep.Rows) != 1 || len(rep.Rows[0].Goals) == 0 || rep.Rows[0].Goals[0].Verdict == unproven {
		t.Errorf("the goals are %+v", rep.Rows)
	}
	for _, want := range []string{"Goals: ", "NOT MEASURED: redisson"} {
		if !strings.Contains(tables.String(), want) {
			t.Errorf("no %q for people in\n%s", want, &tables)
		}
	}
}

func TestRunRefuses(t *testing.T) {
	for _, args := range [][]string{
		{"-rounds", "0"}, {"-duration", "-1s"}, {"-only", "("}, {"-contenders", "("}, {"-only", "nothing"}, {"surplus"},
		{"-peers", "some"}, {"-hold-rounds", "-1"}, {"-against", t.TempDir()},
	} {
		if err := run(context.Background(), args, t.Output(), t.Output()); err == nil {
			t.Errorf("%q was accepted", args)
		}
	}
	var out bytes.Buffer
	if err := run(t.Context(), []string{"-list"}, &out, t.Output()); err != nil || !strings.Contains(out.String(), "rueidislock") {
		t.Errorf("-list: %v, %s", err, &out)
	}
}
