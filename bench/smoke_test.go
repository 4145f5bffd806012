package main

import (
	"context"
	"errors"
	"math"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/redlatch/redlatch/bench/internal/work"
	"github.com/redlatch/redlatch/internal/testbed"
)

// The processes of a measurement are this program started again: here, the test binary.
func TestMain(m *testing.M) {
	if os.Getenv(work.Variable) != "" {
		os.Exit(work.Main(openContender, os.Stdin, os.Stdout))
	}
	// With the race detector each process would wait a second before it exits.
	if err := os.Setenv("GORACE", os.Getenv("GORACE")+" atexit_sleep_ms=20"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// quick runs rows on a small scale. Its figures mean nothing but that everything runs and is counted.
func quick(t *testing.T) *bench {
	t.Helper()
	b, err := newBench()
	testbed.Must(t, err)
	b.rounds, b.duration, b.lease, b.warmUp = 1, 60*time.Millisecond, 3*time.Second, 20*time.Millisecond
	t.Cleanup(func() { testbed.Must(t, b.stop()) })
	return b
}

var smallScale = scale{holds: 300, queue: 12, crowd: 16}

// sameWork are rows whose work the libraries do in another one as well, or that take their time: redlatch and the
// bounds alone run there.
var sameWork = regexp.MustCompile(`^(uncontended/(16|256)|contended/(8|512)|replicas/(8x1|100x1)|holding)$`)

// TestEveryRowRuns measures every contender of every row once, shortly.
func TestEveryRowRuns(t *testing.T) {
	for _, r := range rows(smallScale) {
		t.Run(strings.ReplaceAll(r.name, "/", ","), func(t *testing.T) {
			r.spec.Goroutines, r.windows = min(r.spec.Goroutines, 32), 1
			r.processes = min(r.processes, 2) // to start them is what takes long
			b := quick(t)
			b.take.alone = sameWork.MatchString(r.name)
			seen, failed := b.measured(t, r)
			if len(seen) == 0 || len(failed) > 0 {
				t.Errorf("%d contenders, failed: %v", len(seen), failed)
			}
			for name, f := range seen {
				if line := f.line(r, entry{name: name}); !benchmarkLine.MatchString(line) || strings.Contains(line, "NaN") {
					t.Errorf("a line that benchstat can't read: %s", line)
				}
				if v, ok := f.of(mainFigure(r)); !ok || v <= 0 {
					t.Errorf("%s: %s is %v", name, mainFigure(r), v)
				}
			}
		})
	}
}

// mainFigure is what a row is about.
func mainFigure(r row) string {
	switch r.spec.Workload {
	case work.Holding:
		return "heap-B/hold"
	case work.Handover:
		return "wait-p50-ns"
	default:
		return "acq/s"
	}
}

// measured is a row in which everybody had a turn: a busy machine may leave the processes
// without one for all of a short window, and then the window gets longer.
func (b *bench) measured(t *testing.T, r row) (map[string]figures, map[string]error) {
	t.Helper()
	entries, err := b.take.chosen(r)
	testbed.Must(t, err)
	for {
		seen := map[string]figures{}
		failed := b.row(t.Context(), r, entries, func(e entry, f figures) { seen[strings.TrimPrefix(e.String(), "lock=")] = f }, func(string) {})
		nobody := false
		for _, err := range failed {
			nobody = nobody || errors.Is(err, errNothing)
		}
		if !nobody || b.duration > 5*time.Second {
			return seen, failed
		}
		b.duration *= 4
	}
}

// TestCommandsAreCounted: what a script calls does not count as sent. An uncontended pair is two commands for every
// contender; the calls inside their scripts would make it four and more.
func TestCommandsAreCounted(t *testing.T) {
	seen, failed := quick(t).measured(t, uncontended(1))
	testbed.Equal(t, len(seen), len(uncontended(1).contenders), "contenders; failed:", failed)
	for name, f := range seen {
		// Exactly: nobody has a pair under way when the counting begins or ends.
		if v, ok := f.of("cmds/acq"); !ok || math.Abs(v-2) > 1e-9 {
			t.Errorf("%s: %v commands for an acquisition", name, v)
		}
	}
}

// TestFailureIsReported: a contender that fails in its process is named with its reason, and the others go on.
func TestFailureIsReported(t *testing.T) {
	// The limit cannot wait: two goroutines on one key make it fail.
	r := row{name: "failing", contenders: []string{"limit", "redislock"}, spec: spec{Workload: work.Pairs, Goroutines: 4}}
	seen, failed := quick(t).measured(t, r)
	tells(t, failed["lock=limit"], "limit: Lock: busy")
	testbed.AtLeast(t, seen["redislock"].n, 1, "acquisitions of the other contender; failed:", failed)
}

// TestEndOfContext: an interrupted run ends at once, with its processes.
func TestEndOfContext(t *testing.T) {
	b := quick(t)
	b.duration = time.Hour
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	e, err := lookup("limit")
	testbed.Must(t, err)
	failed := b.row(ctx, uncontended(1), []entry{e}, func(entry, figures) {}, func(string) {})
	if err := failed["lock=limit"]; !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the run ended with: %v", err)
	}
}
