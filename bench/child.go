package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"runtime"
	"runtime/pprof"
	"sync"
	"sync/atomic"
	"time"
)

// childVariable in the environment makes this program one of the processes of a measurement.
const childVariable = "REDLATCH_BENCH_PROCESS"

// phases of a measurement, as its workers see them.
const (
	warming int32 = iota
	counting
	ended
)

// childMain runs one process of a measurement and returns its exit status.
func childMain(in io.Reader, out io.Writer) int {
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 1<<20)
	enc := json.NewEncoder(out)
	var s spec
	if !lines.Scan() {
		return 2
	}
	err := json.Unmarshal(lines.Bytes(), &s)
	if err == nil {
		err = runChild(s, lines, enc)
	}
	if err != nil {
		// If this can't be written the parent has gone, or sees the exit status.
		_ = enc.Encode(message{Result: &result{Err: err.Error()}})
		return 1
	}
	return 0
}

// A job is one workload in one process. start returns when it is under way; finish, called once the phase is ended and
// its ctx cancelled, waits for what start began and completes the result.
type job interface {
	start(ctx context.Context, m *measurement) (ready, error)
	finish(r *result) error
}

// measurement is what the workers of a process share.
type measurement struct {
	spec
	contender contender
	phase     atomic.Int32
	fail      func(error) // ends the measurement; the first error wins
}

func runChild(s spec, lines *bufio.Scanner, enc *json.Encoder) error {
	e, err := lookup(s.Contender)
	if err != nil {
		return err
	}
	c, err := e.open(env{addrs: s.Addrs, lease: s.Lease, waiters: s.Waiters})
	if err != nil {
		return err
	}
	defer c.Close()

	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	m := &measurement{spec: s, contender: c, fail: func(err error) { cancel(err) }}
	var j job
	switch s.Workload {
	case pairs:
		j = &pairsJob{}
	case handover:
		j = &handoverJob{}
	case holding:
		j = &holdingJob{}
	default:
		return fmt.Errorf("no workload is called %q", s.Workload)
	}
	r, err := j.start(ctx, m)
	if err != nil {
		return err
	}
	if err := enc.Encode(message{Ready: &r}); err != nil {
		return err
	}

	if !lines.Scan() {
		return errors.New("the input ended before the measurement began")
	}
	var res result
	err = count(m, lines, &res)
	failure := context.Cause(ctx)
	cancel(nil)
	if err := errors.Join(failure, err, j.finish(&res)); err != nil {
		return err
	}
	return enc.Encode(message{Result: &res})
}

// count lets the workers count until the next line of input.
func count(m *measurement, lines *bufio.Scanner, res *result) error {
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
	cpu := processCPU()
	start := time.Now()
	m.phase.Store(counting)
	lines.Scan() // "stop", or the parent has gone: the end either way
	m.phase.Store(ended)
	res.Elapsed = time.Since(start)
	res.CPU = processCPU() - cpu
	runtime.ReadMemStats(&after)
	res.Mallocs, res.Bytes = after.Mallocs-before.Mallocs, after.TotalAlloc-before.TotalAlloc
	return lines.Err()
}

// pairsJob is the workload pairs.
type pairsJob struct {
	workers    []*pairWorker
	background []hold
	done       sync.WaitGroup
}

type pairWorker struct {
	lock, read locker
	readPct    int
	count      uint64
	waits      *histogram
	unfinished time.Duration
	_          [64]byte // the counters of two workers share no cache line
}

// warmTurns is how often each worker locks before its process is ready, if it has a key of its own: scripts are loaded
// and connections open by then. Workers that share a key need not all have had a turn (they could starve each other for
// long); they get a time instead.
const warmTurns = 20

func (j *pairsJob) start(ctx context.Context, m *measurement) (ready, error) {
	rw, _ := m.contender.(readWriter)
	if rw == nil && m.Background > 0 {
		return ready{}, fmt.Errorf("%s has no shared mode", m.Contender)
	}
	for range m.Background {
		h, err := rw.ReadLocker(m.Key).Lock(ctx)
		if err != nil {
			return ready{}, fmt.Errorf("background reader: %w", err)
		}
		j.background = append(j.background, h)
	}
	var warm sync.WaitGroup
	for g := range m.Goroutines {
		key := m.Key
		if m.OwnKeys {
			key = fmt.Sprintf("%s:%d:%d", m.Key, m.Process, g)
		}
		w := &pairWorker{lock: m.contender.Locker(key), readPct: m.ReadPercent, waits: newHistogram()}
		w.read = w.lock
		if rw != nil {
			w.read = rw.ReadLocker(key)
		}
		j.workers = append(j.workers, w)
		warm.Add(1)
		j.done.Add(1)
		go func() {
			defer j.done.Done()
			// A ctx of its own, as a request has: a shared one would make every contender fight for its mutex.
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			w.run(ctx, m, sync.OnceFunc(warm.Done))
		}()
	}
	if m.OwnKeys {
		warm.Wait()
	} else {
		time.Sleep(m.WarmUp)
	}
	if m.Queue > 0 {
		if err := queueLength(ctx, m.spec); err != nil {
			return ready{}, err
		}
	}
	return ready{}, context.Cause(ctx)
}

func (w *pairWorker) run(ctx context.Context, m *measurement, warm func()) {
	defer warm()
	background := context.Background()
	for turns := 0; m.phase.Load() != ended; turns++ {
		if turns == warmTurns {
			warm()
		}
		l := w.lock
		if w.readPct > 0 && rand.IntN(100) < w.readPct {
			l = w.read
		}
		start := time.Now()
		h, err := l.Lock(ctx)
		wait := time.Since(start)
		if err != nil {
			if m.phase.Load() != ended && ctx.Err() == nil {
				m.fail(fmt.Errorf("%s: Lock: %w", m.Contender, err))
			} else if m.phase.Load() == ended {
				w.unfinished = wait
			}
			return
		}
		if m.phase.Load() == counting {
			w.count++
			w.waits.add(wait)
		}
		if err := h.Unlock(background); err != nil {
			m.fail(fmt.Errorf("%s: Unlock: %w", m.Contender, err))
			return
		}
	}
}

func (j *pairsJob) finish(r *result) error {
	j.done.Wait()
	waits := newHistogram()
	for _, w := range j.workers {
		if w.unfinished > 0 {
			// A waiter that never had its turn must not vanish from the tail.
			w.waits.add(w.unfinished)
		}
		waits.merge(w.waits)
		r.Counts = append(r.Counts, w.count)
	}
	r.Waits = waits.sparse()
	var errs []error
	for _, h := range j.background {
		errs = append(errs, h.Unlock(context.Background()))
	}
	return errors.Join(errs...)
}

// queueLength waits until the queue of the fair lock is as long as the row wants it.
func queueLength(ctx context.Context, s spec) error {
	client, err := rueidisClient(s.Addrs[0])
	if err != nil {
		return err
	}
	defer client.Close()
	key := "redisson_lock_queue:{" + s.Key + "}"
	deadline := time.Now().Add(time.Minute)
	for {
		n, err := client.Do(ctx, client.B().Llen().Key(key).Build()).AsInt64()
		if err != nil {
			return err
		}
		if n >= int64(s.Queue) {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("the queue has %d entries, not %d", n, s.Queue)
		}
		time.Sleep(20 * time.Millisecond)
	}
}
