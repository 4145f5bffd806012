package faults

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// The environment of a run.
const (
	// varFor is how long to run; unset: every profile once, briefly.
	varFor = "REDLATCH_FAULTS_FOR"
	// varSeed repeats a run.
	varSeed = "REDLATCH_FAULTS_SEED"
	// varProfile is the only profile to run.
	varProfile = "REDLATCH_FAULTS_PROFILE"
	// varWide spreads the work of each episode over many locks: more operations, and each
	// lock's history is short.
	varWide = "REDLATCH_FAULTS_WIDE"
	// varKeep is a folder that gets the records of an episode that failed.
	varKeep = "REDLATCH_FAULTS_KEEP"
	// varBound is after how many operations a run may end; varResult is a file that
	// gets its totals. Both are for the mutations.
	varBound  = "REDLATCH_FAULTS_BOUND"
	varResult = "REDLATCH_FAULTS_RESULT"
	// varLook is a part of the violation at which it may end sooner.
	varLook = "REDLATCH_FAULTS_LOOK"
)

// seedOf returns the seed of the run; a fixed one in make test, where what changes from run
// to run is the machine's doing alone.
func seedOf(t *testing.T) uint64 {
	n := uint64(1)
	if os.Getenv(varFor) != "" {
		n = rand.Uint64() % 1_000_000
	}
	if text := os.Getenv(varSeed); text != "" {
		var err error
		if n, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatalf("%s: %v", varSeed, err)
		}
	}
	return n
}

// Whatever faults meet, the locks keep their promises: the history of each profile is checked.
func TestFaults(t *testing.T) {
	seed := seedOf(t)
	only := os.Getenv(varProfile)
	var until time.Time
	if text := os.Getenv(varFor); text != "" {
		d, err := time.ParseDuration(text)
		if err != nil {
			t.Fatalf("%s: %v", varFor, err)
		}
		until = time.Now().Add(d)
	}
	long := !until.IsZero() // time for more at once
	bound := -1
	if text := os.Getenv(varBound); text != "" {
		var err error
		if bound, err = strconv.Atoi(text); err != nil {
			t.Fatalf("%s: %v", varBound, err)
		}
		until = time.Now().Add(time.Hour)
	}
	var sum totals
	ran := map[string]int{} // episodes, by profile
	for round := uint64(0); round == 0 || time.Now().Before(until); round++ {
		for i := range profiles {
			p := &profiles[i]
			if os.Getenv(varWide) != "" {
				p = p.wide()
			}
			if only != "" && p.name != only || only == "" && p.episode == 0 || round > 0 && time.Now().After(until) {
				continue
			}
			if only == "" && !long && p.topology != "standalone" || !long && only == "" && p.name == "everything" {
				// Several servers and all faults at once take minutes on a quiet machine to say
				// something: make faults.
				continue
			}
			ran[p.name]++
			t.Run(fmt.Sprintf("%s/%d", p.name, seed+round), func(t *testing.T) {
				sum.add(p, episode(t, p, seed+round, p.length(long, bound >= 0)))
			})
		}
		if bound >= 0 && sum.enough(t, bound) {
			break
		}
	}
	if len(ran) == 0 {
		var names []string
		for i := range profiles {
			names = append(names, profiles[i].name)
		}
		t.Fatalf("%s=%q fits no profile: nothing ran. There are: %s", varProfile, only, strings.Join(names, ", "))
	}
	t.Logf("episodes by profile: %v", ran)
	sum.tell(t)
}

// outcome is what an episode came to.
type outcome struct {
	ops    int
	extra  int // re-entries without a record
	faults map[string]int
	report *report
}

// episode is one world with one plan.
func episode(t *testing.T, p *profile, seed uint64, length time.Duration) outcome {
	steps := plan(seed, p, length)
	w := newWorld(t, p, seed)
	t.Cleanup(func() {
		if !t.Failed() {
			return
		}
		t.Logf("again: make faults FOR=%v SEED=%d PROFILE='%s' WIDE=%s", length, seed, p.name, os.Getenv(varWide))
		for _, one := range steps {
			t.Logf("  %v", one)
		}
		for _, one := range w.windows {
			if one.effects != effHitch { // there are hundreds; w.keep has them
				t.Logf("  %v", one)
			}
		}
		w.keep(seed)
	})
	w.run(steps, length)
	begin := mono()
	h := w.stop()
	stopped := mono()
	r := h.check(p)
	checked := mono()
	w.left(r)
	r.tell(t)
	t.Logf("ended in %v, checked in %v, empty after %v", stopped-begin, checked-stopped, mono()-checked)
	stalls := 0
	for _, one := range h.windows {
		if strings.HasSuffix(one.name, "stall") {
			stalls++
		}
	}
	out := outcome{ops: h.ops, extra: int(w.extra), faults: map[string]int{}, report: r}
	for _, one := range steps {
		out.faults[one.fault.name]++
	}
	t.Logf("%d operations (and %d re-entries besides), %d holds, %d lost, %d late writes refused; %d overlaps after a deadline or a loss, the longest %v; %d turns of others at most; the machine stalled %d times; faults %v",
		out.ops, out.extra, len(h.holds), r.lost, r.refused, r.overlaps, r.longest, r.turns, stalls, out.faults)
	return out
}

// searchLimit bounds the model's search in one history.
const searchLimit = 20 * time.Second

// tell fails the test with the violations, of each sort the first few.
func (r *report) tell(t *testing.T) {
	const most = 3
	for _, u := range r.undecided {
		t.Logf("not decided by the model within %v: %s", searchLimit, u)
	}
	sorts := map[string]int{}
	for _, v := range r.violations {
		sort, _, _ := strings.Cut(v, ":")
		sort = strings.Join(strings.FieldsFunc(sort, func(c rune) bool { return c < 'A' }), " ") // without numbers
		if sorts[sort]++; sorts[sort] <= most {
			t.Error(v)
		}
	}
	for sort, n := range sorts {
		if n > most {
			t.Errorf("and %d more: %s", n-most, sort)
		}
	}
}

// check judges the history.
func (h *history) check(p *profile) *report {
	r := &report{}
	for _, e := range h.notes {
		if took := e.Ret - e.Call; took > 0 && took-h.still(e.Call, e.Ret, e.Proc) <= closeLimit {
			continue // a Close on a machine that stood still
		}
		r.violation("worker %d: %s", e.Proc, e.Text)
	}
	h.exclusion(r)
	h.fencing(r)
	h.losses(r)
	h.waits(r)
	if p.fifo {
		h.fifo(r)
	}
	if p.turns > 0 {
		h.turns(r, p.turns)
	}
	if p.idle > 0 {
		h.idle(r, p.idle)
	}
	h.linearizable(r, searchLimit)
	return r
}

// keep copies the records, and a list of what was done, to where somebody can read them after the test.
func (w *world) keep(seed uint64) {
	dir := os.Getenv(varKeep)
	if dir == "" {
		return
	}
	dir = filepath.Join(dir, fmt.Sprintf("%s-%d", strings.ReplaceAll(w.p.name, " ", "-"), seed))
	if err := os.MkdirAll(dir, 0o750); err != nil {
		w.t.Log(err)
		return
	}
	var said strings.Builder
	for _, one := range w.windows {
		fmt.Fprintln(&said, one)
	}
	if err := os.WriteFile(filepath.Join(dir, "windows"), []byte(said.String()), 0o600); err != nil {
		w.t.Log(err)
	}
	for _, one := range w.all {
		text, err := os.ReadFile(one.file)
		if errors.Is(err, fs.ErrNotExist) {
			continue // killed before it began
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, filepath.Base(one.file)), text, 0o600)
		}
		if err != nil {
			w.t.Log(err)
		}
	}
	w.t.Logf("records: %s", dir)
}
