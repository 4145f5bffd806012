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
	workers []*pairWorker
	clients []Contender // with OwnClients
	done    sync.WaitGroup
	ownKeys bool
	ctxCost allocations // of making a ctx, for each pair
}

type pairWorker struct {
	lock, read Locker
	count      uint64
	waits      *Histogram
	pairs      *Histogram // nil: not wanted
	unfinished time.Duration
	_          [64]byte // the counters of two workers share no cache line
}

// warmTurns is how often each worker locks before its process is ready, if it has a key of its own: scripts are loaded
// and connections open by then. Workers that share a key need not all have had a turn (they could starve each other for
// long); they get a time instead.
const warmTurns = 20

// errOverlap says that the lock did not exclude.
var errOverlap = errors.New("two were inside at once")

func (j *pairsJob) start(ctx context.Context, m *measurement) error {
	j.ownKeys = m.OwnKeys
	j.ctxCost = allocationsOf(func() {
		_, cancel := context.WithCancel(ctx)
		cancel()
	})
	var warm sync.WaitGroup
	for g := range m.Goroutines {
		c := m.contender
		if m.OwnClients {
			var err error
			if c, err = m.open(); err != nil {
				return fmt.Errorf("client %d: %w", g, err)
			}
			j.clients = append(j.clients, c)
		}
		w := newPairWorker(m, c, g)
		j.workers = append(j.workers, w)
		warm.Add(1)
		j.done.Go(func() { // until the phase or its ctx ends: drain and finish wait for it
			// A ctx for each goroutine: a shared one would make every contender fight for its mutex.
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			w.run(ctx, m, sync.OnceFunc(warm.Done))
		})
	}
	if m.OwnKeys {
		warm.Wait()
	} else {
		time.Sleep(m.WarmUp)
	}
	if m.Queue > 0 {
		if err := queueLength(ctx, m.Spec); err != nil {
			return err
		}
	}
	return context.Cause(ctx)
}

func newPairWorker(m *measurement, c Contender, g int) *pairWorker {
	key := m.Key
	w := &pairWorker{waits: NewHistogram()}
	if m.OwnKeys {
		key = fmt.Sprintf("%s:%d:%d", m.Key, m.Process, g)
		w.pairs = NewHistogram()
	}
	w.lock = c.Locker(key)
	if rw, ok := c.(ReadWriter); ok {
		w.read = rw.ReadLocker(key)
	}
	return w
}

func (w *pairWorker) run(parent context.Context, m *measurement, warm func()) {
	defer warm()
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
		end, err := w.pair(parent, m, start)
		if err != nil {
			// What the end of the measurement interrupts is no failure.
			if parent.Err() == nil {
				m.fail(fmt.Errorf("%s: %w", m.Contender, err))
			}
			return
		}
		start = end
	}
}

// pair locks and unlocks once. Each pair has a ctx of its own that can be cancelled, as a request has.
func (w *pairWorker) pair(parent context.Context, m *measurement, start time.Time) (end time.Time, err error) {
	began := m.phase.Load()
	l, weight := w.lock, writer
	if w.read != nil && m.ReadPerMille > 0 && rand.IntN(1000) < m.ReadPerMille {
		l, weight = w.read, reader
	}
	ctx, cancel := context.WithCancel(parent)
	defer cancel()
	h, err := l.Lock(ctx)
	wait := time.Since(start)
	if err != nil {
		if m.phase.Load() == ended {
			w.unfinished = wait
		}
		return end, fmt.Errorf("Lock: %w", err)
	}
	if !m.OwnKeys && !m.board.enter(weight) {
		return end, errOverlap
	}
	counted := m.phase.Load() == counting || m.OwnKeys && began == counting
	if counted {
		w.count++
		w.waits.Add(wait)
	}
	if m.Section > 0 {
		time.Sleep(m.Section)
	}
	if !m.OwnKeys {
		m.board.leave(weight)
	}
	err = h.Unlock(ctx)
	cancel()
	if err != nil {
		return end, fmt.Errorf("Unlock: %w", err)
	}
	end = time.Now()
	if w.pairs != nil && counted {
		w.pairs.Add(end.Sub(start))
	}
	return end, nil
}

func (j *pairsJob) drain() {
	if j.ownKeys {
		j.done.Wait()
	}
}

func (j *pairsJob) finish(r *Result) error {
	j.done.Wait()
	waits, pairs := NewHistogram(), NewHistogram()
	var turns uint64
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
		turns += w.count
	}
	r.Mallocs -= min(r.Mallocs, uint64(j.ctxCost.number*float64(turns)))
	r.Bytes -= min(r.Bytes, uint64(j.ctxCost.bytes*float64(turns)))
	r.Waits, r.Pairs = waits.Sparse(), pairs.Sparse()
	var closing sync.WaitGroup
	for _, c := range j.clients {
		closing.Go(c.Close)
	}
	closing.Wait()
	return nil
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

// patience is how long a queue may take to become as long as the row wants it.
const patience = time.Minute

// queueLength waits until the queue of the fair lock is as long as the row wants it.
func queueLength(ctx context.Context, s Spec) error {
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: s.Addrs[:1], ForceSingleClient: true, DisableCache: true})
	if err != nil {
		return err
	}
	defer client.Close()
	length := client.B().Llen().Key("redisson_lock_queue:{" + s.Key + "}").Build().Pin()
	for deadline := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		n, err := client.Do(ctx, length).AsInt64()
		if err != nil || n >= int64(s.Queue) {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("the queue has %d entries, not %d", n, s.Queue)
		}
	}
}
