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

// old is the library that a service comes from.
type old struct {
	// take tries so often to get a lock. It returns the context of the section and the release.
	take func(ctx context.Context, name string, tries int) (context.Context, func() error, error)
	// prefix makes a lock's name its key.
	prefix string
}

const (
	once  = 1
	often = 1 << 20 // at least as long as the test lasts
	pause = 3 * time.Millisecond
)

func viaRedsync(rs *redsync.Redsync) old {
	return old{take: func(ctx context.Context, name string, tries int) (context.Context, func() error, error) {
		m := rs.NewMutex(name, redsync.WithTries(tries), redsync.WithRetryDelay(pause))
		return ctx, func() error { _, err := m.UnlockContext(context.WithoutCancel(ctx)); return err }, m.LockContext(ctx)
	}}
}

func viaRedislock(c *redislock.Client) old {
	return old{take: func(ctx context.Context, name string, tries int) (context.Context, func() error, error) {
		ctx, cancel := context.WithTimeout(ctx, time.Minute) // without it the wait ends with the TTL
		again := redislock.LimitRetry(redislock.LinearBackoff(pause), tries-1)
		l, err := c.Obtain(ctx, name, 8*time.Second, &redislock.Options{RetryStrategy: again})
		return ctx, func() error { defer cancel(); return l.Release(context.WithoutCancel(ctx)) }, err
	}}
}

func viaRueidislock(l rueidislock.Locker) old {
	return old{prefix: "rueidislock:0:", take: func(ctx context.Context, name string, tries int) (context.Context, func() error, error) {
		take := l.WithContext
		if tries == once {
			take = l.TryWithContext
		}
		ctx, cancel, err := take(ctx, name)
		return ctx, func() error { cancel(); return nil }, err
	}}
}

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
	testbed.Must(t, err)
	t.Cleanup(client.Close)
	raw := goredis9.NewClient(&goredis9.Options{Addr: server.Addr()})
	t.Cleanup(func() { _ = raw.Close() })
	locker, err := rueidislock.NewLocker(rueidislock.LockerOption{
		ClientOption: rueidis.ClientOption{InitAddress: []string{server.Addr()}, ForceSingleClient: true},
		TryNextAfter: 5 * time.Second, // a busy machine is no failure
	})
	testbed.Must(t, err)
	t.Cleanup(locker.Close)
	return &bed{client, raw, map[string]old{
		"redsync":     viaRedsync(redsync.New(goredis.NewPool(raw))),
		"redislock":   viaRedislock(redislock.New(raw)),
		"rueidislock": viaRueidislock(locker),
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
			_, release, err := o.take(t.Context(), name, once)
			testbed.Must(t, err)
			before, err := b.raw.Get(t.Context(), o.prefix+name).Result()
			testbed.Must(t, err)
			hold, err := b.client.RLock(name).TryLock(t.Context(), 5*time.Second, 0) // long enough for an answer
			switch {
			case library == "rueidislock":
				testbed.Must(t, err) // its keys are its own
				testbed.Must(t, hold.Unlock(t.Context()))
			case err == nil || errors.Is(err, redlatch.ErrNotAcquired) || !isPermanent(err):
				t.Errorf("got %v; want an error that says that the key is no lock of ours, not busy", err)
			}
			if after, err := b.raw.Get(t.Context(), o.prefix+name).Result(); err != nil || after != before {
				t.Errorf("the old lock's key was %q and is %q, %v", before, after, err)
			}
			testbed.Must(t, release())
			// As soon as the old one is gone the name is free for redlatch.
			hold, err = b.client.RLock(name).TryLock(t.Context(), 0, 0)
			testbed.Must(t, err)
			testbed.Must(t, hold.Unlock(t.Context()))
		})
	}
}

// isPermanent reports whether err says that waiting is of no use.
func isPermanent(err error) bool {
	var server *redlatch.ServerError
	return errors.Is(err, redlatch.ErrInvalidName) || errors.As(err, &server)
}

// TestTheSameNameHeldByRedlatch is the other way round: for redsync and redislock the name is busy, and the failed try
// leaves our hold alone.
func TestTheSameNameHeldByRedlatch(t *testing.T) {
	b := newBed(t)
	for library, o := range b.olds {
		t.Run(library, func(t *testing.T) {
			name := "held-by-redlatch-" + library
			hold, err := b.client.RLock(name).Lock(t.Context())
			testbed.Must(t, err)
			_, release, err := o.take(t.Context(), name, once)
			if library == "rueidislock" {
				testbed.Must(t, err) // its keys are its own
				_ = release()
			} else if err == nil {
				t.Fatal("both hold it at once")
			}
			testbed.Must(t, hold.Extend(t.Context(), time.Minute))
			testbed.Must(t, hold.Unlock(t.Context()))
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
	_, release, err := o.take(ctx, name, often)
	if err != nil {
		return err
	}
	section()
	return release()
}

func (b *bed) both(ctx context.Context, o old, name string, section func()) error {
	ctx, release, err := o.take(ctx, name, often) // outside: the same order everywhere
	if err != nil {
		return err
	}
	err = b.newOnly(ctx, o, name, section)
	return errors.Join(err, release())
}

func (b *bed) newOnly(ctx context.Context, _ old, name string, section func()) error {
	return b.client.RLock(newPrefix+name).Do(ctx, func(context.Context) error { section(); return nil })
}

// TestMovingInTwoSteps: while a fleet moves, the release before and the release after work side by side and exclude
// each other. That is the promise of the recipe in docs/moving.
func TestMovingInTwoSteps(t *testing.T) {
	const workers, rounds = 4, 25
	type release func(b *bed, ctx context.Context, o old, name string, section func()) error
	b := newBed(t)
	for library, o := range b.olds {
		for step, releases := range map[string][2]release{
			"old beside both": {(*bed).oldOnly, (*bed).both},
			"both beside new": {(*bed).both, (*bed).newOnly},
		} {
			t.Run(library+"/"+step, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				var f fleet
				var all sync.WaitGroup
				for i := range workers {
					all.Go(func() {
						for range rounds {
							if err := releases[i%2](b, ctx, o, "moving-"+library+step, f.section); err != nil {
								t.Error(err)
								return
							}
						}
					})
				}
				all.Wait()
				testbed.Equal(t, f.most.Load(), 1, "inside at once")
				testbed.Equal(t, f.turns.Load(), workers*rounds, "turns")
			})
		}
	}
}

// TestOneStepIsNoMove keeps the test above able to fail: without the release in the middle, old and new are inside
// together.
func TestOneStepIsNoMove(t *testing.T) {
	b := newBed(t)
	for library, o := range b.olds {
		_, release, err := o.take(t.Context(), "one-step", once)
		testbed.Must(t, err)
		entered := false
		if err := b.newOnly(t.Context(), o, "one-step", func() { entered = true }); err != nil || !entered {
			t.Errorf("the new lock was kept out by that of %s, of another key: %v", library, err)
		}
		testbed.Must(t, release())
	}
}
