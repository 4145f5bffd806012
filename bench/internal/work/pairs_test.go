package work

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlatch/redlatch/internal/testbed"
)

// fake is a contender of one semaphore, without a server.
type fake struct {
	mu       chan struct{} // holds as many as may be inside
	ctxs     sync.Map      // of Lock, by identity
	turns    atomic.Int64
	perTurn  time.Duration
	unlocked error
}

func newFake(inside int) *fake { return &fake{mu: make(chan struct{}, inside)} }

func (f *fake) Locker(string) Locker { return f }
func (f *fake) Close()               {}

func (f *fake) Lock(ctx context.Context) (Hold, error) {
	f.ctxs.Store(ctx, true)
	select {
	case f.mu <- struct{}{}:
		time.Sleep(f.perTurn)
		f.turns.Add(1)
		return f, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (f *fake) Unlock(context.Context) error {
	<-f.mu
	return f.unlocked
}

// runPairs runs a job for a second of fake time and returns what it has counted.
func runPairs(t *testing.T, f *fake, s Spec) (Result, error) {
	t.Helper()
	ctx, cancel := context.WithCancelCause(t.Context())
	m := &measurement{Spec: s, contender: f, board: &board{}, gate: make(chan struct{}), fail: func(err error) { cancel(err) }}
	j := &pairsJob{}
	if err := j.start(ctx, m); err != nil {
		return Result{}, err
	}
	m.phase.Store(counting)
	close(m.gate)
	time.Sleep(time.Second)
	m.phase.Store(ended)
	j.drain()
	failure := context.Cause(ctx)
	cancel(nil)
	var r Result
	err := j.finish(&r)
	return r, errors.Join(failure, err)
}

func (f *fake) contexts() (n int) {
	f.ctxs.Range(func(any, any) bool { n++; return true })
	return n
}

// TestPairsCountTurnsAndSections, and a waiter that the end of the measurement cuts short is counted with its wait.
func TestPairsCountTurnsAndSections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(1)
		r, err := runPairs(t, f, Spec{Goroutines: 2, Section: 10 * time.Millisecond, WarmUp: time.Millisecond, Key: "k"})
		testbed.Must(t, err)
		turns := r.Counts[0] + r.Counts[1]
		if turns < 98 || turns > 101 {
			t.Errorf("%d turns of 10 ms in a second", turns)
		}
		h := NewHistogram()
		h.AddSparse(r.Waits)
		testbed.Equal(t, h.Total(), turns+1, "waits, with the one that was cut short")
		testbed.AtLeast(t, f.contexts(), int(turns), "contexts, each request has its own")
	})
}

// TestOwnKeysAreCountedExactly: nothing happens between the warm-up and the counting, and what is under way at the end
// is done and counted.
func TestOwnKeysAreCountedExactly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(1)
		f.perTurn = 7 * time.Millisecond
		r, err := runPairs(t, f, Spec{Goroutines: 1, OwnKeys: true, Key: "k"})
		testbed.Must(t, err)
		testbed.Equal(t, r.Counts[0], 143, "turns of 7 ms that are counted")
		testbed.Equal(t, f.turns.Load()-warmTurns, 143, "turns of 7 ms in a second")
	})
}

// TestNoFigureOfABrokenLock: a failed unlock, and a lock that does not exclude, end the measurement.
func TestNoFigureOfABrokenLock(t *testing.T) {
	gone := errors.New("gone")
	for _, tc := range []struct {
		inside   int
		perTurn  time.Duration
		unlocked error
		spec     Spec
		want     error
	}{
		{1, time.Millisecond, gone, Spec{Goroutines: 1, OwnKeys: true, Key: "k"}, gone},
		{2, 0, nil, Spec{Goroutines: 3, Section: time.Millisecond, WarmUp: time.Millisecond, Key: "k"}, errOverlap},
	} {
		synctest.Test(t, func(t *testing.T) {
			f := newFake(tc.inside)
			f.unlocked, f.perTurn = tc.unlocked, tc.perTurn
			if _, err := runPairs(t, f, tc.spec); !errors.Is(err, tc.want) {
				t.Errorf("it ended with: %v, not: %v", err, tc.want)
			}
		})
	}
}

// TestReadersMayBeInsideTogether, and with nobody else.
func TestReadersMayBeInsideTogether(t *testing.T) {
	b := &board{}
	for _, c := range []struct {
		weight int64
		want   bool
	}{{reader, true}, {reader, true}, {writer, false}} {
		testbed.Equal(t, b.enter(c.weight), c.want, "one of weight", c.weight, "may be inside")
	}
	b.leave(reader)
	b.leave(reader)
	testbed.Equal(t, b.enter(reader), false, "a reader beside the writer")
	b.over.Store(1)
	testbed.Equal(t, b.enter(writer), true, "what the end interrupts is not told")
}
