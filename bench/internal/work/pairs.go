package work

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"time"

	"github.com/redis/rueidis"
)

// pairsJob is the workload [Pairs]. Workers with keys of their own stand still when the process is ready, and when they
// are told to end they end the pair that they are in: whatever the server has done in between belongs to pairs that are
// counted. Workers that share a key can't stand still, since most of them stand in line.
type pairsJob struct {
	workers    []*pairWorker
	clients    []Contender    // with OwnClients
	inside     rueidis.Client // with InsideCommands
	background []Hold
	done       sync.WaitGroup
	ownKeys    bool
	ctxCost    allocations // of making a ctx, for each pair
}

type pairWorker struct {
	lock, read Locker
	readShare  int                         // of 1,000
	section    func(context.Context) error // what is done inside; nil: nothing
	count      uint64
	waits      *Histogram
	pairs      *Histogram // nil: not wanted
	unfinished time.Duration
	inside     time.Duration
	turns      []Turn
	_          [64]byte // the counters of two workers share no cache line
}

// warmTurns is how often each worker locks before its process is ready, if it has a key of its own: scripts are loaded
// and connections open by then. Workers that share a key need not all have had a turn (they could starve each other for
// long); they get a time instead.
const warmTurns = 20

func (j *pairsJob) start(ctx context.Context, m *measurement) (Ready, error) {
	j.ownKeys = m.OwnKeys
	rw, _ := m.contender.(ReadWriter)
	if rw == nil && m.Background > 0 {
		return Ready{}, fmt.Errorf("%s has no shared mode", m.Contender)
	}
	for range m.Background {
		h, err := rw.ReadLocker(m.Key).Lock(ctx)
		if err != nil {
			return Ready{}, fmt.Errorf("background reader: %w", err)
		}
		j.background = append(j.background, h)
	}
	if m.Ctx == CtxRequest {
		j.ctxCost = allocationsOf(func() {
			_, cancel := context.WithCancel(ctx)
			cancel()
		})
	}
	var section func(context.Context) error
	if m.Section > 0 || m.InsideCommands > 0 {
		var err error
		if section, err = j.section(m); err != nil {
			return Ready{}, err
		}
	}
	var warm sync.WaitGroup
	for g := range m.Goroutines {
		c := m.contender
		if m.OwnClients {
			var err error
			if c, err = m.open(); err != nil {
				return Ready{}, fmt.Errorf("client %d: %w", g, err)
			}
			j.clients = append(j.clients, c)
		}
		w := newPairWorker(m, c, g, section)
		j.workers = append(j.workers, w)
		warm.Add(1)
		j.done.Add(1)
		go func() {
			defer j.done.Done()
			if m.Ctx == CtxNone {
				w.run(context.Background(), m, sync.OnceFunc(warm.Done))
				return
			}
			// One for each goroutine: a shared one would make every contender fight for its mutex.
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			w.run(ctx, m, sync.OnceFunc(warm.Done))
		}()
	}
	if m.CountMessages {
		m.messages = j.messages
	}
	if m.OwnKeys {
		warm.Wait()
	} else {
		time.Sleep(m.WarmUp)
	}
	if m.Queue > 0 {
		if err := queueLength(ctx, m.Spec); err != nil {
			return Ready{}, err
		}
	}
	return Ready{}, context.Cause(ctx)
}

// section is what the holders do inside.
func (j *pairsJob) section(m *measurement) (func(context.Context) error, error) {
	if m.InsideCommands == 0 {
		return func(context.Context) error {
			time.Sleep(m.Section)
			return nil
		}, nil
	}
	client, err := dial(m.Spec)
	if err != nil {
		return nil, err
	}
	j.inside = client
	return func(ctx context.Context) error {
		for range m.InsideCommands {
			if err := client.Do(ctx, client.B().Incr().Key(m.Key+":work").Build()).Error(); err != nil {
				return err
			}
		}
		time.Sleep(m.Section)
		return nil
	}, nil
}

// messages adds up what the clients have been sent, -1 if one of them does not count.
func (j *pairsJob) messages() int64 {
	var n int64
	for _, c := range j.clients {
		counter, ok := c.(MessageCounter)
		if !ok {
			return -1
		}
		n += int64(counter.Messages())
	}
	return n
}

func newPairWorker(m *measurement, c Contender, g int, section func(context.Context) error) *pairWorker {
	key := m.Key
	w := &pairWorker{readShare: m.ReadPerMille, section: section, waits: NewHistogram()}
	if m.OwnKeys {
		key = fmt.Sprintf("%s:%d:%d", m.Key, m.Process, g)
		w.pairs = NewHistogram()
	}
	w.lock = c.Locker(key)
	w.read = w.lock
	if rw, ok := c.(ReadWriter); ok {
		w.read = rw.ReadLocker(key)
	}
	return w
}

func (w *pairWorker) run(parent context.Context, m *measurement, warm func()) {
	defer warm()
	ctx, cancel := parent, func() {}
	start := time.Now()
	for turns := 0; m.phase.Load() != ended; turns++ {
		if turns == warmTurns {
			warm()
			if m.OwnKeys {
				select {
				case <-m.gate:
				case <-parent.Done():
					return // another one failed
				}
				start = time.Now()
			}
		}
		began := m.phase.Load()
		l := w.lock
		if w.readShare > 0 && rand.IntN(1000) < w.readShare {
			l = w.read
		}
		if m.Ctx == CtxRequest {
			ctx, cancel = context.WithCancel(parent)
		}
		h, err := l.Lock(ctx)
		got := time.Now()
		wait := got.Sub(start)
		if err != nil {
			cancel()
			if m.phase.Load() != ended && parent.Err() == nil {
				m.fail(fmt.Errorf("%s: Lock: %w", m.Contender, err))
			} else if m.phase.Load() == ended {
				w.unfinished = wait
			}
			return
		}
		counted := m.phase.Load() == counting || m.OwnKeys && began == counting
		if t, ok := h.(Timer); ok {
			wait = t.Took()
		}
		if counted {
			w.count++
			w.waits.Add(wait)
		}
		var inside time.Duration
		if w.section != nil {
			err = w.section(parent)
			if inside = time.Since(got); counted {
				w.inside += inside
			}
		}
		if counted && m.Turns {
			w.turns = append(w.turns, Turn{got.UnixNano(), time.Now().UnixNano()})
		}
		err = errors.Join(err, h.Unlock(ctx))
		cancel()
		if err != nil {
			// What the end of the measurement interrupts, a library that heeds the ctx may leave locked.
			if m.phase.Load() != ended || parent.Err() == nil {
				m.fail(fmt.Errorf("%s: inside or Unlock: %w", m.Contender, err))
			}
			return
		}
		end := time.Now()
		if w.pairs != nil && counted {
			w.pairs.Add(end.Sub(start) - inside)
		}
		start = end
	}
}

func (j *pairsJob) drain() {
	if j.ownKeys {
		j.done.Wait()
	}
}

func (j *pairsJob) finish(r *Result) error {
	j.done.Wait()
	waits, pairs := NewHistogram(), NewHistogram()
	for _, w := range j.workers {
		if w.unfinished > 0 {
			// A waiter that never had its turn must not vanish from the tail.
			w.waits.Add(w.unfinished)
		}
		waits.Merge(w.waits)
		if w.pairs != nil {
			pairs.Merge(w.pairs)
		}
		r.Counts = append(r.Counts, w.count)
		r.Inside += w.inside
		r.Turns = append(r.Turns, w.turns...)
	}
	var turns uint64
	for _, n := range r.Counts {
		turns += n
	}
	r.Mallocs -= min(r.Mallocs, uint64(j.ctxCost.number*float64(turns)))
	r.Bytes -= min(r.Bytes, uint64(j.ctxCost.bytes*float64(turns)))
	r.Waits, r.Pairs = waits.Sparse(), pairs.Sparse()
	var errs []error
	for _, h := range j.background {
		errs = append(errs, h.Unlock(context.Background()))
	}
	if j.inside != nil {
		j.inside.Close()
	}
	var closing sync.WaitGroup
	for _, c := range j.clients {
		closing.Go(c.Close)
	}
	closing.Wait()
	return errors.Join(errs...)
}

// allocations are what something allocates on average.
type allocations struct{ number, bytes float64 }

// allocationsOf does it many times, while nothing else of the process runs.
func allocationsOf(do func()) allocations {
	const times = 1000
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range times {
		do()
	}
	runtime.ReadMemStats(&after)
	return allocations{float64(after.Mallocs-before.Mallocs) / times, float64(after.TotalAlloc-before.TotalAlloc) / times}
}
