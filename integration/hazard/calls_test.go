package hazard

import (
	"context"
	"errors"
	"math"
	"sync"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/testbed"
)

// A hold is unlocked once, however many goroutines try at the same moment: one of them is
// told that it did it, the others that it is done.
func TestOneOfManyUnlocksCounts(t *testing.T) {
	s := server(t)
	c := dial(t, s.Addr())
	for _, kind := range kinds {
		l := kind.make(c, "once-"+kind.name)
		h := take(t, t.Context(), l)
		start, results := make(chan struct{}), make(chan error, 16)
		var all sync.WaitGroup
		for range cap(results) {
			all.Go(func() {
				<-start
				results <- h.Unlock(context.Background())
			})
		}
		close(start)
		all.Wait()
		close(results)
		done := 0
		for err := range results {
			if err == nil {
				done++
			} else {
				is(t, kind.name, err, redlatch.ErrNotHeld)
			}
		}
		if done != 1 {
			t.Errorf("%s: %d of the calls unlocked it", kind.name, done)
		}
		unlock(t, take(t, t.Context(), l)) // nobody freed the next hold
	}
}

// An Extend beside the Unlock of the same hold extends it or finds it unlocked. The Unlock
// works, and no late command of the Extend brings the lock back.
func TestExtendBesideUnlockLeavesNothing(t *testing.T) {
	s := server(t)
	c := dial(t, s.Addr())
	for _, kind := range kinds {
		l := kind.make(c, "beside-"+kind.name)
		for range 50 {
			h := take(t, t.Context(), l)
			extended := make(chan error, 1)
			go func() { extended <- h.Extend(context.Background(), time.Hour) }()
			unlock(t, h)
			if err := <-extended; err != nil && !errors.Is(err, redlatch.ErrNotHeld) {
				t.Fatalf("%s: Extend: %v", kind.name, err)
			}
			next, err := l.TryLock(t.Context(), 0, 0)
			if err != nil {
				t.Fatalf("%s: after Unlock: %v", kind.name, err)
			}
			unlock(t, next)
		}
	}
}

type valueKey struct{}

// A hold's context has the values and the deadline of the one given to Lock and is always
// the same. It ends with that one's cause, and the later Unlock does not change the cause.
func TestHoldsContextIsOfTheCallersContext(t *testing.T) {
	s := server(t)
	c := dial(t, s.Addr())
	gone := errors.New("the user has gone")
	for _, kind := range kinds {
		parent, end := context.WithCancelCause(context.WithValue(t.Context(), valueKey{}, "v"))
		deadline := time.Now().Add(time.Hour)
		ctx, cancel := context.WithDeadline(parent, deadline)
		defer cancel()
		h := take(t, ctx, kind.make(c, "ctx-"+kind.name))
		got := h.Context()
		if got != h.Context() || got.Value(valueKey{}) != "v" {
			t.Errorf("%s: value %v", kind.name, got.Value(valueKey{}))
		}
		if d, ok := got.Deadline(); !ok || !d.Equal(deadline) {
			t.Errorf("%s: deadline %v, %v", kind.name, d, ok)
		}
		end(gone)
		<-got.Done()
		unlock(t, h)
		if got.Err() != context.Canceled || context.Cause(got) != gone { //nolint:errorlint // the very errors, as context has them
			t.Errorf("%s: ended with %v, %v", kind.name, got.Err(), context.Cause(got))
		}
	}
}

// Waits and leases are either refused before anything is sent or work, up to the largest
// value that Go has.
func TestBoundsOfWaitsAndLeases(t *testing.T) {
	s := server(t)
	c := dial(t, s.Addr())
	for _, kind := range kinds {
		l := kind.make(c, "bounds-"+kind.name)
		for _, bad := range []struct{ wait, lease time.Duration }{
			{-1, 0}, {math.MinInt64, 0}, {0, -1}, {0, math.MinInt64}, {0, 1}, {0, time.Millisecond - 1}, {-1, -1},
		} {
			_, err := l.TryLock(t.Context(), bad.wait, bad.lease)
			is(t, kind.name, err, redlatch.ErrInvalidOption)
			if errors.Is(err, redlatch.ErrNotAcquired) {
				t.Errorf("%s, wait %v, lease %v: a bad value was taken for busy", kind.name, bad.wait, bad.lease)
			}
		}
		// The value is wrong whether or not ctx has ended.
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := l.TryLock(ended, -1, 0)
		is(t, kind.name, err, redlatch.ErrInvalidOption)

		h, err := l.TryLock(t.Context(), math.MaxInt64, math.MaxInt64)
		if err != nil {
			t.Fatalf("%s: the longest wait and lease: %v", kind.name, err)
		}
		for _, bad := range []time.Duration{0, -1, math.MinInt64, 1, time.Millisecond - 1} {
			is(t, kind.name, h.Extend(t.Context(), bad), redlatch.ErrInvalidOption)
		}
		until := h.ValidUntil()
		if err := h.Extend(t.Context(), time.Minute); err != nil || h.ValidUntil().Before(until) || time.Until(until) < 100*365*24*time.Hour {
			t.Errorf("%s: valid until %v, after a shorter Extend %v (%v)", kind.name, until, h.ValidUntil(), err)
		}
		unlock(t, h)
	}
}

// After Close every call says so, on every kind, and what was wrong with a call before is
// still what is wrong with it.
func TestEveryCallAfterCloseSaysClosed(t *testing.T) {
	s := testbed.Standalone(t) // held keys stay until their leases end
	c := dial(t, s.Addr())
	holds := make([]redlatch.Hold, len(kinds))
	for i, kind := range kinds {
		holds[i] = take(t, t.Context(), kind.make(c, "held-"+kind.name))
	}
	c.Close()
	for i, kind := range kinds {
		h, l := holds[i], kind.make(c, "new-"+kind.name)
		is(t, kind.name+" cause", context.Cause(h.Context()), redlatch.ErrClosed)
		is(t, kind.name+" Extend", h.Extend(t.Context(), time.Minute), redlatch.ErrClosed)
		is(t, kind.name+" Unlock", h.Unlock(t.Context()), redlatch.ErrClosed)
		_, err := l.Lock(t.Context())
		is(t, kind.name+" Lock", err, redlatch.ErrClosed)
		_, err = l.TryLock(t.Context(), time.Hour, 0)
		is(t, kind.name+" TryLock", err, redlatch.ErrClosed)
		_, err = kind.make(c, "held-"+kind.name).TryLock(context.WithoutCancel(h.Context()), 0, 0)
		is(t, kind.name+" re-entry", err, redlatch.ErrClosed)
		_, err = l.TryLock(t.Context(), -1, 0)
		is(t, kind.name+" TryLock with a bad wait", err, redlatch.ErrInvalidOption)
		is(t, kind.name+" Do", redlatch.Do(t.Context(), l, func(context.Context) error {
			t.Errorf("%s: Do runs without the lock", kind.name)
			return nil
		}), redlatch.ErrClosed)
		operator := l.(interface {
			State(context.Context) (redlatch.State, error)
			ForceUnlock(context.Context) (bool, error)
		})
		_, err = operator.State(t.Context())
		is(t, kind.name+" State", err, redlatch.ErrClosed)
		_, err = operator.ForceUnlock(t.Context())
		is(t, kind.name+" ForceUnlock", err, redlatch.ErrClosed)
	}
	_, err := c.Once("job").Do(t.Context(), time.Minute, func(context.Context) error { return nil })
	is(t, "Once.Do", err, redlatch.ErrClosed)
	_, err = c.Once("job").Reset(t.Context())
	is(t, "Once.Reset", err, redlatch.ErrClosed)
	if len(c.Held()) > 0 {
		t.Errorf("holds after Close: %v", c.Held())
	}
	if err := c.Shutdown(t.Context()); err != nil {
		t.Errorf("Shutdown after Close: %v", err)
	}
}

// A Shutdown that ran out of time has told what is still held and leaves it working: it is
// extended, re-entered and looked at, nothing new is taken, and the next Shutdown ends when
// the last of it is unlocked.
func TestShutdownOutOfTimeLeavesTheHoldsWorking(t *testing.T) {
	s := server(t)
	c := dial(t, s.Addr())
	holds := make([]redlatch.Hold, len(kinds))
	for i, kind := range kinds {
		holds[i] = take(t, t.Context(), kind.make(c, "kept-"+kind.name))
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	err := c.Shutdown(ended)
	is(t, "Shutdown", err, context.Canceled)
	var held *redlatch.ShutdownError
	if !errors.As(err, &held) || len(held.Held) != len(kinds)+1 { // the MultiLock has two
		t.Fatalf("Shutdown: %v", err)
	}
	if held.Held[0].Name != "kept-"+kinds[0].name {
		t.Errorf("the longest-held is %q", held.Held[0].Name)
	}
	for i, kind := range kinds {
		l, h := kind.make(c, "kept-"+kind.name), holds[i]
		if h.Context().Err() != nil {
			t.Errorf("%s: the hold ended: %v", kind.name, context.Cause(h.Context()))
		}
		if err := h.Extend(t.Context(), time.Minute); err != nil {
			t.Errorf("%s: Extend: %v", kind.name, err)
		}
		if _, err := l.(interface {
			State(context.Context) (redlatch.State, error)
		}).State(t.Context()); err != nil {
			t.Errorf("%s: State: %v", kind.name, err)
		}
		unlock(t, take(t, h.Context(), l))
		for _, ctx := range []context.Context{t.Context(), h.Context()} {
			_, err := kind.make(c, "new-"+kind.name).TryLock(ctx, time.Hour, 0)
			is(t, kind.name+" of another name", err, redlatch.ErrClosed)
		}
	}
	done := make(chan error, 2)
	for range cap(done) { // two at the same time
		go func() { done <- c.Shutdown(context.Background()) }()
	}
	for i, h := range holds {
		select {
		case err := <-done:
			t.Fatalf("Shutdown came back with %d holds left: %v", len(holds)-i, err)
		default:
		}
		unlock(t, h)
	}
	for range cap(done) {
		if err := <-done; err != nil {
			t.Errorf("Shutdown: %v", err)
		}
	}
}

// Unlock with a nil context unlocks: that mistake of the caller's costs nobody else the process,
// not even while a command of the owner is under way, when a goroutine of the library does the
// rest.
func TestUnlockWithoutAContextUnlocks(t *testing.T) {
	s := server(t)
	p := testbed.NewProxy(t, s.Addr())
	c := dial(t, p.Addr())
	for _, kind := range kinds {
		h := take(t, t.Context(), kind.make(c, "nil-"+kind.name))
		p.Delay(testbed.Requests, 200*time.Millisecond)
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		is(t, "Extend", h.Extend(ctx, time.Minute), context.DeadlineExceeded) // its command is on its way
		cancel()
		if err := h.Unlock(nil); err != nil { //nolint:staticcheck // it is the question
			t.Errorf("%s: %v", kind.name, err)
		}
		p.Delay(testbed.Requests, 0)
	}
}
