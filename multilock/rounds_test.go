package multilock

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlatch/redlatch/lock"
)

// fake is a lock on a server a millisecond away.
type fake struct {
	name  string
	mu    sync.Mutex
	owner *fakeHold
	freed chan struct{} // closed and replaced at each release
	tries int
}

func newFake(name string) *fake { return &fake{name: name, freed: make(chan struct{})} }

const oneWay = time.Millisecond

func (f *fake) Name() string { return f.name }

func (f *fake) Lock(ctx context.Context, _ ...lock.AcquireOption) (lock.Hold, error) {
	return f.TryLock(ctx, time.Hour, 0)
}

func (f *fake) TryLock(ctx context.Context, wait, _ time.Duration) (lock.Hold, error) {
	end := time.NewTimer(wait)
	defer end.Stop()
	for {
		time.Sleep(oneWay)
		f.mu.Lock()
		f.tries++
		freed := f.freed
		if f.owner == nil {
			h := &fakeHold{f: f}
			h.ctx, h.cancel = context.WithCancelCause(ctx)
			f.owner = h
			f.mu.Unlock()
			time.Sleep(oneWay)
			return h, nil
		}
		f.mu.Unlock()
		time.Sleep(oneWay)
		if wait == 0 {
			return nil, &lock.NotAcquiredError{Name: f.name}
		}
		select {
		case <-freed:
			time.Sleep(oneWay) // the message
		case <-end.C:
			return nil, &lock.NotAcquiredError{Name: f.name}
		case <-ctx.Done():
			return nil, &lock.NotAcquiredError{Name: f.name, Err: ctx.Err()}
		}
	}
}

type fakeHold struct {
	f      *fake
	ctx    context.Context
	cancel context.CancelCauseFunc
}

func (h *fakeHold) Name() string                                { return h.f.name }
func (h *fakeHold) Context() context.Context                    { return h.ctx }
func (h *fakeHold) Extend(context.Context, time.Duration) error { return nil }
func (h *fakeHold) Token() uint64                               { return 0 }
func (h *fakeHold) ValidUntil() time.Time                       { return time.Now().Add(time.Hour) }
func (h *fakeHold) Unlock(context.Context) error {
	time.Sleep(oneWay)
	h.f.mu.Lock()
	if h.f.owner != h {
		h.f.mu.Unlock()
		return lock.ErrNotHeld
	}
	h.f.owner = nil
	close(h.f.freed)
	h.f.freed = make(chan struct{})
	h.f.mu.Unlock()
	h.cancel(nil)
	time.Sleep(oneWay)
	return nil
}

// TestNoLivelockInLockstep: two that hold each other's member and give it back in
// step, on servers that answer in step, would go on like that for ever; the random
// pauses take them apart. Time is simulated, so that nothing else does.
func TestNoLivelockInLockstep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x, y := newFake("x"), newFake("y")
		const turns = 50
		ctx, cancel := context.WithTimeout(context.Background(), turns*time.Second)
		defer cancel()
		var wg sync.WaitGroup
		took := make([]time.Duration, 2)
		for i, order := range [][]*fake{{x, y}, {y, x}} {
			wg.Go(func() {
				for range turns {
					began := time.Now()
					// Each begins with a member of its own, as if it had just been
					// told that this one is free.
					m := New(order[0], order[1])
					units, err := m.settle(ctx)
					if err != nil {
						t.Error(err)
						return
					}
					r := &rounds{acquisition: &acquisition{ctx: ctx, m: m, pause: newPause()}, units: units}
					parts, err := r.from(i) // x for one, y for the other
					if err != nil {
						if errors.Is(err, context.DeadlineExceeded) {
							t.Errorf("livelock: no turn after %d rounds", r.round)
						} else {
							t.Error(err)
						}
						return
					}
					if r.round > 40 {
						t.Errorf("a turn took %d rounds", r.round)
					}
					r.giveBack(parts)
					took[i] = max(took[i], time.Since(began))
				}
			})
		}
		wg.Wait()
		t.Logf("longest turns %v; tries %d and %d for %d turns", took, x.tries, y.tries, 2*turns)
	})
}
