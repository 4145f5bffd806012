package redlatchtest_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/testbed"
	"github.com/redlatch/redlatch/redlatchtest"
)

func mustLock(t *testing.T, ctx context.Context, l redlatch.Locker, opts ...redlatch.AcquireOption) redlatch.Hold { //nolint:revive // t first, as in testing
	t.Helper()
	h, err := l.Lock(ctx, opts...)
	testbed.Must(t, err)
	return h
}

// wants fails the test unless err is one of these.
func wants(t *testing.T, err error, wanted ...error) {
	t.Helper()
	if !slices.ContainsFunc(wanted, func(want error) bool { return errors.Is(err, want) }) {
		t.Errorf("error %v, want one of %v", err, wanted)
	}
}

// mustUnlock unlocks, and fails the test if one was not held until now.
func mustUnlock(t *testing.T, holds ...redlatch.Hold) {
	t.Helper()
	for _, h := range holds {
		wants(t, h.Unlock(t.Context()), nil)
	}
}

// passes takes the lock for a moment.
func passes(t *testing.T, l redlatch.Locker, opts ...redlatch.AcquireOption) {
	t.Helper()
	wants(t, redlatch.Do(t.Context(), l, func(context.Context) error { return nil }, opts...), nil)
}

// refuses asks for a lock in vain.
func refuses(t *testing.T, l redlatch.Locker, wait time.Duration, sentinel error) {
	t.Helper()
	_, err := l.TryLock(t.Context(), wait, 0)
	wants(t, err, sentinel)
}

// lost waits until a hold ends for the loss of its lock.
func lost(t *testing.T, h redlatch.Hold) {
	t.Helper()
	<-h.Context().Done()
	wants(t, context.Cause(h.Context()), redlatch.ErrLeaseLost)
	wants(t, h.Unlock(t.Context()), redlatch.ErrLeaseLost)
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
			check := func(step string, ok bool) {
				t.Helper()
				if !ok {
					t.Errorf("%s: %s", which, step)
				}
			}
			ownership(t, l, check)
			deadlines(t, l, lose[which], check)
			losses(t, l, lose[which], check)
			waitsInAnOutage(t, l, away[which], check)
			unlocksInAnOutage(t, l, away[which], lose[which], check)
			check("none is held in the end", len(fake.Holds()) == 0)
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
			t.Log(which)
			a := mustLock(t, t.Context(), byName("a"))
			b := mustLock(t, a.Context(), byName("b"))
			enter := func(l redlatch.Locker, ctx context.Context) {
				t.Helper()
				h, err := l.TryLock(ctx, 0, 0)
				testbed.Must(t, err)
				mustUnlock(t, h)
			}
			for _, name := range []string{"a", "b"} {
				enter(byName(name), a.Context())
				enter(byName(name), b.Context())
			}
			mustUnlock(t, a) // b keeps the owner alive
			enter(byName("b"), context.WithoutCancel(a.Context()))
			mustUnlock(t, b)
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
				wants(t, redlatch.Do(t.Context(), l, func(context.Context) error {
					order = append(order, i)
					time.Sleep(time.Second)
					return nil
				}), nil)
			})
			synctest.Wait()
		}
		testbed.Equal(t, l.Waiting(), 8, "wait")
		began := time.Now()
		free()
		wg.Wait()
		testbed.Equal(t, time.Since(began), 8*time.Second, "eight turns")
		testbed.Equal(t, fmt.Sprint(order), "[0 1 2 3 4 5 6 7]", "their order")
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
	lost(t, h)
	free() // of java-7, which has it no more: the operator keeps it
	if _, err := l.TryLock(t.Context(), 0, 0); !errors.As(err, &busy) || busy.Holder != "operator" {
		t.Error(err)
	}
}

// Holds are those that the code under test has not unlocked, whether or not the server was away then.
func TestLockerHolds(t *testing.T) {
	l := redlatchtest.NewLocker("a")
	h := mustLock(t, t.Context(), l)
	nested := mustLock(t, h.Context(), l)
	testbed.Equal(t, len(l.Holds()), 2, "holds")
	l.SetUnavailable(true)
	wants(t, nested.Unlock(t.Context()), redlatch.ErrUnavailable)
	if got := l.Holds(); len(got) != 1 || got[0] != h {
		t.Error(got)
	}
}

func TestLockerErrors(t *testing.T) {
	l := redlatchtest.NewLocker("a")
	want := &redlatch.ReplicaAcksError{Name: "a", Want: 2, Got: 1}
	l.SetError(want)
	_, err := l.Lock(t.Context())
	wants(t, err, redlatch.ErrReplicaAcks)
	l.SetError(nil)
	h := mustLock(t, t.Context(), l)
	l.Close()
	wants(t, context.Cause(h.Context()), redlatch.ErrClosed)
	wants(t, h.Unlock(t.Context()), redlatch.ErrClosed)
	refuses(t, l, 0, redlatch.ErrClosed)
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
					wants(t, h.Unlock(t.Context()), nil, redlatch.ErrLeaseLost)
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
