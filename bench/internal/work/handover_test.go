package work

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlatch/redlatch/internal/testbed"
)

// cold is a locker whose first Locks are never told that the lock is free, or only when their ctx is over. Its holds
// are their ctx, as with libraries whose locks end with it.
type cold struct {
	sleeps, late int
	unlocked     int
}

type ctxHold struct {
	ctx context.Context
	l   *cold
}

func (h ctxHold) Unlock(context.Context) error { h.l.unlocked++; return nil }

func (l *cold) Lock(ctx context.Context) (Hold, error) {
	switch {
	case l.sleeps > 0:
		l.sleeps--
		<-ctx.Done()
		return nil, ctx.Err()
	case l.late > 0:
		l.late--
		<-ctx.Done()
	}
	return ctxHold{ctx, l}, nil
}

// TestWarmHoldsLast: whoever hands the lock over in the first pass that counts still holds it.
func TestWarmHoldsLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		l := &cold{sleeps: 2, late: 1}
		began := time.Now()
		h, err := lockWithin(ctx, l, warmPasses-1)
		testbed.Must(t, err)
		testbed.Equal(t, time.Since(began), 3*coldWait, "it took")
		testbed.Equal(t, l.unlocked, 1, "unlocked: the one that came too late")
		time.Sleep(2 * coldWait)
		testbed.Must(t, h.(ctxHold).ctx.Err())
		cancel()
		if _, err := lockWithin(ctx, &cold{sleeps: 1}, 0); err == nil {
			t.Error("a hold after the end")
		}
	})
}

// TestProcessesHandOverByTheirBoard, which each has mapped for itself: every pass is told by both sides.
func TestProcessesHandOverByTheirBoard(t *testing.T) {
	file := filepath.Join(t.TempDir(), "board")
	testbed.Must(t, os.WriteFile(file, make([]byte, BoardSize), 0o600))
	f := newFake(1)
	jobs, ms, results := make([]handoverJob, 2), make([]*measurement, 2), make([]Result, 2)
	ctx, cancel := context.WithCancel(t.Context())
	errs := make(chan error, 4)
	for i := range jobs {
		b, err := openBoard(file)
		if errors.Is(err, errors.ErrUnsupported) {
			t.Skip(err)
		}
		testbed.Must(t, err)
		ms[i] = &measurement{Spec: Spec{Process: i}, contender: f, board: b, fail: func(err error) { errs <- err }}
		go func() { errs <- jobs[i].start(ctx, ms[i]) }() // received below
	}
	for range jobs {
		testbed.Must(t, <-errs)
	}
	before := ms[0].board.taken.Load()
	for _, m := range ms {
		m.phase.Store(counting)
	}
	for ms[1].board.taken.Load() < before+6 {
		time.Sleep(time.Millisecond) // the processes pass the lock by themselves
	}
	for _, m := range ms {
		m.phase.Store(ended)
	}
	cancel()
	for i := range jobs {
		testbed.Must(t, jobs[i].finish(&results[i]))
	}
	if h := Handovers(results); h.Total() < 4 || h.Max() > time.Minute {
		t.Errorf("%d passes of at most %v in 6 turns", h.Total(), h.Max())
	}
}
