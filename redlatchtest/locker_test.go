package redlatchtest_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/redlatchtest"
)

func mustLock(t *testing.T, ctx context.Context, l redlatch.Locker, opts ...redlatch.AcquireOption) redlatch.Hold { //nolint:revive // t first, as in testing
	t.Helper()
	h, err := l.Lock(ctx, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// What code can see of a lock is the same with a Locker and with the real thing: each
// step is made with both.
func TestLockerBehavesAsARealLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, fake := redlatchtest.NewServer(t), redlatchtest.NewLocker("a", redlatch.Fenced())
		locks := map[string]redlatch.Locker{
			"real": server.Client().RLock("a", redlatch.Fenced()),
			"fake": fake,
		}
		away := map[string]func(bool){"fake": fake.SetUnavailable, "real": func(away bool) {
			if away {
				server.Down()
			} else {
				server.Up()
			}
		}}
		lose := map[string]func() bool{"fake": fake.Lose, "real": func() bool { return server.Lose("a") }}
		for which, l := range locks {
			ctx := t.Context()
			check := func(step string, ok bool) {
				t.Helper()
				if !ok {
					t.Errorf("%s: %s", which, step)
				}
			}
			h := mustLock(t, ctx, l)
			check("name", h.Name() == "a")
			check("token", h.Token() > 0)
			check("valid", time.Until(h.ValidUntil()) > 0)
			nested := mustLock(t, h.Context(), l)
			check("a nested hold has the same token", nested.Token() == h.Token())
			check("a nested unlock", nested.Unlock(ctx) == nil)
			check("a nested hold's context after unlock", errors.Is(nested.Context().Err(), context.Canceled) &&
				errors.Is(context.Cause(nested.Context()), redlatch.ErrUnlocked))
			check("the outer context lives", h.Context().Err() == nil)

			_, err := l.TryLock(ctx, 0, 0)
			var busy *redlatch.NotAcquiredError
			check("busy", errors.As(err, &busy) && busy.Holder != "" && busy.Own && busy.Remaining > 0 && busy.Err == nil)
			began := time.Now()
			_, err = l.TryLock(ctx, time.Second, 0)
			check("busy for the wait", errors.Is(err, redlatch.ErrNotAcquired) && time.Since(began) == time.Second)
			short, cancel := context.WithTimeout(ctx, time.Second)
			_, err = l.Lock(short)
			cancel()
			check("ctx ended", errors.Is(err, redlatch.ErrNotAcquired) && errors.Is(err, context.DeadlineExceeded))
			told, tell := context.WithCancelCause(ctx)
			over := errors.New("the request is over")
			time.AfterFunc(time.Second, func() { tell(over) })
			_, err = l.Lock(told)
			check("ctx ended with a cause", errors.Is(err, redlatch.ErrNotAcquired) && errors.Is(err, context.Canceled) && errors.Is(err, over))
			_, err = l.Lock(told)
			check("a ctx that has ended", errors.Is(err, redlatch.ErrNotAcquired) && errors.Is(err, context.Canceled) && errors.Is(err, over))
			_, err = l.TryLock(ctx, -1, 0)
			check("negative wait", errors.Is(err, redlatch.ErrInvalidOption))
			_, err = l.TryLock(ctx, 0, -1)
			check("negative lease", errors.Is(err, redlatch.ErrInvalidOption))
			_, err = l.Lock(ctx, redlatch.WithLease(-1))
			check("negative lease", errors.Is(err, redlatch.ErrInvalidOption))
			_, err = l.TryLock(ctx, 0, time.Microsecond)
			check("a lease below a millisecond", errors.Is(err, redlatch.ErrInvalidOption))
			check("extend by less than a millisecond", errors.Is(h.Extend(ctx, time.Microsecond), redlatch.ErrInvalidOption))
			check("extend by nothing", errors.Is(h.Extend(ctx, 0), redlatch.ErrInvalidOption))
			ended, end := context.WithCancel(ctx)
			end()
			check("extend with an ended ctx", errors.Is(h.Extend(ended, time.Hour), context.Canceled))
			check("extend", h.Extend(ctx, time.Hour) == nil)

			got := make(chan redlatch.Hold)
			go func() { got <- mustLock(t, ctx, l) }()
			synctest.Wait()
			check("unlock", h.Unlock(ctx) == nil)
			next := <-got
			check("the next token is larger", next.Token() > h.Token())
			check("a second unlock", errors.Is(h.Unlock(ctx), redlatch.ErrNotHeld))
			check("extend after unlock", errors.Is(h.Extend(ctx, time.Second), redlatch.ErrNotHeld))
			check("unlock of the next", next.Unlock(ctx) == nil)

			// An explicit owner re-enters from anywhere; NewOwner makes another one.
			job := redlatch.WithOwner(ctx, "job 17")
			h = mustLock(t, job, l)
			again, err := l.TryLock(job, 0, 0)
			check("the same explicit owner", err == nil && again.Unlock(ctx) == nil)
			again, err = l.TryLock(h.Context(), 0, 0)
			check("the explicit owner by the hold's context", err == nil && again.Unlock(ctx) == nil)
			_, err = l.TryLock(redlatch.WithOwner(ctx, "job 18"), 0, 0)
			check("another explicit owner", errors.Is(err, redlatch.ErrNotAcquired))
			_, err = l.TryLock(redlatch.NewOwner(h.Context()), 0, 0)
			check("a new owner", errors.Is(err, redlatch.ErrNotAcquired))
			check("the explicit owner's unlock", h.Unlock(ctx) == nil)
			_, err = l.Lock(redlatch.WithOwner(ctx, ""))
			check("an owner without an id", errors.Is(err, redlatch.ErrInvalidOption))

			// An owner means something only while one of its holds lives.
			h = mustLock(t, ctx, l)
			gone := context.WithoutCancel(h.Context())
			check("its unlock", h.Unlock(ctx) == nil)
			h = mustLock(t, gone, l)
			_, err = l.TryLock(gone, 0, 0)
			check("the owner that was", errors.Is(err, redlatch.ErrNotAcquired))
			check("the next owner's unlock", h.Unlock(ctx) == nil)

			// The ctx of the acquisition ends the hold's, not the hold.
			request, done := context.WithCancel(ctx)
			h = mustLock(t, request, l)
			done()
			<-h.Context().Done()
			_, err = l.TryLock(ctx, 0, 0)
			check("held after its request", errors.Is(err, redlatch.ErrNotAcquired))
			check("unlock with a cancelled ctx", h.Unlock(request) == nil)

			// A fixed lease ends, also one that was extended.
			began = time.Now()
			h = mustLock(t, ctx, l, redlatch.WithLease(time.Minute))
			check("extend a lease", h.Extend(ctx, 2*time.Minute) == nil)
			<-h.Context().Done()
			took := time.Since(began)
			check(fmt.Sprint("the lease's end after ", took), took > 110*time.Second && took <= 2*time.Minute)
			check("its cause", errors.Is(context.Cause(h.Context()), redlatch.ErrLeaseLost))
			_, err = l.Lock(h.Context())
			check("another lock in the lost section", errors.Is(err, redlatch.ErrNotAcquired) && errors.Is(err, redlatch.ErrLeaseLost))
			var lost *redlatch.LeaseLostError
			check("unlock after the lease", errors.As(h.Unlock(ctx), &lost) && lost.Name == "a" && lost.Owner != "" && lost.Reason == "expired")
			check("a second unlock after the lease", errors.Is(h.Unlock(ctx), redlatch.ErrNotHeld))
			time.Sleep(time.Minute)
			check("free after the lease", redlatch.Do(ctx, l, func(context.Context) error { return nil }) == nil)

			deadlines(t, l, lose[which], check)
			unlocksInAnOutage(t, l, away[which], lose[which], check)
		}
	})
}

// The owner flows on: a second lock that is taken with a hold's context is the same
// owner's, also for those who know the first context only.
func TestOwnersFlowFromLockToLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := redlatchtest.New(t)
		for which, byName := range map[string]func(string) redlatch.Locker{
			"real": func(name string) redlatch.Locker { return client.RLock(name) },
			"fake": redlatchtest.NewLockers().ByName,
		} {
			a := mustLock(t, t.Context(), byName("a"))
			b := mustLock(t, a.Context(), byName("b"))
			for _, name := range []string{"a", "b"} {
				for _, outer := range []redlatch.Hold{a, b} {
					h, err := byName(name).TryLock(outer.Context(), 0, 0)
					if err != nil {
						t.Errorf("%s: %s by the context of %s: %v", which, name, outer.Name(), err)
						continue
					}
					if err := h.Unlock(t.Context()); err != nil {
						t.Errorf("%s: %v", which, err)
					}
				}
			}
			// a is unlocked, b keeps the owner alive.
			if err := a.Unlock(t.Context()); err != nil {
				t.Errorf("%s: %v", which, err)
			}
			h, err := byName("b").TryLock(context.WithoutCancel(a.Context()), 0, 0)
			if err != nil {
				t.Errorf("%s: b by a's old context: %v", which, err)
			} else if err := h.Unlock(t.Context()); err != nil {
				t.Errorf("%s: %v", which, err)
			}
			if err := b.Unlock(t.Context()); err != nil {
				t.Errorf("%s: %v", which, err)
			}
		}
	})
}

func TestLockerExcludesInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := redlatchtest.NewLocker("a")
		free := l.Busy("java-7")
		var order []int // guarded by l
		var wg sync.WaitGroup
		for i := range 8 {
			wg.Go(func() {
				if err := redlatch.Do(t.Context(), l, func(context.Context) error {
					order = append(order, i)
					time.Sleep(time.Second)
					return nil
				}); err != nil {
					t.Error(err)
				}
			})
			synctest.Wait()
		}
		if l.Waiting() != 8 {
			t.Errorf("%d wait", l.Waiting())
		}
		began := time.Now()
		free()
		wg.Wait()
		if fmt.Sprint(order) != "[0 1 2 3 4 5 6 7]" || time.Since(began) != 8*time.Second {
			t.Error(order, time.Since(began))
		}
		if l.Acquired() != 8 || len(l.Holds()) != 0 || l.Waiting() != 0 {
			t.Error(l.Acquired(), l.Holds(), l.Waiting())
		}
	})
}

func TestLockerBusy(t *testing.T) {
	l := redlatchtest.NewLocker("a")
	free := l.Busy("java-7")
	_, err := l.TryLock(t.Context(), 0, 0)
	var busy *redlatch.NotAcquiredError
	if !errors.As(err, &busy) || busy.Holder != "java-7" || busy.Remaining <= 0 {
		t.Error(err)
	}
	free()
	h := mustLock(t, t.Context(), l)
	l.Busy("operator") // took it away
	if cause := context.Cause(h.Context()); !errors.Is(cause, redlatch.ErrLeaseLost) {
		t.Error(cause)
	}
	free() // of java-7, which has it no more: the operator keeps it
	if _, err := l.TryLock(t.Context(), 0, 0); !errors.As(err, &busy) || busy.Holder != "operator" {
		t.Error(err)
	}
}

func TestLockerLose(t *testing.T) {
	l := redlatchtest.NewLocker("a")
	if l.Lose() {
		t.Error("lost a free lock")
	}
	h := mustLock(t, t.Context(), l)
	nested := mustLock(t, h.Context(), l)
	if got := l.Holds(); len(got) != 2 {
		t.Error(got)
	}
	if !l.Lose() {
		t.Error("not held")
	}
	for _, h := range []redlatch.Hold{h, nested} {
		var lost *redlatch.LeaseLostError
		if !errors.As(context.Cause(h.Context()), &lost) || lost.Reason != "gone" {
			t.Error(context.Cause(h.Context()))
		}
		if err := h.Unlock(t.Context()); !errors.Is(err, redlatch.ErrLeaseLost) {
			t.Error(err)
		}
	}
	// The lost owner's context is nobody's any more.
	next := mustLock(t, t.Context(), l)
	if _, err := l.TryLock(context.WithoutCancel(h.Context()), 0, 0); !errors.Is(err, redlatch.ErrNotAcquired) {
		t.Error("the lost owner re-entered:", err)
	}
	if err := next.Unlock(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestLockerUnavailable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := redlatchtest.NewLocker("a")
		h := mustLock(t, t.Context(), l)
		l.SetUnavailable(true)
		unavailable := func(err error) bool {
			return errors.Is(err, redlatch.ErrUnavailable) && !errors.Is(err, redlatch.ErrNotAcquired)
		}
		if _, err := l.TryLock(t.Context(), time.Second, 0); !unavailable(err) {
			t.Error(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := l.Lock(ctx); !unavailable(err) || !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		if err := h.Extend(t.Context(), time.Minute); !errors.Is(err, redlatch.ErrUnavailable) {
			t.Error(err)
		}
		got := make(chan error, 1)
		go func() { // a re-entry waits, too
			nested, err := l.Lock(h.Context())
			if err == nil {
				err = nested.Unlock(t.Context())
			}
			got <- err
		}()
		synctest.Wait()
		l.SetUnavailable(false)
		if err := <-got; err != nil {
			t.Error(err)
		}
		l.SetUnavailable(true)
		if err := h.Unlock(t.Context()); !errors.Is(err, redlatch.ErrUnavailable) {
			t.Error(err)
		}
		if h.Context().Err() == nil {
			t.Error("the section goes on after Unlock")
		}
		if holds := l.Holds(); len(holds) != 0 {
			t.Error("the code under test has unlocked all:", holds)
		}
		l.SetUnavailable(false)
		if _, err := l.TryLock(t.Context(), 0, 0); err != nil {
			t.Error("not freed:", err)
		}
		if err := h.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestLockerErrors(t *testing.T) {
	l := redlatchtest.NewLocker("a")
	want := &redlatch.ReplicaAcksError{Name: "a", Want: 2, Got: 1}
	l.SetError(want)
	if _, err := l.Lock(t.Context()); !errors.Is(err, redlatch.ErrReplicaAcks) {
		t.Error(err)
	}
	l.SetError(nil)
	h := mustLock(t, t.Context(), l)
	l.Close()
	if cause := context.Cause(h.Context()); !errors.Is(cause, redlatch.ErrClosed) {
		t.Error(cause)
	}
	if err := h.Unlock(t.Context()); !errors.Is(err, redlatch.ErrClosed) {
		t.Error(err)
	}
	if _, err := l.TryLock(t.Context(), 0, 0); !errors.Is(err, redlatch.ErrClosed) {
		t.Error(err)
	}
}

// Goroutines take and lose it at random: exclusion holds, and nobody hangs.
func TestLockerUnderLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := redlatchtest.NewLocker("a", redlatch.Fenced())
		var wg sync.WaitGroup
		var inside *redlatch.Hold
		var mu sync.Mutex
		for i := range 8 {
			wg.Go(func() {
				for k := range 50 {
					h, err := l.TryLock(t.Context(), time.Duration(k%3)*time.Millisecond, time.Duration(i%2)*2*time.Millisecond)
					if err != nil {
						continue
					}
					mu.Lock()
					if inside != nil && (*inside).Context().Err() == nil {
						t.Error("two inside")
					}
					inside = &h
					mu.Unlock()
					time.Sleep(time.Duration(k%4) * time.Millisecond)
					if err := h.Unlock(t.Context()); err != nil && !errors.Is(err, redlatch.ErrLeaseLost) {
						t.Error(err)
					}
				}
			})
		}
		wg.Go(func() {
			for range 50 {
				time.Sleep(5 * time.Millisecond)
				l.Lose()
			}
		})
		wg.Wait()
	})
}
