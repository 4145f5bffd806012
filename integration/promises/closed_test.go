package promises

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/integration/bed"
)

// After Close every call says ErrClosed, but for what was wrong with it before; until then a client that shuts down
// leaves what is held working, re-entry included, and lets nobody else in.
func TestWhatAClosingClientStillDoes(t *testing.T) {
	t.Parallel()
	overKinds(t, nil, cases{
		"nothing, after Close": func(t *testing.T, x *bed.Site, name string) {
			clients := x.Fresh(t)
			l, another := x.Kind.New(clients, name), x.Kind.New(clients, name+"another")
			h := bed.Lock(t, t.Context(), l)
			for _, c := range clients {
				c.Close()
				want(t, "Shutdown after Close", c.Shutdown(t.Context()), nil)
				if len(c.Held()) > 0 {
					t.Errorf("holds after Close: %v", c.Held())
				}
			}
			want(t, "the hold's end", context.Cause(h.Context()), redlatch.ErrClosed)
			want(t, "Extend", h.Extend(t.Context(), time.Minute), redlatch.ErrClosed)
			want(t, "Unlock", h.Unlock(t.Context()), redlatch.ErrClosed)
			_, err := another.Lock(t.Context())
			want(t, "Lock", err, redlatch.ErrClosed)
			_, err = another.TryLock(t.Context(), time.Hour, 0)
			want(t, "TryLock", err, redlatch.ErrClosed)
			_, err = l.TryLock(context.WithoutCancel(h.Context()), 0, 0)
			want(t, "a re-entry", err, redlatch.ErrClosed)
			_, err = another.TryLock(t.Context(), -1, 0)
			want(t, "TryLock with a bad wait", err, redlatch.ErrInvalidOption)
			want(t, "Do", redlatch.Do(t.Context(), another, func(context.Context) error {
				t.Error("Do runs without the lock")
				return nil
			}), redlatch.ErrClosed)
			_, err = another.(operated).State(t.Context())
			want(t, "State", err, redlatch.ErrClosed)
			_, err = another.(operated).ForceUnlock(t.Context())
			want(t, "ForceUnlock", err, redlatch.ErrClosed)
			onAll(t, x, "FLUSHALL") // what was held stays until its lease ends
		},
		"everything with what is held, after a Shutdown that ran out of time": func(t *testing.T, x *bed.Site, name string) {
			clients := x.Fresh(t)
			l := x.Kind.New(clients, name)
			holds := []redlatch.Hold{bed.Lock(t, t.Context(), l), bed.Lock(t, t.Context(), x.Kind.New(clients, name+"second"))}
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			for _, c := range clients {
				err := c.Shutdown(ctx)
				told, is := errors.AsType[*redlatch.ShutdownError](err)
				if all := 2 * len(x.Kind.Names(name)); !is || !errors.Is(err, context.Canceled) || len(told.Held) != all {
					t.Fatalf("Shutdown: %v, want %d holds", err, all)
				}
				if first := told.Held[0].Name; !slices.Contains(x.Kind.Names(name), first) {
					t.Errorf("the longest-held is %q", first)
				}
			}
			alive(t, holds[0])
			want(t, "Extend", holds[0].Extend(t.Context(), time.Minute), nil)
			_, err := l.(operated).State(t.Context())
			want(t, "State", err, nil)
			bed.Unlock(t, bed.Lock(t, holds[0].Context(), l))
			for _, ctx := range []context.Context{t.Context(), holds[0].Context()} {
				_, err := x.Kind.New(clients, name+"third").TryLock(ctx, time.Hour, 0)
				want(t, "TryLock of another name", err, redlatch.ErrClosed)
			}
			done := make(chan error, 2*len(clients)) // two of each at the same time
			for range 2 {
				for _, c := range clients {
					go func() { done <- c.Shutdown(context.Background()) }()
				}
			}
			for i, h := range holds {
				if len(done) > 0 {
					t.Errorf("a Shutdown came back with %d holds left: %v", len(holds)-i, <-done)
				}
				bed.Unlock(t, h)
			}
			for range cap(done) {
				want(t, "Shutdown", <-done, nil)
			}
		},
		"a re-entry whose answer is lost, during Shutdown": func(t *testing.T, x *bed.Site, name string) {
			clients := x.Fresh(t)
			l := x.Kind.New(clients, name)
			h := bed.Lock(t, t.Context(), l)
			quiet(t, x) // a quorum's last copy has come
			done := make(chan error, len(clients))
			for _, c := range clients {
				go func() { done <- c.Shutdown(context.Background()) }()
			}
			bed.Eventually(t, "nobody is let in", func() bool {
				_, err := x.Kind.New(clients, "other").TryLock(t.Context(), 0, 0)
				return errors.Is(err, redlatch.ErrClosed)
			})
			trap := x.Proxies[0].DropReply(bed.Of(name))
			again := bed.Lock(t, h.Context(), l)
			trap.Wait(t)
			bed.Unlock(t, again)
			if x.Kind.Name == "write" { // it reads as well
				bed.Unlock(t, bed.Lock(t, h.Context(), clients[0].ReadWriteLock(name).ReadLock()))
			}
			bed.Unlock(t, h)
			for range clients {
				want(t, "Shutdown", <-done, nil)
			}
		},
	})
}
