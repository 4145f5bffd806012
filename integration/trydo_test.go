package integration

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
)

// TryDo limits the wait and not the section, and calls nothing without the lock.
func TestTryDoOfEachKind(t *testing.T) {
	t.Parallel()
	s := rlServer(t)
	c, other := rlClient(t, s.Addr()), rlClient(t, s.Addr())
	type tries interface {
		redlatch.Locker
		TryDo(ctx context.Context, wait, lease time.Duration, fn func(ctx context.Context) error) error
	}
	kinds := func(c *redlatch.Client) map[string]tries {
		return map[string]tries{
			"reentrant": c.RLock("l"),
			"fair":      c.FairLock("fair"),
			"read":      c.ReadWriteLock("rw").ReadLock(),
			"write":     c.ReadWriteLock("rw2").WriteLock(),
			"multi":     redlatch.MultiLock(c.RLock("a"), c.FairLock("b")),
		}
	}
	blockers := map[string]redlatch.Locker{"read": other.ReadWriteLock("rw").WriteLock()} // readers share
	for kind, l := range kinds(other) {
		if blockers[kind] == nil {
			blockers[kind] = l
		}
	}
	boom := errors.New("boom")
	for kind, l := range kinds(c) {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			const patient, wait = 2500 * time.Millisecond, 100 * time.Millisecond
			err := l.TryDo(t.Context(), patient, 0, func(ctx context.Context) error {
				for end := time.Now().Add(patient + 3*wait); time.Now().Before(end); time.Sleep(wait / 10) {
					if ctx.Err() != nil {
						return context.Cause(ctx)
					}
				}
				if err := blockers[kind].(tries).TryDo(t.Context(), 0, 0, func(context.Context) error {
					t.Error("two are inside")
					return nil
				}); !errors.Is(err, redlatch.ErrNotAcquired) {
					t.Errorf("another one's: %v", err)
				}
				return boom
			})
			rlWant(t, err, boom)

			h := rlLock(t, t.Context(), blockers[kind]) // so it was unlocked
			for _, wait := range []time.Duration{0, wait} {
				began := time.Now()
				err := l.TryDo(t.Context(), wait, 0, func(context.Context) error { t.Error("fn was called"); return nil })
				if took := time.Since(began); took < wait {
					t.Errorf("it gave up after %v, not %v", took, wait)
				}
				if !errors.Is(err, redlatch.ErrNotAcquired) || errors.Is(err, redlatch.ErrUnavailable) {
					t.Errorf("wait %v: %v", wait, err)
				}
			}
			rlUnlock(t, h)
			err = l.TryDo(t.Context(), rlPatience, 200*time.Millisecond, func(ctx context.Context) error { <-ctx.Done(); return boom })
			rlWant(t, err, boom)
			rlWant(t, err, redlatch.ErrLeaseLost)
		})
	}
}
