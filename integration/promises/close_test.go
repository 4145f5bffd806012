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

// Close ends every hold's context and frees nothing under a section that still runs, and every call says ErrClosed then,
// but for what was wrong with it before; Shutdown leaves what is held working, re-entry included, until it is unlocked,
// and lets nobody else in.
func TestTheEndOfAClient(t *testing.T) {
	t.Parallel()
	overKinds(t, []func(*redlatch.Config){short}, cases{
		"Close beside a hold": func(t *testing.T, x *bed.Site, name string) {
			clients := x.Fresh(t)
			h := bed.Lock(t, t.Context(), x.Kind.New(clients, name))
			closeAll(clients)
			ended(t, h, redlatch.ErrClosed)
			refused(t, x.Beside(name))
			want(t, "Extend", h.Extend(t.Context(), time.Second), redlatch.ErrClosed)
			want(t, "Unlock", h.Unlock(t.Context()), redlatch.ErrClosed)
			closed(t, x, clients, h, name)
			bed.Unlock(t, bed.Lock(t, t.Context(), x.Beside(name))) // when the lease has ended
		},
		"Close beside waiters, and holds that have ended": func(t *testing.T, x *bed.Site, name string) {
			clients := x.Fresh(t)
			before := bed.Lock(t, t.Context(), x.Beside(name))
			first := begun(t, t.Context(), x, name, x.Kind.New(clients, name))
			both := []<-chan bed.Attempt{first, bed.Async(t.Context(), x.Kind.New(clients, name))}
			gone := bed.Lock(t, t.Context(), x.Kind.New(clients, name+"gone"), redlatch.WithLease(time.Second))
			ended(t, gone, redlatch.ErrLeaseLost)
			unlocked := bed.Lock(t, t.Context(), x.Kind.New(clients, name+"unlocked"))
			bed.Unlock(t, unlocked)
			if took := closeAll(clients); took > slack*time.Duration(len(clients)) {
				t.Errorf("Close took %v", took)
			}
			for _, w := range both {
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
			if took, most := closeAll(clients), (redlatch.DefaultUnlockTimeout+slack)*time.Duration(len(clients)); took > most {
				t.Errorf("Close took %v", took)
			}
			want(t, "Lock", bed.Get(t, stuck).Err, redlatch.ErrClosed)
			want(t, "Unlock", <-unlocks, redlatch.ErrClosed, redlatch.ErrUnavailable)
		},
		"Shutdown beside a lost hold": func(t *testing.T, x *bed.Site, name string) {
			clients := x.Fresh(t)
			bed.Lock(t, t.Context(), x.Kind.New(clients, name), redlatch.WithLease(time.Second))
			for _, c := range clients {
				want(t, "Shutdown", c.Shutdown(t.Context()), nil)
			}
		},
		"Shutdown beside a hold and another one": func(t *testing.T, x *bed.Site, name string) {
			clients := x.Fresh(t)
			l, other := x.Kind.New(clients, name), x.Kind.New(clients, name+"third")
			holds := []redlatch.Hold{bed.Lock(t, t.Context(), l), bed.Lock(t, t.Context(), x.Kind.New(clients, name+"second"))}
			done := drain(t, x, clients)
			outOfTime(t, x, clients, name, len(holds))
			for end := holds[0].ValidUntil().Add(time.Second); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
				bed.Alive(t, holds[0]) // it is renewed
			}
			refused(t, x.Beside(name))
			want(t, "Extend", holds[0].Extend(t.Context(), bed.Patience), nil)
			_, err := l.(operated).State(t.Context())
			want(t, "State", err, nil)
			bed.Unlock(t, bed.Lock(t, holds[0].Context(), l)) // who is inside re-enters
			for _, ctx := range []context.Context{t.Context(), holds[0].Context()} {
				_, err := other.TryLock(ctx, time.Hour, 0)
				want(t, "TryLock of another name", err, redlatch.ErrClosed)
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
			closed(t, x, clients, holds[0], name)
		},
		"Shutdown that has no time, and Close": func(t *testing.T, x *bed.Site, name string) {
			clients := x.Fresh(t)
			h := bed.Lock(t, t.Context(), x.Kind.New(clients, name))
			quiet(t, x)
			outOfTime(t, x, clients, name, 1)
			bed.Alive(t, h) // it is renewed still
			closeAll(clients)
			ended(t, h, redlatch.ErrClosed)
			refused(t, x.Beside(name))
			onAll(t, x, "FLUSHALL") // it stays until its lease ends
		},
		"a re-entry whose answer is lost, during Shutdown": func(t *testing.T, x *bed.Site, name string) {
			clients := x.Fresh(t, func(c *redlatch.Config) { c.LeaseTime = bed.Lease }) // no renewal comes meanwhile
			l := x.Kind.New(clients, name)
			h := bed.Lock(t, t.Context(), l)
			done := drain(t, x, clients)
			trap := x.Proxies[0].DropReply(bed.Of(name))
			again := bed.Lock(t, h.Context(), l)
			trap.Wait(t)
			bed.Unlock(t, again)
			if x.Kind.Name == "write" { // it reads as well
				bed.Unlock(t, bed.Lock(t, h.Context(), clients[0].ReadWriteLock(name).ReadLock()))
			}
			bed.Unlock(t, h)
			for range cap(done) {
				want(t, "Shutdown", <-done, nil)
			}
		},
	})
}

// drain begins two Shutdowns of each client, and returns when they let nobody in.
func drain(t *testing.T, x *bed.Site, clients []*redlatch.Client) <-chan error {
	t.Helper()
	quiet(t, x) // a quorum's last copy has come
	done := make(chan error, 2*len(clients))
	for range 2 {
		for _, c := range clients {
			go func() { done <- c.Shutdown(context.Background()) }() // ends with what is held
		}
	}
	bed.Eventually(t, "nobody is let in", func() bool {
		h, err := x.Kind.New(clients, "other").TryLock(t.Context(), 0, 0)
		if err == nil {
			bed.Unlock(t, h)
		}
		return errors.Is(err, redlatch.ErrClosed)
	})
	return done
}

// outOfTime shuts down without time: it is told how much is held, and what for the longest time.
func outOfTime(t *testing.T, x *bed.Site, clients []*redlatch.Client, name string, holds int) {
	t.Helper()
	ctx, leave := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer leave()
	for _, c := range clients {
		err := c.Shutdown(ctx)
		told, is := errors.AsType[*redlatch.ShutdownError](err)
		if all := holds * len(x.Kind.Names(name)); !is || !errors.Is(err, context.DeadlineExceeded) || len(told.Held) != all {
			t.Fatalf("Shutdown: %v, want %d holds", err, all)
		}
		if first := told.Held[0].Name; !slices.Contains(x.Kind.Names(name), first) {
			t.Errorf("the longest-held is %q", first)
		}
	}
}

// closed checks that a closed client lets nobody in and asks nothing, its owners included, and that it may be closed
// again.
func closed(t *testing.T, x *bed.Site, clients []*redlatch.Client, h redlatch.Hold, name string) {
	t.Helper()
	l, errs := x.Kind.New(clients, name+"another"), map[string]error{}
	_, errs["Lock"] = l.Lock(t.Context())
	_, errs["TryLock"] = l.TryLock(t.Context(), time.Hour, 0)
	_, errs["a re-entry"] = x.Kind.New(clients, name).TryLock(context.WithoutCancel(h.Context()), 0, 0)
	_, errs["State"] = l.(operated).State(t.Context())
	_, errs["ForceUnlock"] = l.(operated).ForceUnlock(t.Context())
	errs["Do"] = redlatch.Do(t.Context(), l, func(context.Context) error { t.Error("it runs without the lock"); return nil })
	for what, err := range errs {
		want(t, what+" of a closed client", err, redlatch.ErrClosed)
	}
	_, err := l.TryLock(t.Context(), -1, 0)
	want(t, "TryLock with a bad wait", err, redlatch.ErrInvalidOption)
	for _, c := range clients {
		want(t, "Shutdown after Close", c.Shutdown(t.Context()), nil)
		c.Close()
		if held := c.Held(); len(held) > 0 {
			t.Errorf("holds after Close: %v", held)
		}
	}
}
