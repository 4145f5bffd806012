package hazard

import (
	"context"
	"math"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/fairlock"
	"github.com/redlatch/redlatch/internal/testbed"
)

// A server that comes back with old data (a lock that its holder has given up, a queue whose
// waiters have left) lets in those who want the lock when the old lease is over, nobody believes to
// hold it for longer than a check, and nothing stays.
func TestServerComesBackWithOldData(t *testing.T) {
	for _, kind := range kinds {
		t.Run(kind.name, func(t *testing.T) {
			t.Parallel()
			s := testbed.Standalone(t)
			testbed.LeakCheck(t, s, testbed.AllowKeys("redlatch_void:"))
			const lease = 2 * time.Second
			a, b := dial(t, s.Addr(), leaseTime(lease)), dial(t, s.Addr(), leaseTime(lease))
			h := take(t, t.Context(), kind.make(a, "stale"))
			ctx, cancel := context.WithCancel(t.Context())
			var left <-chan result
			testbed.Mark(t.Name(), func() { left = async(ctx, exclusive(b, kind.name, "stale")) })
			marked(t, t.Name(), "(*acquisition).sleep") // it stands in the queue, if there is one
			s.Do(t, "SAVE")
			cancel()
			if r := await(t, left); r.err == nil {
				t.Fatal("two are inside")
			}
			unlock(t, h)
			// The next holder's key is not in the old data.
			other := take(t, t.Context(), exclusive(b, kind.name, "stale"))
			began := time.Now()
			s.Restart(t, testbed.Stale)
			third := async(t.Context(), exclusive(a, kind.name, "stale"))
			select {
			case <-other.Context().Done():
				is(t, "the cause", context.Cause(other.Context()), redlatch.ErrLeaseLost)
			case <-time.After(lease):
				t.Error("the holder does not hear of it")
			}
			is(t, "Unlock", other.Unlock(context.Background()), redlatch.ErrLeaseLost)
			r := await(t, third)
			if r.err != nil {
				t.Fatal(r.err)
			}
			if took := time.Since(began); took > lease+8*time.Second {
				t.Errorf("the lock was to be had after %v", took)
			}
			unlock(t, r.hold)
		})
	}
}

// exclusive is the lock of the kind that nobody shares.
func exclusive(c *redlatch.Client, kind, name string) redlatch.Locker {
	if kind == "read" {
		return c.ReadWriteLock(name).WriteLock()
	}
	for _, k := range kinds {
		if k.name == kind {
			return k.make(c, name)
		}
	}
	panic("no kind " + kind)
}

// A skip time that would not fit into the queue is refused.
func TestLongestSkipTime(t *testing.T) {
	c := dial(t, server(t).Addr())
	_, err := c.FairLock("l", fairlock.WithSkipAfter(math.MaxInt64)).TryLock(t.Context(), 0, 0)
	is(t, "TryLock", err, redlatch.ErrInvalidOption)
}

// Names may be anything; a queue for each is served.
func TestStrangeNames(t *testing.T) {
	s := server(t)
	c, other := dial(t, s.Addr()), dial(t, s.Addr())
	for _, name := range []string{"*", "[a-z]?\\", "a\x00b", "{", "}{", "{}z", " ", "\r\n", "%s%d", "ü", "a:b-c g=1"} {
		for _, kind := range kinds {
			h := take(t, t.Context(), kind.make(c, name))
			next := async(t.Context(), exclusive(other, kind.name, name))
			time.Sleep(2 * time.Millisecond) // waiting or not: it must get it
			unlock(t, h)
			unlock(t, await(t, next).hold)
		}
	}
}
