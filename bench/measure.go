package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/redlatch/redlatch/internal/testbed"
)

// metric names a figure of a measurement. Durations are in microseconds.
type metric string

const (
	throughput  metric = "acq/s"
	utilisation metric = "utilisation" // time that somebody was inside, of all time
	waitP50     metric = "p50 µs"
	waitP99     metric = "p99 µs"
	waitMax     metric = "max µs"
	maxToMean   metric = "max/mean" // of the waits
	pairP50     metric = "pair p50 µs"
	wakeP50     metric = "wake p50 µs"
	wakeP99     metric = "wake p99 µs"
	jain        metric = "Jain"
	leastShare  metric = "least share" // of the process that got least, against its due
	commands    metric = "cmds/acq"
	attempts    metric = "attempts/acq" // commands but for the release
	messages    metric = "msgs/acq"     // that the server sent to waiters
	serverExec  metric = "exec µs/acq"  // the server's time in the commands
	serverCPU   metric = "srv µs/acq"   // the server's processor time, sockets included
	clientCPU   metric = "cli µs/acq"

	// Only in what -json writes.
	serverSystem metric = "srv sys µs/acq" // of the processor time, in the system
	clientSystem metric = "cli sys µs/acq"
	clientSleeps metric = "cli sleeps/acq" // how often a thread went to sleep

	allocs     metric = "allocs/acq"
	allocBytes metric = "B/acq"
	started    metric = "go/acq" // goroutines started
	passesSeen metric = "passes"

	// Of the last process, where it is alone against many.
	loneP50   metric = "lone p50 µs"
	loneP99   metric = "lone p99 µs"
	loneMax   metric = "lone max µs"
	loneShare metric = "lone share" // of its process, against half

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
	at, err := b.place(ctx, r, e)
	if err != nil {
		return nil, err
	}
	defer at.close()
	s := r.spec
	s.Contender, s.Addrs, s.Key, s.WarmUp = e.known(), at.addrs, at.key, max(b.warmUp, e.warm(r.processes, runtime.NumCPU()))
	if s.Lease == 0 {
		s.Lease = b.lease
	}
	specs := r.specs(s)
	for i := range specs {
		specs[i].Profiles = b.profiles.of(fmt.Sprintf("%s-%s-%d", fileName(r.name), e.name, round), i)
	}
	if e.prepare != nil {
		if err := e.prepare(ctx, at.admin, s.Key); err != nil {
			return nil, err
		}
	}
	// The processes have a time limit, so that a contender that hangs ends its round and not the run.
	limit := b.window(r) + 2*time.Minute
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	ps, err := startAll(ctx, e.program, specs)
	if err != nil {
		return nil, err
	}
	f, err := b.observe(ctx, at, r, e, ps)
	// A process that failed has said why already; that it also exits with a status adds nothing.
	if stopped := stopAll(ps); err == nil {
		err = stopped
	}
	if err != nil && ctx.Err() != nil {
		err = errors.Join(err, fmt.Errorf("within %v: %w", limit, ctx.Err()))
	}
	return f, err
}

// specs are what each process of the row is told, made of what is the same for all.
func (r row) specs(s spec) []spec {
	out := make([]spec, max(r.processes, 1))
	waiters := 0
	for i := range out {
		out[i] = s
		out[i].Process = i
		if r.goroutines != nil {
			out[i].Goroutines = r.goroutines[i]
		}
		if i > 0 {
			out[i].Background = 0 // one process keeps them all
		}
		waiters += out[i].Goroutines
	}
	if !s.OwnKeys {
		for i := range out {
			out[i].Waiters = waiters
		}
	}
	return out
}

// A place is the servers of one measurement, ready for it.
type place struct {
	addrs []string
	key   string
	admin *admin // of Redis; nil elsewhere
	usage func(context.Context) (usage, error)
	close func()
}

// place prepares the servers that the contender needs.
func (b *bench) place(ctx context.Context, r row, e entry) (*place, error) {
	if e.server != nil {
		return b.foreignPlace(ctx, e)
	}
	addrs, err := b.servers(ctx, max(r.servers, 1))
	if err != nil {
		return nil, err
	}
	a, err := newAdmin(addrs)
	if err != nil {
		return nil, err
	}
	if err := a.empty(ctx); err != nil {
		a.close()
		return nil, err
	}
	at := &place{addrs: addrs, key: "bench", admin: a, usage: a.usage, close: a.close}
	if r.far > 0 {
		var bed testbed.Program
		at.close = func() { a.close(); bed.Close() }
		for i, addr := range addrs {
			proxy := testbed.NewProxy(&bed, addr)
			proxy.Delay(testbed.Requests, r.far)
			proxy.Delay(testbed.Replies, r.far)
			addrs[i] = proxy.Addr()
		}
	}
	return at, nil
}

// observe lets the processes count for the row's window and works out the figures.
func (b *bench) observe(ctx context.Context, at *place, r row, e entry, ps []*process) (figures, error) {
	before, err := at.usage(ctx)
	if err != nil {
		return nil, err
	}
	start := time.Now()
	for _, p := range ps {
		if err := p.say("go"); err != nil {
			return nil, err
		}
	}
	rate, err := watch(ctx, at, r, before, b.window(r))
	if err != nil {
		return nil, err
	}
	for _, p := range ps {
		if err := p.say("stop"); err != nil {
			return nil, err
		}
	}
	elapsed := time.Since(start)
	var after usage
	if !r.spec.OwnKeys {
		if after, err = at.usage(ctx); err != nil {
			return nil, err
		}
	}
	results := make([]result, len(ps))
	for i, p := range ps {
		if results[i], err = p.result(); err != nil {
			return nil, err
		}
	}
	if r.spec.OwnKeys {
		// These have ended their pairs by now, and stood still before: the server's figures are theirs exactly.
		elapsed = 0
		if after, err = at.usage(ctx); err != nil {
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
		return handoverFigures(results, used, e, elapsed)
	case topics:
		return topicFigures(results[0])
	default:
		return pairFigures(r, results, used, e, elapsed)
	}
}

// watch waits for the window to pass. Where locks are held it looks at the renewals meanwhile and returns the largest
// rate seen over half a second, as a multiple of the mean.
func watch(ctx context.Context, at *place, r row, before usage, window time.Duration) (float64, error) {
	every := window
	if r.spec.Workload == holding {
		every = min(window, 500*time.Millisecond)
	}
	end := time.Now().Add(window)
	var peak float64
	last, seen := before, time.Now()
	for {
		select {
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-time.After(min(every, time.Until(end))):
		}
		if r.spec.Workload != holding {
			return 0, nil
		}
		u, err := at.usage(ctx)
		if err != nil {
			return 0, err
		}
		now := time.Now()
		// A remnant at the end that is too short to be a rate is left out.
		if now.Sub(seen) > every/2 {
			peak = max(peak, float64(u.since(last).renewals())/now.Sub(seen).Seconds())
		}
		last, seen = u, now
		if !now.Before(end) {
			mean := float64(u.since(before).renewals()) / window.Seconds()
			if mean == 0 {
				return 0, nil
			}
			return peak / mean, nil
		}
	}
}
