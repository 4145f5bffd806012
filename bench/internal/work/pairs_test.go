package work

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// fake is a contender of one mutex, without a server.
type fake struct {
	mu       chan struct{}
	ctxs     sync.Map // of Lock, by identity
	turns    atomic.Int64
	perTurn  time.Duration
	unlocked error
}

func newFake() *fake { return &fake{mu: make(chan struct{}, 1)} }

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
	m := &measurement{Spec: s, contender: f, fail: func(err error) { cancel(err) }}
	m.gate = make(chan struct{})
	j := &pairsJob{}
	if _, err := j.start(ctx, m); err != nil {
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
		f := newFake()
		r, err := runPairs(t, f, Spec{Goroutines: 2, Section: 10 * time.Millisecond, WarmUp: time.Millisecond, Key: "k"})
		if err != nil {
			t.Fatal(err)
		}
		turns := r.Counts[0] + r.Counts[1]
		if turns < 98 || turns > 101 {
			t.Errorf("%d turns of 10 ms in a second", turns)
		}
		if r.Inside != time.Duration(turns)*10*time.Millisecond {
			t.Errorf("%v inside in %d turns of 10 ms", r.Inside, turns)
		}
		h := NewHistogram()
		h.AddSparse(r.Waits)
		if h.Total() != turns+1 {
			t.Errorf("%d waits of %d turns and one that was cut short", h.Total(), turns)
		}
		if f.contexts() < int(turns) {
			t.Errorf("%d contexts for %d turns: each request has its own", f.contexts(), turns)
		}
	})
}

// TestOwnKeysAreCountedExactly: nothing happens between the warm-up and the counting, and what is under way at the end
// is done and counted.
func TestOwnKeysAreCountedExactly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.perTurn = 7 * time.Millisecond
		r, err := runPairs(t, f, Spec{Goroutines: 1, OwnKeys: true, Key: "k"})
		if err != nil {
			t.Fatal(err)
		}
		if done := f.turns.Load() - warmTurns; int64(r.Counts[0]) != done || done != 143 {
			t.Errorf("%d turns of 7 ms counted, %d done in a second", r.Counts[0], done)
		}
	})
}

// TestCtxIsOfTheKindThatWasAsked: rows compare the kinds.
func TestCtxIsOfTheKindThatWasAsked(t *testing.T) {
	for _, c := range []struct {
		kind        Ctx
		one, cancel bool
	}{{CtxRequest, false, true}, {CtxKept, true, true}, {CtxNone, true, false}} {
		synctest.Test(t, func(t *testing.T) {
			f := newFake()
			f.perTurn = time.Millisecond
			if _, err := runPairs(t, f, Spec{Goroutines: 1, OwnKeys: true, Key: "k", Ctx: c.kind}); err != nil {
				t.Fatal(err)
			}
			if one := f.contexts() == 1; one != c.one {
				t.Errorf("%q: %d contexts", c.kind, f.contexts())
			}
			f.ctxs.Range(func(ctx, _ any) bool {
				if can := ctx.(context.Context).Done() != nil; can != c.cancel {
					t.Errorf("%q: can be cancelled: %t", c.kind, can)
				}
				return false
			})
		})
	}
}

// TestAFailedUnlockEndsTheMeasurement.
func TestAFailedUnlockEndsTheMeasurement(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.unlocked, f.perTurn = errors.New("gone"), time.Millisecond
		if _, err := runPairs(t, f, Spec{Goroutines: 1, OwnKeys: true, Key: "k"}); !errors.Is(err, f.unlocked) {
			t.Errorf("it ended with: %v", err)
		}
	})
}
