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
			if err := h.Unlock(context.Background()); !errors.Is(err, redlatch.ErrClosed) {
				t.Errorf("Unlock: %v", err)
			}
			closed(t, x, clients, name)
			bed.Unlock(t, bed.Lock(t, t.Context(), x.Beside(name))) // when the lease has ended
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
			alive(t, h)
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

// closed checks that a closed client lets nobody in, and that it may be closed again.
func closed(t *testing.T, x *bed.Site, clients []*redlatch.Client, name string) {
	t.Helper()
	if _, err := x.Kind.New(clients, name).Lock(t.Context()); !errors.Is(err, redlatch.ErrClosed) {
		t.Errorf("Lock of a closed client: %v", err)
	}
	if _, err := x.Kind.New(clients, name).TryLock(t.Context(), 0, 0); !errors.Is(err, redlatch.ErrClosed) {
		t.Errorf("TryLock of a closed client: %v", err)
	}
	for _, c := range clients {
		c.Close()
	}
}
