package moving

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	goredis9 "github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/testbed"
)

// old is a lock of the library that a service comes from.
type old interface {
	// lock waits until it has the lock. It returns the context of the section and the release.
	lock(ctx context.Context, name string) (context.Context, func() error, error)
	// try makes one attempt.
	try(ctx context.Context, name string) (release func() error, err error)
	// key is the Redis key of the lock's name.
	key(name string) string
}

type viaRedsync struct{ *redsync.Redsync }

func (r viaRedsync) lock(ctx context.Context, name string) (context.Context, func() error, error) {
	m := r.NewMutex(name, redsync.WithTries(1<<20), redsync.WithRetryDelay(3*time.Millisecond))
	return ctx, func() error { _, err := m.UnlockContext(context.WithoutCancel(ctx)); return err }, m.LockContext(ctx)
}

func (r viaRedsync) try(ctx context.Context, name string) (func() error, error) {
	m := r.NewMutex(name)
	return func() error { _, err := m.Unlock(); return err }, m.TryLockContext(ctx)
}

func (viaRedsync) key(name string) string { return name }

type viaRedislock struct{ *redislock.Client }

func (r viaRedislock) lock(ctx context.Context, name string) (context.Context, func() error, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute) // without it the wait ends with the TTL
	l, err := r.Obtain(ctx, name, 8*time.Second, &redislock.Options{RetryStrategy: redislock.LinearBackoff(3 * time.Millisecond)})
	return ctx, func() error { defer cancel(); return l.Release(context.WithoutCancel(ctx)) }, err
}

func (r viaRedislock) try(ctx context.Context, name string) (func() error, error) {
	l, err := r.Obtain(ctx, name, 8*time.Second, nil)
	return func() error { return l.Release(context.WithoutCancel(ctx)) }, err
}

func (viaRedislock) key(name string) string { return name }

type viaRueidislock struct{ rueidislock.Locker }

func (r viaRueidislock) lock(ctx context.Context, name string) (context.Context, func() error, error) {
	ctx, cancel, err := r.WithContext(ctx, name)
	return ctx, func() error { cancel(); return nil }, err
}

func (r viaRueidislock) try(ctx context.Context, name string) (func() error, error) {
	_, cancel, err := r.TryWithContext(ctx, name)
	return func() error { cancel(); return nil }, err
}

func (viaRueidislock) key(name string) string { return "rueidislock:0:" + name }

// bed is a server with a client of redlatch and the libraries.
type bed struct {
	client *redlatch.Client
	raw    *goredis9.Client
	olds   map[string]old
}

func newBed(t *testing.T) *bed {
	t.Helper()
	server := testbed.Standalone(t)
	client, err := redlatch.Open("redis://" + server.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	raw := goredis9.NewClient(&goredis9.Options{Addr: server.Addr()})
	t.Cleanup(func() { _ = raw.Close() })
	locker, err := rueidislock.NewLocker(rueidislock.LockerOption{
		ClientOption: rueidis.ClientOption{InitAddress: []string{server.Addr()}, ForceSingleClient: true},
		TryNextAfter: 5 * time.Second, // a busy machine is no failure
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(locker.Close)
	return &bed{client, raw, map[string]old{
		"redsync":     viaRedsync{redsync.New(goredis.NewPool(raw))},
		"redislock":   viaRedislock{redislock.New(raw)},
		"rueidislock": viaRueidislock{locker},
	}}
}

// TestTheSameNameHeldByTheOldLibrary pins what redlatch does with a name that the old library holds: redsync and
// redislock use the name as their key, with a string in it, which redlatch refuses with ErrInvalidName and does not
// touch. rueidislock has keys of its own, so both hold "the same lock" at once.
func TestTheSameNameHeldByTheOldLibrary(t *testing.T) {
	b := newBed(t)
	for library, o := range b.olds {
		t.Run(library, func(t *testing.T) {
			name := "held-by-" + library
			release, err := o.try(t.Context(), name)
			if err != nil {
				t.Fatal(err)
			}
			before, err := b.raw.Get(t.Context(), o.key(name)).Result()
			if err != nil {
				t.Fatalf("the old lock's key: %v", err)
			}
			hold, err := b.client.RLock(name).TryLock(t.Context(), 5*time.Second, 0) // long enough for an answer
			switch {
			case library == "rueidislock":
				if err != nil {
					t.Fatalf("keys of their own, and yet: %v", err)
				}
				if err := hold.Unlock(t.Context()); err != nil {
					t.Error(err)
				}
			case err == nil:
				t.Fatal("both hold it at once")
			case errors.Is(err, redlatch.ErrNotAcquired), !isPermanent(err):
				t.Errorf("got %v; want an error that says that the key is no lock of ours, not busy", err)
			}
			if after, err := b.raw.Get(t.Context(), o.key(name)).Result(); err != nil || after != before {
				t.Errorf("the old lock's key was %q and is %q, %v", before, after, err)
			}
			if err := release(); err != nil {
				t.Errorf("the old library unlocks: %v", err)
			}
			if err != nil {
				t.Logf("redlatch said: %v", err)
			}
			// As soon as the old one is gone the name is free for redlatch.
			hold, err = b.client.RLock(name).TryLock(t.Context(), 0, 0)
			if err != nil {
				t.Fatal(err)
			}
			if err := hold.Unlock(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

// isPermanent reports whether err says that waiting is of no use.
func isPermanent(err error) bool {
	var server *redlatch.ServerError
	return errors.Is(err, redlatch.ErrInvalidName) || errors.As(err, &server)
}

// TestTheSameNameHeldByRedlatch is the other way round: for redsync and redislock the name is busy, also after a try.
func TestTheSameNameHeldByRedlatch(t *testing.T) {
	b := newBed(t)
	for library, o := range b.olds {
		t.Run(library, func(t *testing.T) {
			name := "held-by-redlatch-" + library
			hold, err := b.client.RLock(name).Lock(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			release, err := o.try(t.Context(), name)
			if library == "rueidislock" {
				if err != nil {
					t.Fatalf("keys of their own, and yet: %v", err)
				}
				_ = release()
			} else if err == nil {
				t.Fatal("both hold it at once")
			}
			// The failed try has left our hold alone.
			if err := hold.Extend(t.Context(), time.Minute); err != nil {
				t.Errorf("Extend: %v", err)
			}
			if err := hold.Unlock(t.Context()); err != nil {
				t.Errorf("Unlock: %v", err)
			}
		})
	}
}

// fleet counts who is inside.
type fleet struct {
	inside, most atomic.Int64
	turns        atomic.Int64
}

func (f *fleet) section() {
	n := f.inside.Add(1)
	for most := f.most.Load(); n > most && !f.most.CompareAndSwap(most, n); most = f.most.Load() {
	}
	time.Sleep(300 * time.Microsecond)
	f.inside.Add(-1)
	f.turns.Add(1)
}

// newPrefix keeps the new locks' keys away from the old ones'.
const newPrefix = "v2:"

// The three releases of a service: with the old lock, with both, with the new one.
func (b *bed) oldOnly(ctx context.Context, o old, name string, section func()) error {
	_, release, err := o.lock(ctx, name)
	if err != nil {
		return err
	}
	section()
	return release()
}

func (b *bed) both(ctx context.Context, o old, name string, section func()) error {
	ctx, release, err := o.lock(ctx, name) // outside: the same order everywhere
	if err != nil {
		return err
	}
	err = b.newOnly(ctx, name, section)
	return errors.Join(err, release())
}

func (b *bed) newOnly(ctx context.Context, name string, section func()) error {
	return b.client.RLock(newPrefix+name).Do(ctx, func(context.Context) error { section(); return nil })
}

// TestMovingInTwoSteps: while a fleet moves, the release before and the release after work side by side and exclude
// each other. That is the promise of the recipe in docs/moving.
func TestMovingInTwoSteps(t *testing.T) {
	const workers, rounds = 4, 25
	b := newBed(t)
	for library, o := range b.olds {
		type release func(ctx context.Context, name string, section func()) error
		oldOnly := func(ctx context.Context, name string, section func()) error { return b.oldOnly(ctx, o, name, section) }
		both := func(ctx context.Context, name string, section func()) error { return b.both(ctx, o, name, section) }
		for _, step := range []struct {
			name          string
			before, after release
		}{
			{"old beside both", oldOnly, both},
			{"both beside new", both, b.newOnly},
		} {
			t.Run(library+"/"+step.name, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				var f fleet
				var all sync.WaitGroup
				for i := range workers {
					run := step.before
					if i%2 == 1 {
						run = step.after
					}
					all.Go(func() {
						for range rounds {
							if err := run(ctx, "moving-"+library+step.name, f.section); err != nil {
								t.Error(err)
								return
							}
						}
					})
				}
				all.Wait()
				if f.most.Load() != 1 || f.turns.Load() != workers*rounds {
					t.Errorf("%d inside at once, %d turns; want 1 and %d", f.most.Load(), f.turns.Load(), workers*rounds)
				}
			})
		}
	}
}

// TestOneStepIsNoMove keeps the test above able to fail: without the release in the middle, old and new are inside
// together.
func TestOneStepIsNoMove(t *testing.T) {
	b := newBed(t)
	for library, o := range b.olds {
		t.Run(library, func(t *testing.T) {
			release, err := o.try(t.Context(), "one-step")
			if err != nil {
				t.Fatal(err)
			}
			entered := false
			if err := b.newOnly(t.Context(), "one-step", func() { entered = true }); err != nil || !entered {
				t.Errorf("the new lock was kept out by the old one of another key: %v", err)
			}
			if err := release(); err != nil {
				t.Error(err)
			}
		})
	}
}
