package work

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/pprof"
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
	start(ctx context.Context, m *measurement) error
	drain()
	finish(r *Result) error
}

// measurement is what the workers of a process share.
type measurement struct {
	Spec
	contender Contender
	open      func() (Contender, error) // another one like it
	board     *board
	phase     atomic.Int32
	gate      chan struct{} // closed when the counting begins
	fail      func(error)   // ends the measurement; the first error wins
}

// errNoParent says that the program that measures has gone, or wants no more.
var errNoParent = errors.New("the input ended before the measurement did")

func run(open Open, s Spec, lines *bufio.Scanner, enc *json.Encoder) error {
	var j job
	switch s.Workload {
	case Pairs:
		j = &pairsJob{}
	case Handover:
		j = &handoverJob{}
	case Holding:
		j = &holdingJob{}
	default:
		return fmt.Errorf("no workload is called %q", s.Workload)
	}
	b, err := openBoard(s.Board)
	if err != nil {
		return err
	}
	another := func() (Contender, error) { return open(s.Contender, Env{s.Addrs, s.Lease, s.Waiters}) }
	c, err := another()
	if err != nil {
		return err
	}
	defer c.Close()
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	m := &measurement{
		Spec: s, contender: c, open: another, board: b, gate: make(chan struct{}), fail: func(err error) { cancel(err) },
	}
	said := make(chan struct{}) // a line of input
	go func() {                 // ends with the input, or with the process
		defer close(said)
		for lines.Scan() {
			said <- struct{}{}
		}
		cancel(errNoParent)
	}()
	if err := j.start(ctx, m); err != nil {
		return err
	}
	if err := enc.Encode(Message{Ready: true}); err != nil {
		return err
	}
	<-said // "go"
	var res Result
	err = count(m, j, said, &res)
	failure := context.Cause(ctx)
	cancel(nil)
	if err := errors.Join(failure, err, j.finish(&res)); err != nil {
		return err
	}
	return enc.Encode(Message{Result: &res})
}

// count lets the workers count until the next line of input.
func count(m *measurement, j job, said <-chan struct{}, res *Result) error {
	if m.Profile != "" {
		f, err := os.Create(m.Profile)
		if err != nil {
			return err
		}
		defer f.Close()
		if err := pprof.StartCPUProfile(f); err != nil {
			return err
		}
		defer pprof.StopCPUProfile()
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	used, start := processCPU(), time.Now()
	m.phase.Store(counting)
	close(m.gate)
	<-said // "stop", or the parent has gone: the end either way
	m.phase.Store(ended)
	m.board.over.Store(1)
	j.drain()
	res.Elapsed, res.CPU = time.Since(start), processCPU()-used
	runtime.ReadMemStats(&after)
	res.Mallocs, res.Bytes = after.Mallocs-before.Mallocs, after.TotalAlloc-before.TotalAlloc
	return nil
}
