package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redlatch/redlatch/internal/testbed"
)

// metric names a figure of a measurement. Durations are in microseconds.
type metric string

const (
	throughput metric = "acq/s"
	waitP50    metric = "p50 µs"
	waitP99    metric = "p99 µs"
	jain       metric = "Jain"
	leastShare metric = "least share" // of the process that got least, against its due
	commands   metric = "cmds/acq"
	serverCPU  metric = "srv µs/acq"
	clientCPU  metric = "cli µs/acq"
	allocs     metric = "allocs/acq"
	allocBytes metric = "B/acq"
	passesSeen metric = "passes"

	heapPerHold  metric = "heap B/hold"
	stackPerHold metric = "stack B/hold"
	goroutines   metric = "goroutines"
	renewalRate  metric = "renewals/s"
	perCommand   metric = "renewals/cmd"
	burst        metric = "peak/mean"
	clientShare  metric = "client core %"
	serverShare  metric = "server core %"
)

// figures are what one round of one contender has shown.
type figures map[metric]float64

// measure runs one round of one contender.
func (b *bench) measure(ctx context.Context, r row, e entry, round int) (figures, error) {
	addrs, err := b.servers(ctx, max(r.servers, 1))
	if err != nil {
		return nil, err
	}
	a, err := newAdmin(addrs)
	if err != nil {
		return nil, err
	}
	defer a.close()
	if err := a.empty(ctx); err != nil {
		return nil, err
	}
	if r.far > 0 {
		var bed testbed.Program
		defer bed.Close()
		for i, addr := range addrs {
			proxy := testbed.NewProxy(&bed, addr)
			proxy.Delay(testbed.Requests, r.far)
			proxy.Delay(testbed.Replies, r.far)
			addrs[i] = proxy.Addr()
		}
	}
	s := r.spec
	s.Contender, s.Addrs, s.Lease, s.Key, s.WarmUp = e.name, addrs, b.lease, "bench", b.warmUp
	if !s.OwnKeys {
		s.Waiters = s.Goroutines * max(r.processes, 1)
	}
	if b.profile != "" {
		s.Profile = fmt.Sprintf("%s-%s-%s-%d.pprof", b.profile, fileName(r.name), e.name, round)
	}
	if e.prepare != nil {
		if err := e.prepare(ctx, a, s.Key); err != nil {
			return nil, err
		}
	}
	// The processes have a time limit, so that a contender that hangs ends its round and not the run.
	limit := b.window(r) + 2*time.Minute
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	ps, err := startAll(ctx, max(r.processes, 1), s)
	if err != nil {
		return nil, err
	}
	f, err := b.observe(ctx, a, r, e, ps)
	// A process that failed has said why already; that it also exits with a status adds nothing.
	if stopped := stopAll(ps); err == nil {
		err = stopped
	}
	if err != nil && ctx.Err() != nil {
		err = errors.Join(err, fmt.Errorf("within %v: %w", limit, ctx.Err()))
	}
	return f, err
}

// observe lets the processes count for the row's window and works out the figures.
func (b *bench) observe(ctx context.Context, a *admin, r row, e entry, ps []*process) (figures, error) {
	before, err := a.usage(ctx)
	if err != nil {
		return nil, err
	}
	start := time.Now()
	for _, p := range ps {
		if err := p.say("go"); err != nil {
			return nil, err
		}
	}
	rate, err := watch(ctx, a, r, before, b.window(r))
	if err != nil {
		return nil, err
	}
	for _, p := range ps {
		if err := p.say("stop"); err != nil {
			return nil, err
		}
	}
	after, err := a.usage(ctx)
	if err != nil {
		return nil, err
	}
	elapsed := time.Since(start)
	results := make([]result, len(ps))
	for i, p := range ps {
		if results[i], err = p.result(); err != nil {
			return nil, err
		}
	}
	used := after.since(before)
	switch r.spec.Workload {
	case holding:
		f := holdFigures(results[0], r.spec.Holds, used, e, elapsed)
		f[burst] = rate
		return f, nil
	case handover:
		h := handovers(results)
		if h.total == 0 {
			return nil, errors.New("the lock was never handed over")
		}
		f := costs(results, used, e, h.total)
		f[waitP50], f[waitP99], f[passesSeen] = micros(h.quantile(0.5)), micros(h.quantile(0.99)), float64(h.total)
		return f, nil
	default:
		return pairFigures(results, used, e)
	}
}

// watch waits for the window to pass. Where locks are held it looks at the renewals meanwhile and returns the largest
// rate seen over half a second, as a multiple of the mean.
func watch(ctx context.Context, a *admin, r row, before usage, window time.Duration) (float64, error) {
	every := window
	if r.spec.Workload == holding {
		every = min(window, 500*time.Millisecond)
	}
	end := time.Now().Add(window)
	var peak float64
	last, at := before, time.Now()
	for {
		select {
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-time.After(min(every, time.Until(end))):
		}
		if r.spec.Workload != holding {
			return 0, nil
		}
		u, err := a.usage(ctx)
		if err != nil {
			return 0, err
		}
		now := time.Now()
		// A remnant at the end that is too short to be a rate is left out.
		if now.Sub(at) > every/2 {
			peak = max(peak, float64(u.since(last).renewals())/now.Sub(at).Seconds())
		}
		last, at = u, now
		if !now.Before(end) {
			mean := float64(u.since(before).renewals()) / window.Seconds()
			if mean == 0 {
				return 0, nil
			}
			return peak / mean, nil
		}
	}
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

// costs are the figures that any workload has, each for one of n acquisitions.
func costs(results []result, used usage, e entry, n uint64) figures {
	f := figures{}
	var r result
	for _, one := range results {
		r.Mallocs += one.Mallocs
		r.Bytes += one.Bytes
		r.CPU += one.CPU
	}
	each := 1 / float64(n)
	f[commands] = float64(used.sent(e.commands)) * each
	f[serverCPU] = used.cpu * 1e6 * each
	f[clientCPU] = micros(r.CPU) * each
	f[allocs] = float64(r.Mallocs) * each
	f[allocBytes] = float64(r.Bytes) * each
	return f
}

// errNobody: either the contender is stuck, or its processes had no processor for as long as the window was.
var errNobody = errors.New("nobody acquired the lock while it counted")

func pairFigures(results []result, used usage, e entry) (figures, error) {
	waits := newHistogram()
	var total uint64
	var counts, shares []float64
	var rate float64
	for _, r := range results {
		waits.addSparse(r.Waits)
		var sum uint64
		for _, n := range r.Counts {
			sum += n
			counts = append(counts, float64(n))
		}
		total += sum
		shares = append(shares, float64(sum))
		rate += float64(sum) / r.Elapsed.Seconds()
	}
	if total == 0 {
		return nil, errNobody
	}
	f := costs(results, used, e, total)
	f[throughput] = rate
	f[waitP50], f[waitP99] = micros(waits.quantile(0.5)), micros(waits.quantile(0.99))
	f[jain] = jainIndex(counts)
	f[leastShare] = least(shares)
	return f, nil
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
