package redlatchtest_test

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/redlatchtest"
)

func never(t *testing.T) func(context.Context) error {
	return func(context.Context) error { t.Error("fn was called"); return nil }
}

// TestTryDoLimitsTheWaitAlone: fn takes as long as it takes, and its context lives for that.
func TestTryDoLimitsTheWaitAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := redlatchtest.NewLocker("a")
		boom := errors.New("boom")
		for _, wait := range []time.Duration{0, time.Second} {
			err := redlatch.TryDo(t.Context(), l, wait, 0, func(ctx context.Context) error {
				if len(l.Holds()) != 1 {
					t.Error("not locked")
				}
				time.Sleep(time.Hour)
				if ctx.Err() != nil {
					t.Errorf("wait %v: %v", wait, context.Cause(ctx))
				}
				return redlatch.TryDo(ctx, l, 0, 0, func(context.Context) error { return boom }) // re-enters
			})
			if !errors.Is(err, boom) || len(l.Holds()) != 0 {
				t.Errorf("wait %v: %v, and %d holds", wait, err, len(l.Holds()))
			}
		}
		free := l.Busy("java-7")
		time.AfterFunc(time.Second, free)
		began := time.Now()
		err := redlatch.TryDo(t.Context(), l, 2*time.Second, 0, func(context.Context) error {
			if took := time.Since(began); took != time.Second {
				t.Errorf("inside after %v", took)
			}
			return nil
		})
		if err != nil || len(l.Holds()) != 0 {
			t.Errorf("%v, and %d holds", err, len(l.Holds()))
		}
	})
}

// TestTryDoNotAcquired: fn is not called, and the error is that of TryLock.
func TestTryDoNotAcquired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := redlatchtest.NewLocker("a")
		free := l.Busy("java-7")
		for _, wait := range []time.Duration{0, 2 * time.Second} {
			began := time.Now()
			err := redlatch.TryDo(t.Context(), l, wait, 0, never(t))
			var busy *redlatch.NotAcquiredError
			if !errors.Is(err, redlatch.ErrNotAcquired) || errors.Is(err, redlatch.ErrUnavailable) || !errors.As(err, &busy) || busy.Holder != "java-7" {
				t.Errorf("wait %v: %v", wait, err)
			}
			if took := time.Since(began); took != wait {
				t.Errorf("it waited for %v, not %v", took, wait)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		err := redlatch.TryDo(ctx, l, time.Hour, 0, never(t))
		cancel()
		if !errors.Is(err, redlatch.ErrNotAcquired) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("ctx ended: %v", err)
		}
		free()
		l.SetUnavailable(true)
		err = redlatch.TryDo(t.Context(), l, time.Second, 0, never(t))
		if errors.Is(err, redlatch.ErrNotAcquired) || !errors.Is(err, redlatch.ErrUnavailable) {
			t.Errorf("unavailable: %v", err)
		}
		l.SetUnavailable(false)
		for _, d := range [][2]time.Duration{{-1, 0}, {0, -1}} {
			if err := redlatch.TryDo(t.Context(), l, d[0], d[1], never(t)); !errors.Is(err, redlatch.ErrInvalidOption) {
				t.Errorf("wait %d, lease %d: %v", d[0], d[1], err)
			}
		}
		if l.Acquired() != 0 {
			t.Errorf("it was acquired %d times", l.Acquired())
		}
	})
}

// TestTryDoUnlocks: whatever ends fn, and the error of Unlock counts, too.
func TestTryDoUnlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := redlatchtest.NewLocker("a")
		try := func(lease time.Duration, fn func(context.Context) error) error {
			return redlatch.TryDo(t.Context(), l, 0, lease, fn)
		}
		free := func(after string) {
			t.Helper()
			if len(l.Holds()) != 0 {
				t.Error("still locked after", after)
			}
		}
		boom := errors.New("boom")
		func() {
			defer func() {
				if r := recover(); r != any(boom) {
					t.Errorf("the panic became %v", r)
				}
			}()
			_ = try(0, func(context.Context) error { panic(boom) })
		}()
		free("a panic")
		done := make(chan struct{})
		go func() {
			defer close(done)
			_ = try(0, func(context.Context) error { runtime.Goexit(); return nil })
		}()
		<-done
		free("Goexit")
		for how, err := range map[string]error{
			"lost": try(0, func(ctx context.Context) error {
				l.Lose()
				<-ctx.Done()
				return boom
			}),
			"the end of a fixed lease": try(time.Minute, func(ctx context.Context) error {
				<-ctx.Done()
				return boom
			}),
		} {
			if !errors.Is(err, boom) || !errors.Is(err, redlatch.ErrLeaseLost) || errors.Is(err, redlatch.ErrNotAcquired) {
				t.Errorf("%s: %v", how, err)
			}
			free(how)
		}
		if err := try(0, func(context.Context) error { l.Lose(); return nil }); !errors.Is(err, redlatch.ErrLeaseLost) {
			t.Errorf("lost, and fn does not care: %v", err)
		}
	})
}
