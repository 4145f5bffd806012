package promises

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/integration/bed"
)

// Close ends every hold's context and frees nothing under a section that still runs; Shutdown lets
// the holders finish and lets nobody in.
func TestTheEndOfAClient(t *testing.T) {
	t.Parallel()
	overKinds(t, []func(*redlatch.Config){short}, map[string]func(t *testing.T, x *bed.Site, name string){
		"Close beside a hold": func(t *testing.T, x *bed.Site, name string) {
			clients := x.Fresh(t)
			h := bed.Lock(t, t.Context(), x.Kind.New(clients, name))
			for _, c := range clients {
				c.Close()
			}
			ended(t, h, redlatch.ErrClosed)
			refused(t, x.Beside(name))
			want(t, "Extend", h.Extend(t.Context(), time.Second), redlatch.ErrClosed)
			want(t, "Unlock", h.Unlock(t.Context()), redlatch.ErrClosed)
			closed(t, x, clients, name)
			bed.Unlock(t, bed.Lock(t, t.Context(), x.Beside(name))) // when the lease has ended
		},
		"Close beside waiters, and holds that have ended": func(t *testing.T, x *bed.Site, name string) {
			clients := x.Fresh(t)
			before := bed.Lock(t, t.Context(), x.Beside(name))
			asked := x.Asked(t, name)
			waits := []<-chan bed.Attempt{bed.Async(t.Context(), x.Kind.New(clients, name)), bed.Async(t.Context(), x.Kind.New(clients, name))}
			asked()
			gone := bed.Lock(t, t.Context(), x.Kind.New(clients, name+"gone"), redlatch.WithLease(time.Second))
			ended(t, gone, redlatch.ErrLeaseLost)
			unlocked := bed.Lock(t, t.Context(), x.Kind.New(clients, name+"unlocked"))
			bed.Unlock(t, unlocked)
			began := time.Now()
			for _, c := range clients {
				c.Close()
			}
			if took := time.Since(began); took > slack*time.Duration(len(clients)) {
				t.Errorf("Close took %v", took)
			}
			for _, w := range waits {
				a := bed.Get(t, w)
				want(t, "a waiter", a.Err, redlatch.ErrClosed)
				wantNot(t, "a waiter", a.Err, redlatch.ErrNotAcquired)
			}
			want(t, "Extend of a lost hold", gone.Extend(t.Context(), time.Second), redlatch.ErrLeaseLost)
			want(t, "Unlock of a lost hold", gone.Unlock(t.Context()), redlatch.ErrLeaseLost)
			for _, h := range []redlatch.Hold{gone, unlocked} { // what has been unlocked is no news of Close's
				want(t, "Unlock once more", h.Unlock(t.Context()), redlatch.ErrNotHeld)
				want(t, "Extend after Unlock", h.Extend(t.Context(), time.Second), redlatch.ErrNotHeld)
			}
			bed.Unlock(t, before)
		},
		"Close on servers that are silent": func(t *testing.T, x *bed.Site, name string) {
			clients := x.Fresh(t)
			h := bed.Lock(t, t.Context(), x.Kind.New(clients, name), redlatch.WithLease(5*time.Second))
			for _, s := range x.Servers {
				s.Freeze(t)
				defer s.Thaw(t)
			}
			stuck := bed.Async(context.Background(), x.Kind.New(clients, name+"stuck"))
			unlocks := make(chan error, 1)
			go func() { unlocks <- h.Unlock(context.Background()) }()
			began := time.Now()
			for _, c := range clients {
				c.Close()
			}
			if took, most := time.Since(began), (redlatch.DefaultUnlockTimeout+slack)*time.Duration(len(clients)); took > most {
				t.Errorf("Close took %v", took)
			}
			want(t, "Lock", bed.Get(t, stuck).Err, redlatch.ErrClosed)
			want(t, "Unlock", <-unlocks, redlatch.ErrClosed, redlatch.ErrUnavailable)
		},
		"Shutdown beside a lost hold": func(t *testing.T, x *bed.Site, name string) {
			clients := x.Fresh(t)
			bed.Lock(t, t.Context(), x.Kind.New(clients, name), redlatch.WithLease(time.Second))
			for _, c := range clients {
				if err := c.Shutdown(t.Context()); err != nil {
					t.Errorf("Shutdown: %v", err)
				}
			}
		},
		"Shutdown beside a hold": func(t *testing.T, x *bed.Site, name string) {
			clients := x.Fresh(t)
			h := bed.Lock(t, t.Context(), x.Kind.New(clients, name))
			done := make(chan error, len(clients))
			for _, c := range clients {
				go func() { done <- c.Shutdown(t.Context()) }()
			}
			bed.Eventually(t, "nobody is let in", func() bool {
				_, err := x.Kind.New(clients, "other").TryLock(t.Context(), 0, 0)
				return errors.Is(err, redlatch.ErrClosed)
			})
			for end := h.ValidUntil().Add(time.Second); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
				alive(t, h) // it is renewed
			}
			refused(t, x.Beside(name))
			if len(done) > 0 {
				t.Errorf("Shutdown returned %v while a lock is held", <-done)
			}
			if err := h.Extend(t.Context(), bed.Patience); err != nil {
				t.Errorf("Extend: %v", err)
			}
			bed.Unlock(t, bed.Lock(t, h.Context(), x.Kind.New(clients, name))) // who is inside re-enters
			_, err := x.Kind.New(clients, "other").TryLock(h.Context(), 0, 0)
			want(t, "another lock of the same owner", err, redlatch.ErrClosed)
			bed.Unlock(t, h)
			for range clients {
				if err := <-done; err != nil {
					t.Errorf("Shutdown: %v", err)
				}
			}
			closed(t, x, clients, name)
		},
		"Shutdown that has no time": func(t *testing.T, x *bed.Site, name string) {
			clients := x.Fresh(t)
			h := bed.Lock(t, t.Context(), x.Kind.New(clients, name))
			ctx, leave := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer leave()
			for _, c := range clients {
				err := c.Shutdown(ctx)
				if _, is := errors.AsType[*redlatch.ShutdownError](err); !is || !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("Shutdown: %v", err)
				}
			}
			alive(t, h) // it is renewed still
			for _, c := range clients {
				c.Close()
			}
			ended(t, h, redlatch.ErrClosed)
			refused(t, x.Beside(name))
			bed.Unlock(t, bed.Lock(t, t.Context(), x.Beside(name)))
		},
	})
}

// closed checks that a closed client lets nobody in and asks nothing, and that it may be closed again.
func closed(t *testing.T, x *bed.Site, clients []*redlatch.Client, name string) {
	t.Helper()
	l := x.Kind.New(clients, name)
	ops := l.(operated)
	_, locked := l.Lock(t.Context())
	_, tried := l.TryLock(t.Context(), 0, 0)
	_, looked := ops.State(t.Context())
	_, forced := ops.ForceUnlock(t.Context())
	for what, err := range map[string]error{"Lock": locked, "TryLock": tried, "State": looked, "ForceUnlock": forced} {
		want(t, what+" of a closed client", err, redlatch.ErrClosed)
	}
	for _, c := range clients {
		c.Close()
		if err := c.Shutdown(t.Context()); err != nil {
			t.Errorf("Shutdown after Close: %v", err)
		}
	}
}
