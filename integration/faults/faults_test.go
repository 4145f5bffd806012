package faults

import (
	"errors"
	"fmt"
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
	varFor     = "REDLATCH_FAULTS_FOR"     // how long to run; unset: every profile once, briefly
	varSeed    = "REDLATCH_FAULTS_SEED"    // repeats a run
	varProfile = "REDLATCH_FAULTS_PROFILE" // the only profile to run
	varWide    = "REDLATCH_FAULTS_WIDE"    // spreads the work over many locks: more operations, short histories
	varKeep    = "REDLATCH_FAULTS_KEEP"    // a folder that gets the records of an episode that failed
	// For the mutations: after how many operations a run may end, a file that gets its totals, and a part of
	// the violation at which it may end sooner.
	varBound  = "REDLATCH_FAULTS_BOUND"
	varResult = "REDLATCH_FAULTS_RESULT"
	varLook   = "REDLATCH_FAULTS_LOOK"
)

// number is a variable's; otherwise where it is not set.
func number(t *testing.T, name string, otherwise int64) int64 {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n
}

// Whatever faults meet, the locks keep their promises: the history of each profile is checked.
func TestFaults(t *testing.T) {
	var until time.Time
	seed := int64(1) // in make test, where what changes from run to run is the machine's doing alone
	if text := os.Getenv(varFor); text != "" {
		d, err := time.ParseDuration(text)
		if err != nil {
			t.Fatalf("%s: %v", varFor, err)
		}
		until, seed = time.Now().Add(d), rand.Int64N(1_000_000)
	}
	long := !until.IsZero() // time for more at once
	seed = number(t, varSeed, seed)
	bound := int(number(t, varBound, -1))
	if bound >= 0 {
		until = time.Now().Add(time.Hour)
	}
	only := os.Getenv(varProfile)
	sum := totals{profiles: map[string]line{}, faults: map[string]line{}}
	for round := int64(0); round == 0 || time.Now().Before(until) && (bound < 0 || !sum.enough(t, bound)); round++ {
		for i := range profiles {
			p := &profiles[i]
			if !p.wanted(only, long) || round > 0 && time.Now().After(until) {
				continue
			}
			if os.Getenv(varWide) != "" {
				p = p.wide()
			}
			t.Run(fmt.Sprintf("%s/%d", p.name, seed+round), func(t *testing.T) {
				sum.add(p, episode(t, p, uint64(seed+round), p.length(long, bound >= 0))) // #nosec G115 -- only a seed
			})
		}
	}
	if sum.all.episodes == 0 && !t.Failed() {
		var names []string
		for _, p := range profiles {
			names = append(names, p.name)
		}
		t.Fatalf("%s=%q fits no profile: nothing ran. There are: %s", varProfile, only, strings.Join(names, ", "))
	}
	sum.tell(t)
}

// episode is one world with one plan.
func episode(t *testing.T, p *profile, seed uint64, length time.Duration) *report {
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
	r.episodes, r.ops, r.faults, r.times = 1, h.ops, len(steps), map[string]int{}
	for _, one := range steps {
		r.times[one.fault.name]++
	}
	t.Logf("%d operations (and %d re-entries besides), %d holds, %d lost, %d late writes refused; %d overlaps after a deadline or a loss, the longest %v; %d turns of others at most; the machine stalled %d times; faults %v",
		r.ops, w.extra, len(h.holds), r.lost, r.refused, r.overlaps, r.longest, r.turns, stalls, r.times)
	return r
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
	said := ""
	for _, one := range w.windows {
		said += fmt.Sprintln(one)
	}
	err := errors.Join(os.RemoveAll(dir), // of an earlier run
		os.WriteFile(filepath.Join(w.dir, "windows"), []byte(said), 0o600), os.CopyFS(dir, os.DirFS(w.dir)))
	w.t.Log("records: ", dir, err)
}
