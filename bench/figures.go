package main

import (
	"errors"
	"time"

	"github.com/redlatch/redlatch/bench/internal/work"
)

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

// costs are the figures that any workload has, each for one of n acquisitions. Processes hear "go" and "stop" a little
// later than the server was looked at, on a busy machine much later: where the server was watched for another time than
// the processes counted, its figures are for as many acquisitions as there were in that time. 0: for the same.
func costs(results []result, used usage, e entry, n uint64, watched time.Duration) figures {
	f := figures{}
	var r result
	known := true
	for _, one := range results {
		r.Mallocs += one.Mallocs
		r.Bytes += one.Bytes
		r.CPU += one.CPU
		r.System += one.System
		r.Sleeps += one.Sleeps
		r.Started += one.Started
		known = known && one.Started >= 0
	}
	each := 1 / float64(n)
	served := each
	if watched > 0 {
		var counted time.Duration
		for _, one := range results {
			counted += one.Elapsed
		}
		served *= counted.Seconds() / float64(len(results)) / watched.Seconds()
	}
	if used.calls != nil {
		f[commands] = float64(used.sent(e.commands)) * served
		f[serverExec] = float64(used.executed(e.commands)) * served
	}
	f[serverCPU] = used.cpu * 1e6 * served
	f[clientCPU] = micros(r.CPU) * each
	if used.system > 0 {
		f[serverSystem] = used.system * 1e6 * served
	}
	if r.System > 0 { // processes in other languages do not tell
		f[clientSystem], f[clientSleeps] = micros(r.System)*each, float64(r.Sleeps)*each
	}
	if r.Mallocs > 0 { // processes in other languages do not tell
		f[allocs] = float64(r.Mallocs) * each
		f[allocBytes] = float64(r.Bytes) * each
	}
	if known {
		f[started] = float64(r.Started) * each
	}
	return f
}

// Nothing happened in the window: either the contender is stuck, or its processes had no processor for as long as it
// was.
var (
	errNobody = errors.New("nobody acquired the lock while it counted")
	errNoPass = errors.New("the lock was never handed over")
	errNoWake = errors.New("no waiter came to listen and was woken")
)

func pairFigures(r row, results []result, used usage, e entry, watched time.Duration) (figures, error) {
	waits, pairs := newHistogram(), newHistogram()
	var total, last uint64
	var counts, shares []float64
	var rate, inside float64
	var told int64
	counted := true
	for _, one := range results {
		waits.AddSparse(one.Waits)
		pairs.AddSparse(one.Pairs)
		last = 0
		for _, n := range one.Counts {
			last += n
			counts = append(counts, float64(n))
		}
		total += last
		shares = append(shares, float64(last))
		rate += float64(last) / one.Elapsed.Seconds()
		inside += one.Inside.Seconds() / one.Elapsed.Seconds()
		told += one.Messages
		counted = counted && one.Messages >= 0
	}
	if total == 0 {
		return nil, errNobody
	}
	f := costs(results, used, e, total, watched)
	f[throughput] = rate
	f[waitP50], f[waitP99], f[waitMax] = micros(waits.Quantile(0.5)), micros(waits.Quantile(0.99)), micros(waits.Max())
	// Where most had no second turn the window ended nearly all waits, and neither the longest nor the mean is known.
	if total >= 2*uint64(len(counts)) {
		f[maxToMean] = micros(waits.Max()) / micros(max(waits.Mean(), 1))
	}
	if pairs.Total() > 0 {
		f[pairP50] = micros(pairs.Quantile(0.5))
	}
	f[jain] = jainIndex(counts)
	f[leastShare] = least(shares)
	if r.spec.Section > 0 {
		f[utilisation] = inside
	}
	if r.spec.Turns {
		stintFigures(results, f)
	}
	if counted {
		f[messages] = float64(told) / float64(total)
	}
	if n, ok := f[commands]; ok {
		f[attempts] = n - 1
	}
	if r.goroutines != nil {
		lone := newHistogram()
		lone.AddSparse(results[len(results)-1].Waits)
		f[loneP50], f[loneP99], f[loneMax] = micros(lone.Quantile(0.5)), micros(lone.Quantile(0.99)), micros(lone.Max())
		f[loneShare] = float64(last) * float64(len(results)) / float64(total)
	}
	return f, nil
}

func handoverFigures(results []result, used usage, e entry, watched time.Duration) (figures, error) {
	h := work.Handovers(results)
	if h.Total() == 0 {
		return nil, errNoPass
	}
	f := costs(results, used, e, h.Total(), watched)
	f[waitP50], f[waitP99], f[passesSeen] = micros(h.Quantile(0.5)), micros(h.Quantile(0.99)), float64(h.Total())
	return f, nil
}

func topicFigures(r result) (figures, error) {
	waits, wakes := newHistogram(), newHistogram()
	waits.AddSparse(r.Waits)
	wakes.AddSparse(r.Wakes)
	if waits.Total() == 0 {
		return nil, errNoWake
	}
	return figures{
		waitP50: micros(waits.Quantile(0.5)), waitP99: micros(waits.Quantile(0.99)),
		wakeP50: micros(wakes.Quantile(0.5)), wakeP99: micros(wakes.Quantile(0.99)), passesSeen: float64(waits.Total()),
	}, nil
}

func holdFigures(r result, holds int, used usage, e entry, elapsed time.Duration) figures {
	f := figures{
		heapPerHold:  float64(r.Heap) / float64(holds),
		stackPerHold: float64(r.Stack) / float64(holds),
		goroutines:   float64(r.Routines),
		renewalRate:  float64(used.renewals()) / elapsed.Seconds(),
		clientShare:  100 * r.CPU.Seconds() / r.Elapsed.Seconds(),
		serverShare:  100 * used.cpu / elapsed.Seconds(),
	}
	if sent := used.sent(e.commands); sent > 0 {
		f[perCommand] = float64(used.renewals()) / float64(sent)
	}
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

// least is what the worst-served got, as a part of an equal share.
func least(counts []float64) float64 {
	var sum float64
	low := counts[0]
	for _, n := range counts {
		sum += n
		low = min(low, n)
	}
	if sum == 0 {
		return 0
	}
	return low * float64(len(counts)) / sum
}
