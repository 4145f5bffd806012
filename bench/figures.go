package main

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redlatch/redlatch/bench/internal/work"
)

// A figure is one column of a benchmark's line. Units are benchstat's: it shows "ns" as seconds, with a prefix.
type figure struct {
	unit  string
	value float64
}

// figures are what one round of one contender has shown.
type figures struct {
	n    uint64 // acquisitions, hand-overs or holds
	list []figure
}

func (f *figures) add(unit string, value float64) { f.list = append(f.list, figure{unit, value}) }

func (f *figures) of(unit string) (float64, bool) {
	for _, one := range f.list {
		if one.unit == unit {
			return one.value, true
		}
	}
	return 0, false
}

// line is the round in the format of Go's benchmarks.
func (f *figures) line(r row, e entry) string {
	var b strings.Builder
	fmt.Fprintf(&b, "Benchmark%s%s/%s %d", strings.ToUpper(r.name[:1]), r.name[1:], e, f.n)
	for _, one := range f.list {
		b.WriteString(" " + strconv.FormatFloat(one.value, 'g', 6, 64) + " " + one.unit)
	}
	return b.String()
}

// Nothing happened in the window: either the contender is stuck, or its processes had no processor for as long as it
// was.
var errNothing = errors.New("nobody acquired the lock while it counted")

// figuresOf works out what the processes and the server have told. A negative time was not watched.
func figuresOf(r row, e entry, results []result, used usage, watched time.Duration) (figures, error) {
	switch r.spec.Workload {
	case work.Holding:
		return holdFigures(results[0], r.spec.Holds, used, e, watched), nil
	case work.Handover:
		h := work.Handovers(results)
		f := figures{n: h.Total()}
		if f.n == 0 {
			return f, errNothing
		}
		f.waits(h)
		f.costs(results, used, e, watched)
		return f, nil
	default:
		return pairFigures(r, e, results, used, watched)
	}
}

func pairFigures(r row, e entry, results []result, used usage, watched time.Duration) (figures, error) {
	waits, pairs := work.NewHistogram(), work.NewHistogram()
	var f figures
	var counts []float64
	var rate float64
	for _, one := range results {
		waits.AddSparse(one.Waits)
		pairs.AddSparse(one.Pairs)
		var turns uint64
		for _, n := range one.Counts {
			turns += n
			counts = append(counts, float64(n))
		}
		f.n += turns
		rate += float64(turns) / one.Elapsed.Seconds()
	}
	if f.n == 0 {
		return f, errNothing
	}
	f.add("acq/s", rate)
	f.waits(waits)
	if pairs.Total() > 0 {
		f.add("pair-p50-ns", float64(pairs.Quantile(0.5)))
	}
	if !r.spec.OwnKeys {
		f.add("jain", jainIndex(counts))
	}
	f.costs(results, used, e, watched)
	return f, nil
}

func (f *figures) waits(h *work.Histogram) {
	f.add("wait-p50-ns", float64(h.Quantile(0.5)))
	f.add("wait-p99-ns", float64(h.Quantile(0.99)))
	f.add("wait-max-ns", float64(h.Max()))
}

// costs are for one acquisition. Processes hear "go" and "stop" a little later than the server was looked at, on a busy
// machine much later: where the server was watched for another time than the processes counted, its figures are for as
// many acquisitions as there were in that time. watched is 0 where it was the same.
func (f *figures) costs(results []result, used usage, e entry, watched time.Duration) {
	var mallocs, bytes uint64
	var cpu, counted time.Duration
	for _, one := range results {
		mallocs += one.Mallocs
		bytes += one.Bytes
		cpu += one.CPU
		counted += one.Elapsed
	}
	each := 1 / float64(f.n)
	served := each
	if watched > 0 {
		served *= counted.Seconds() / float64(len(results)) / watched.Seconds()
	}
	if used.calls != nil {
		f.add("cmds/acq", float64(used.sent(e.commands))*served)
		f.add("exec-ns/acq", float64(used.executed(e.commands))*1e3*served)
		f.add("srv-cpu-ns/acq", used.cpu*1e9*served)
	}
	f.add("cli-cpu-ns/acq", float64(cpu)*each)
	if mallocs > 0 { // processes in other languages do not tell
		f.add("allocs/acq", float64(mallocs)*each)
		f.add("B/acq", float64(bytes)*each)
	}
}

func holdFigures(r result, holds int, used usage, e entry, watched time.Duration) figures {
	f := figures{n: uint64(holds)}
	f.add("heap-B/hold", float64(r.Heap)/float64(holds))
	f.add("stack-B/hold", float64(r.Stack)/float64(holds))
	f.add("goroutines", float64(r.Routines))
	f.add("renewals/s", float64(used.renewals())/watched.Seconds())
	f.add("renewals/cmd", float64(used.renewals())/float64(max(1, used.sent(e.commands))))
	f.add("cli-cores", r.CPU.Seconds()/r.Elapsed.Seconds())
	f.add("srv-cores", used.cpu/watched.Seconds())
	return f
}

// jainIndex is Jain's index of fairness: 1 when all got the same, 1/n when one got all.
func jainIndex(counts []float64) float64 {
	var sum, squares float64
	for _, n := range counts {
		sum += n
		squares += n * n
	}
	if squares == 0 {
		return 0
	}
	return sum * sum / (float64(len(counts)) * squares)
}
