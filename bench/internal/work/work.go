package work

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"runtime"
	"runtime/metrics"
	"sync/atomic"
	"time"
)

// Variable in the environment makes a program one of the processes of a measurement.
const Variable = "REDLATCH_BENCH_PROCESS"

// phases of a measurement, as its workers see them.
const (
	warming int32 = iota
	counting
	ended
)

// Main runs one process of a measurement and returns its exit status.
func Main(open Open, in io.Reader, out io.Writer) int {
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 1<<20)
	enc := json.NewEncoder(out)
	var s Spec
	if !lines.Scan() {
		return 2
	}
	err := json.Unmarshal(lines.Bytes(), &s)
	if err == nil {
		err = run(open, s, lines, enc)
	}
	if err != nil {
		// If this can't be written the parent has gone, or sees the exit status.
		_ = enc.Encode(Message{Result: &Result{Err: err.Error()}})
		return 1
	}
	return 0
}

// A job is one workload in one process. start returns when it is under way. drain is called once the phase is ended and
// returns when everything is done that is to count; finish, once its ctx is cancelled as well, waits for what start
// began and completes the result.
type job interface {
	start(ctx context.Context, m *measurement) (Ready, error)
	drain()
	finish(r *Result) error
}

// measurement is what the workers of a process share.
type measurement struct {
	Spec
	contender Contender
	open      func() (Contender, error) // another one like it
	phase     atomic.Int32
	gate      chan struct{} // closed when the counting begins
	fail      func(error)   // ends the measurement; the first error wins
	// messages is how many messages have come until now, or -1 where nobody counts them.
	messages func() int64
}

func run(open Open, s Spec, lines *bufio.Scanner, enc *json.Encoder) error {
	s.Profiles.prepare()
	e := Env{Addrs: s.Addrs, Lease: s.Lease, Waiters: s.Waiters, Holds: s.Holds, CountMessages: s.CountMessages}
	another := func() (Contender, error) { return open(s.Contender, e) }
	c, err := another()
	if err != nil {
		return err
	}
	defer c.Close()

	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	m := &measurement{Spec: s, contender: c, open: another, gate: make(chan struct{}), fail: func(err error) { cancel(err) }}
	m.messages = func() int64 { return -1 }
	var j job
	switch s.Workload {
	case Pairs:
		j = &pairsJob{}
	case Handover:
		j = &handoverJob{}
	case Holding:
		j = &holdingJob{}
	case Topics:
		j = &topicsJob{}
	default:
		return fmt.Errorf("no workload is called %q", s.Workload)
	}
	r, err := j.start(ctx, m)
	if err != nil {
		return err
	}
	if err := enc.Encode(Message{Ready: &r}); err != nil {
		return err
	}

	if !lines.Scan() {
		return errors.New("the input ended before the measurement began")
	}
	var res Result
	err = count(m, j, lines, &res)
	failure := context.Cause(ctx)
	cancel(nil)
	if err := errors.Join(failure, err, j.finish(&res)); err != nil {
		return err
	}
	return enc.Encode(Message{Result: &res})
}

// count lets the workers count until the next line of input.
func count(m *measurement, j job, lines *bufio.Scanner, res *Result) (err error) {
	stop, err := m.Profiles.start()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	used, started, messages := processCPU(), goroutinesStarted(), m.messages()
	start := time.Now()
	m.phase.Store(counting)
	close(m.gate)
	lines.Scan() // "stop", or the parent has gone: the end either way
	m.phase.Store(ended)
	j.drain()
	res.Elapsed = time.Since(start)
	now := processCPU()
	res.CPU, res.System, res.Sleeps = now.user+now.system-used.user-used.system, now.system-used.system, now.sleeps-used.sleeps
	res.Started, res.Messages = -1, -1
	if started >= 0 {
		res.Started = goroutinesStarted() - started
	}
	if messages >= 0 {
		res.Messages = m.messages() - messages
	}
	runtime.ReadMemStats(&after)
	res.Mallocs, res.Bytes = after.Mallocs-before.Mallocs, after.TotalAlloc-before.TotalAlloc
	return lines.Err()
}

// cpu is what a process has used of processors: time in its own code and in the system's for it, and how often one of
// its threads went to sleep.
type cpu struct {
	user, system time.Duration
	sleeps       int64
}

// goroutinesStarted counts the goroutines since the process began, -1 where the runtime does not tell.
func goroutinesStarted() int64 {
	s := []metrics.Sample{{Name: "/sched/goroutines-created:goroutines"}}
	metrics.Read(s)
	if s[0].Value.Kind() != metrics.KindUint64 {
		return -1
	}
	return int64(s[0].Value.Uint64())
}
