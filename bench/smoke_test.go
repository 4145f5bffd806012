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
	b := &bench{
		rounds: 1, holdRuns: 1, duration: 60 * time.Millisecond, lease: 3 * time.Second, warmUp: 20 * time.Millisecond,
		progress: t.Output(),
	}
	t.Cleanup(func() {
		if err := b.stop(); err != nil {
			t.Error(err)
		}
	})
	return b
}

func smallScale() scale {
	return scale{holds: 300, queues: []int{3, 12}, readers: []int{1, 5}, crowds: []int{8, 16}, topics: 30, owned: 30}
}

// sameWork are rows whose work the libraries do in another one as well, or that take their time: redlatch and the
// bounds alone run there.
var sameWork = regexp.MustCompile(`^(uncontended/(16|256)|ctx-.*|contended/(8|512)|processes/8x4/(1ms|2cmds)|lone/.*|handover/far|holding)$`)

// TestEveryRowRuns measures every contender of every row once, shortly.
func TestEveryRowRuns(t *testing.T) {
	done := map[string]outcome{}
	for _, r := range rows(smallScale()) {
		t.Run(strings.ReplaceAll(r.name, "/", ","), func(t *testing.T) {
			r.spec.Goroutines, r.windows = min(r.spec.Goroutines, 32), 1
			if r.goroutines == nil {
				r.processes = min(r.processes, 2) // to start them is what takes long
			}
			b := quick(t)
			b.take.alone = sameWork.MatchString(r.name)
			o := b.measured(t, r)
			o.earlier, done[r.name] = done, o
			if len(o.entries) == 0 {
				t.Fatal("no contender")
			}
			for _, e := range o.entries {
				if err := o.failed[e.name]; err != nil {
					t.Errorf("%s: %v", e.name, err)
					continue
				}
				for _, m := range r.columns {
					// What a bound would be told is nobody's concern, and the window may be too short for the tail.
					if _, ok := o.median(e.name, m); !ok && (e.role != mark || m != messages) && m != maxToMean {
						t.Errorf("%s: the column %q was not measured", e.name, m)
					}
				}
				if v, _ := o.median(e.name, r.main); v <= 0 {
					t.Errorf("%s: %s is %v", e.name, r.main, v)
				}
			}
			for _, g := range r.goals {
				if v, _ := g.judge(o); v == unproven && !b.take.alone && g.metric != maxToMean {
					t.Errorf("the goal %q is about something that was not measured", g)
				}
			}
		})
	}
}

// measured is a row in which everybody had a turn: a busy machine may leave the processes
// without one for all of a short window, and then the window gets longer.
func (b *bench) measured(t *testing.T, r row) outcome {
	t.Helper()
	for {
		o, err := b.row(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		if !nobody(o) || b.duration > 5*time.Second {
			return o
		}
		b.duration *= 4
	}
}

func nobody(o outcome) bool {
	for _, err := range o.failed {
		if errors.Is(err, errNobody) || errors.Is(err, errNoPass) || errors.Is(err, errNoWake) {
			return true
		}
	}
	return false
}

// TestCommandsAreCounted: what a script calls does not count as sent. An uncontended pair is two commands for every
// contender; the calls inside their scripts would make it four and more.
func TestCommandsAreCounted(t *testing.T) {
	o := quick(t).measured(t, rowNamed(t, "uncontended/1"))
	for _, e := range o.entries {
		// Exactly: nobody has a pair under way when the counting begins or ends.
		if v, ok := o.median(e.name, commands); !ok || math.Abs(v-2) > 1e-9 {
			t.Errorf("%s: %v commands for an acquisition (failure: %v)", e.name, v, o.failed[e.name])
		}
	}
}

// TestFailureIsReported: a contender that fails in its process is named with its reason, and the others go on.
func TestFailureIsReported(t *testing.T) {
	b := quick(t)
	// The limit cannot wait: two goroutines on one key make it fail.
	r := row{
		name: "failing", title: "a contender that fails", contenders: []string{"limit", "redislock"},
		spec: spec{Workload: pairs, Goroutines: 4}, columns: contendedColumns, main: throughput,
	}
	o := b.measured(t, r)
	if err := o.failed["limit"]; err == nil || !strings.Contains(err.Error(), "limit: Lock: busy") {
		t.Errorf("the failure was told as: %v", err)
	}
	if err := o.failed["redislock"]; err != nil {
		t.Errorf("the other contender failed too: %v", err)
	}
	var out strings.Builder
	o.write(&out, false)
	if !strings.Contains(out.String(), "failed: limit:") {
		t.Errorf("the table does not tell of the failure:\n%s", &out)
	}
}

// TestEndOfContext: an interrupted run ends at once, with its processes.
func TestEndOfContext(t *testing.T) {
	b := quick(t)
	b.duration = time.Hour
	b.take.pattern = regexp.MustCompile("^limit$")
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	if _, err := b.row(ctx, rowNamed(t, "uncontended/1")); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the run ended with: %v", err)
	}
}

func rowNamed(t *testing.T, name string) row {
	t.Helper()
	for _, r := range rows(smallScale()) {
		if r.name == name {
			return r
		}
	}
	t.Fatalf("no row is called %q", name)
	return row{}
}
