package readwrite

import (
	"context"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/integration/bed"
	"github.com/redlatch/redlatch/internal/testbed"
)

// Our writers go on beside another library, whose unlock calls nobody. Who was refused by its hold
// hears its message, whether it had the lock alone, came in among our readers, or the writer that
// is called finds it inside and gives up.
func TestWritersBesideAnotherLibrary(t *testing.T) {
	t.Parallel()
	const channel = "redisson_rwlock:{n}"
	writes := func(t *testing.T, s *testbed.Server) {
		t.Helper()
		s.Do(t, "HSET", "n", "mode", "write", foreign+":write", "1")
		s.Do(t, "PEXPIRE", "n", "60000")
	}
	waits := func(ctx context.Context, t *testing.T, s *testbed.Server, n int64) <-chan bed.Attempt {
		t.Helper()
		w := bed.Async(ctx, client(t, s, 30*time.Second).ReadWriteLock("n", told()).WriteLock())
		waiting(t, s, "writers", n)
		return w
	}
	for name, meets := range map[string]func(t *testing.T, s *testbed.Server) <-chan bed.Attempt{
		"its writer": func(t *testing.T, s *testbed.Server) <-chan bed.Attempt {
			t.Helper()
			writes(t, s)
			return waits(t.Context(), t, s, 1)
		},
		"its reader among ours": func(t *testing.T, s *testbed.Server) <-chan bed.Attempt {
			t.Helper()
			h := bed.Lock(t, t.Context(), client(t, s, 30*time.Second).ReadWriteLock("n").ReadLock())
			w := waits(t.Context(), t, s, 1)
			listening(t, s, 1)
			foreignReads(t, s, 1, 1, time.Minute)
			bed.Unlock(t, h) // the writer is called, to hear of it
			return w
		},
		"its writer came between": func(t *testing.T, s *testbed.Server) <-chan bed.Attempt {
			t.Helper()
			writes(t, s)
			ctx, cancel := context.WithCancel(t.Context())
			first := waits(ctx, t, s, 1)
			second := waits(t.Context(), t, s, 2)
			bed.Eventually(t, "both hear the foreign channel", func() bool { return heard(t, s, channel) == 2 })
			cancel()
			bed.Get(t, first)
			return second
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := bed.Loaded(t)
			w := meets(t, s)
			bed.Eventually(t, "the foreign channel is heard", func() bool { return heard(t, s, channel) >= 1 })
			s.AwaitQuiet(t)
			s.Do(t, "DEL", "n", "{n}:"+foreign+":rwlock_timeout:1")
			s.Do(t, "PUBLISH", channel, "1")
			bed.Unlock(t, bed.HoldWithin(t, atOnce, w))
		})
	}
}

// Readers that stood back for a writer enter within a second of when its mark counts no more, however long it would
// have counted and whoever has entered meanwhile. Nobody tells them of that.
func TestReadersLookWhetherTheWriterLives(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		heard bool // the writer stands still; else it is dead
		limit time.Duration
		// before takes the lock; free lets the reader in.
		before func(t *testing.T, s *testbed.Server) (free func())
	}{
		"the last reader leaves, and the writer is dead":      {false, atOnce, readsAlone},
		"the last reader leaves, and the writer stands still": {true, looks, readsAlone},
		"and readers that came later stay": {true, looks, func(t *testing.T, s *testbed.Server) func() {
			t.Helper()
			free := readsAlone(t, s)
			return func() {
				free()
				l := client(t, s, 30*time.Second).ReadWriteLock("n").ReadLock()
				bed.Eventually(t, "a later one enters", func() bool {
					h, err := l.TryLock(t.Context(), 0, 0)
					if err == nil {
						t.Cleanup(func() { bed.Unlock(t, h) })
					}
					return err == nil
				})
			}
		}},
		"the lock's lease ends, and the writer is dead":      {false, looks, writesFor(2 * time.Second)},
		"the lock's lease ends, and the writer stands still": {true, looks, writesFor(2 * time.Second)},
		"the writer is found dead while others read": {false, looks, func(t *testing.T, s *testbed.Server) func() {
			t.Helper()
			long := bed.Lock(t, t.Context(), client(t, s, time.Hour).ReadWriteLock("n").ReadLock())
			h := bed.Lock(t, t.Context(), client(t, s, 30*time.Second).ReadWriteLock("n").ReadLock())
			t.Cleanup(func() { bed.Unlock(t, h) })
			return func() {
				bed.Unlock(t, long) // which calls the writer, to look: the lock ends far sooner
				testbed.Equal(t, s.Int(t, "EXISTS", writers), 0, "this test shows nothing if the mark of a dead writer stayed")
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := bed.Loaded(t)
			free := tc.before(t, s)
			if tc.heard {
				hears(t, s, stranger)
			}
			mark(t, s, stranger)
			reader := bed.Async(t.Context(), client(t, s, 30*time.Second).ReadWriteLock("n", told()).ReadLock())
			waiting(t, s, "readers", 1)
			s.AwaitQuiet(t)
			blocked(t, "the reader", reader)
			free()
			bed.Unlock(t, bed.HoldWithin(t, tc.limit, reader))
		})
	}
}

func readsAlone(t *testing.T, s *testbed.Server) func() {
	t.Helper()
	h := bed.Lock(t, t.Context(), client(t, s, 30*time.Second).ReadWriteLock("n").ReadLock())
	return func() { bed.Unlock(t, h) }
}

// writesFor takes the write lock, whose lease ends by itself.
func writesFor(lease time.Duration) func(t *testing.T, s *testbed.Server) func() {
	return func(t *testing.T, s *testbed.Server) func() {
		t.Helper()
		bed.Lock(t, t.Context(), client(t, s, time.Hour).ReadWriteLock("n").WriteLock(), redlatch.WithLease(lease))
		ends := time.Now().Add(lease)
		return func() { time.Sleep(time.Until(ends)) }
	}
}

// Those of one client that stand behind a writer's mark look by one command a second, whatever their number, up to
// what one command takes.
func TestReadersLookTogether(t *testing.T) {
	t.Parallel()
	const readers, seconds = 100, 3
	s := bed.Loaded(t)
	h := bed.Lock(t, t.Context(), client(t, s, time.Hour).ReadWriteLock("n").ReadLock())
	mark(t, s, stranger)
	c, proxy := proxied(t, s, time.Hour, 0)
	proxy.Delay(testbed.Replies, 100*time.Millisecond) // slow answers now are no sign, later, that the lease has become shorter
	l := c.ReadWriteLock("n", told()).ReadLock()
	got := make([]<-chan bed.Attempt, readers)
	for i := range got {
		got[i] = bed.Async(t.Context(), l)
	}
	waiting(t, s, "readers", readers)
	s.AwaitQuiet(t)
	proxy.Delay(testbed.Replies, 0)
	began := time.Now()
	n := scripts(t, s, func() { time.Sleep(seconds * time.Second) })
	// They have come one after the other, and what is due within an eighth of the second goes with the first.
	testbed.AtMost(t, n, 8*int64(time.Since(began)/time.Second+1), "commands in seconds:", seconds)
	bed.Unlock(t, h)
	bed.Unlock(t, bed.Holds(t, got)...)
}
