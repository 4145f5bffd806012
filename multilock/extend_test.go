package multilock

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redlatch/redlatch/lock"
)

// extended is a user's lock whose holds count how often they are extended.
type extended struct {
	*fake
	calls *atomic.Int32
}

func (e extended) Lock(ctx context.Context, opts ...lock.AcquireOption) (lock.Hold, error) {
	h, err := e.fake.Lock(ctx, opts...)
	return extendedHold{h, e.calls}, err
}

func (e extended) TryLock(ctx context.Context, wait, lease time.Duration) (lock.Hold, error) {
	h, err := e.fake.TryLock(ctx, wait, lease)
	return extendedHold{h, e.calls}, err
}

type extendedHold struct {
	lock.Hold
	calls *atomic.Int32
}

func (h extendedHold) Extend(context.Context, time.Duration) error {
	h.calls.Add(1)
	return nil
}

// TestExtendWithAnEndedContext: it asks no member, and says why, as a single hold does: also of a
// hold that was unlocked, but not before a lease that can't be.
func TestExtendWithAnEndedContext(t *testing.T) {
	var calls atomic.Int32
	h, err := New(extended{newFake("x"), &calls}, extended{newFake("y"), &calls}).Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	want := func(what string, err, want error) {
		t.Helper()
		if !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", what, err, want)
		}
	}
	want("held", h.Extend(ended, time.Minute), context.Canceled)
	if n := calls.Load(); n != 0 {
		t.Errorf("%d members were asked", n)
	}
	want("no lease", h.Extend(ended, 0), lock.ErrInvalidOption)
	want("a context that has not ended", h.Extend(t.Context(), time.Minute), nil)
	if n := calls.Load(); n != 2 {
		t.Errorf("%d members were asked, and there are 2", n)
	}
	if err := h.Unlock(t.Context()); err != nil {
		t.Fatal(err)
	}
	want("unlocked", h.Extend(ended, time.Minute), context.Canceled)
	want("unlocked, a context that has not ended", h.Extend(t.Context(), time.Minute), lock.ErrNotHeld)
}
