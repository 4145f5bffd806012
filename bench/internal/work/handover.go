package work

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

// handoverJob passes one lock between two processes: process 0 takes it for the turns 0, 2, 4 …, process 1 for the
// others. The holder unlocks only when the other one has said on the board that it is about to lock and has had time to
// fall asleep over it, so that each pass is a wake-up in another process and never a lock that was free. The pause
// before is random over more than a poller's interval: a poller is met at any point of it.
type handoverJob struct {
	cancel context.CancelFunc
	warm   chan struct{} // closed when the lock was handed over several times
	done   chan struct{} // closed when run has returned
	passes []Pass        // run's, until it has returned
}

const (
	minPause = 2 * time.Millisecond
	maxPause = minPause + PollEvery
	// warmPasses is how many hand-overs come before a process is ready: connections are open, scripts loaded and
	// subscriptions made by then.
	warmPasses = 8
	// coldWait is how long a Lock may take before anything is counted.
	coldWait = 2 * time.Second
	// lookEvery is how often the board is looked at. The first look comes after it, so that nobody looks while the lock
	// changes hands.
	lookEvery = 500 * time.Microsecond
)

// errCold says that the hand-overs ended before anything was counted.
var errCold = errors.New("the lock was not handed over often enough to begin")

func (j *handoverJob) start(ctx context.Context, m *measurement) error {
	ctx, j.cancel = context.WithCancel(ctx)
	j.warm, j.done = make(chan struct{}), make(chan struct{})
	go func() { // until its ctx ends: finish waits for it
		defer close(j.done)
		if err := j.run(ctx, m); ctx.Err() == nil && m.phase.Load() != ended {
			m.fail(fmt.Errorf("%s: %w", m.Contender, err))
		}
	}()
	select {
	case <-j.warm:
		return nil
	case <-j.done:
		return errors.Join(context.Cause(ctx), errCold)
	}
}

// run passes the lock until something ends it, and returns what.
func (j *handoverJob) run(ctx context.Context, m *measurement) error {
	l := m.contender.Locker(m.Key)
	pass := func(turn int64, gave bool) {
		if at := time.Now().UnixNano(); m.phase.Load() == counting {
			j.passes = append(j.passes, Pass{turn, gave, at})
		}
	}
	for turn := int64(m.Process); ; turn += 2 {
		if turn/2 == warmPasses/2 {
			close(j.warm)
		}
		if !atLeast(ctx, &m.board.taken, turn) {
			return context.Cause(ctx)
		}
		m.board.awaited.Store(turn)
		h, err := lockWithin(ctx, l, turn)
		if err != nil {
			return err
		}
		pass(turn, false)
		if !m.board.enter(writer) {
			return errOverlap
		}
		m.board.taken.Store(turn + 1)
		if !atLeast(ctx, &m.board.awaited, turn+1) {
			return errors.Join(context.Cause(ctx), h.Unlock(context.Background()))
		}
		time.Sleep(minPause + rand.N(maxPause-minPause))
		m.board.leave(writer)
		pass(turn+1, true)
		if err := h.Unlock(context.Background()); err != nil {
			return err
		}
	}
}

// atLeast waits until the other process has written that number, and reports whether it has before ctx ended.
func atLeast(ctx context.Context, cell interface{ Load() int64 }, n int64) bool {
	for cell.Load() < n {
		select {
		case <-time.After(lookEvery):
		case <-ctx.Done():
			return false
		}
	}
	return true
}

// lockWithin is Lock, again and again until something is counted: a contender may sleep through the first messages for
// ever (rueidislock was seen to), and is not to be left out for that. The ctx of a hold lives on: rueidislock's holds end
// with it, and the first pass that counts would be one of a lock that is free.
func lockWithin(ctx context.Context, l Locker, turn int64) (Hold, error) {
	for turn < warmPasses {
		once, cancel := context.WithCancel(ctx)
		limit := time.AfterFunc(coldWait, cancel)
		h, err := l.Lock(once)
		if limit.Stop() {
			return h, err
		}
		if err == nil { // at the last moment: its ctx is over
			_ = h.Unlock(context.Background())
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
	}
	return l.Lock(ctx)
}

func (j *handoverJob) drain() {}

func (j *handoverJob) finish(r *Result) error {
	j.cancel()
	<-j.done
	r.Passes = j.passes
	return nil
}

// Handovers joins the two sides' passes to the time that each took.
func Handovers(results []Result) *Histogram {
	gave := map[int64]int64{}
	for _, r := range results {
		for _, p := range r.Passes {
			if p.Gave {
				gave[p.Number] = p.UnixNs
			}
		}
	}
	h := NewHistogram()
	for _, r := range results {
		for _, p := range r.Passes {
			// One without the other lay across the beginning or the end.
			if at, ok := gave[p.Number]; !p.Gave && ok {
				h.Add(time.Duration(p.UnixNs - at))
			}
		}
	}
	return h
}
