package engine_test

import (
	"context"
	"errors"
	"math"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redlatch/redlatch/internal/conn"
	"github.com/redlatch/redlatch/internal/engine"
	"github.com/redlatch/redlatch/internal/luascript"
	"github.com/redlatch/redlatch/internal/testbed"
	"github.com/redlatch/redlatch/lock"
)

// tooLate reports whether err says that a grant of a healthy server came after its own lease.
func tooLate(err error) bool {
	return errors.Is(err, lock.ErrNotAcquired) && !errors.Is(err, lock.ErrUnavailable) &&
		strings.Contains(err.Error(), "came after the lease had run out")
}

// Who asks for a lease that is over before the answer comes can't have the lock. Those behind it
// in the line can: it lets them go first, and asks again in its turn.
func TestGrantsThatAreTooLateHoldUpNobody(t *testing.T) {
	onFake(t, func(t *testing.T, f *fakeRedis, core *engine.Core) {
		f.latency = time.Millisecond
		var asked atomic.Int32 // for the lease of 2 ms
		f.onBefore(func(cmd conn.Command) error {
			if cmd.Script == luascript.Acquire && cmd.Args[1] == "2" {
				asked.Add(1)
			}
			return nil
		})
		first := take(t, t.Context(), core, "l")
		ctx, cancel := context.WithCancel(t.Context())
		short := locking(ctx, core, "l", lock.WithLease(2*time.Millisecond))
		const n = 5
		const each = 2 * time.Second // longer than any pause
		got := make(chan time.Time, n)
		for range n {
			time.Sleep(10 * time.Millisecond)
			go func() {
				h := take(t, t.Context(), core, "l")
				got <- time.Now()
				time.Sleep(each)
				free(t, h)
			}()
		}
		time.Sleep(time.Second)
		asked.Store(0)
		free(t, first)
		isFree := time.Now()
		var last time.Time
		for i := range n {
			select {
			case last = <-got:
			case <-time.After(each + time.Second):
				t.Fatalf("waiter %d does not get a lock that is free", i)
			}
		}
		testbed.AtMost(t, last.Sub(isFree)-(n-1)*each, 100*time.Millisecond, "how long the lock was free in all")
		testbed.Equal(t, asked.Load(), 1, "times that the short lease was asked for, once and in its turn")
		time.Sleep(each + 5*time.Second) // it is alone now, and goes on
		testbed.AtLeast(t, asked.Load(), 3, "times that the short lease was asked for")
		testbed.AtMost(t, asked.Load(), 30, "times that the short lease was asked for")
		cancel()
		if short.ends(t); !tooLate(short.err) {
			t.Error(short.err)
		}
		time.Sleep(time.Second)
		testbed.Equal(t, f.count("l"), 0, "what the lock counts")
		testbed.Equal(t, core.Holding(), 0, "are held")
	})
}

// No two owner ids share a hash field, and none of them is a generated owner's.
func TestOwnersFields(t *testing.T) {
	onFake(t, func(t *testing.T, f *fakeRedis, core *engine.Core) {
		seen := map[string]string{}
		for _, id := range []string{"a", "A", "a-b", "a b", "a:b", "a%20b", "a%b", "é", "1", "g1", "=", "\x00", ""} {
			ctx := t.Context()
			if id != "" {
				ctx = engine.WithOwner(ctx, id)
			}
			h := take(t, ctx, core, "l")
			field := f.field("l")
			free(t, h)
			owner := strings.TrimPrefix(field[:strings.LastIndexByte(field, '-')], core.ID()+":")
			if other, ok := seen[owner]; ok {
				t.Errorf("%q and %q share %q", id, other, owner)
			}
			seen[owner] = id
			if owner[0] != 'g' || strings.ContainsAny(owner, " :-") {
				t.Errorf("%q is the owner %q", id, owner)
			}
		}
	})
}

// Who waits has one name for as long as it waits, however often it asks: that of its place on the server.
func TestAWaiterKeepsItsName(t *testing.T) {
	onFake(t, func(t *testing.T, f *fakeRedis, core *engine.Core) {
		h := take(t, t.Context(), second(t, f), "l")
		waits := locking(t.Context(), core, "l")
		first := core.Waiting(9)[0].Owner
		for asked := len(f.scripts("acquire")); len(f.scripts("acquire")) < asked+3; time.Sleep(time.Second) {
			if now := core.Waiting(9)[0].Owner; now != first {
				t.Fatalf("%s waits, and was %s", now, first)
			}
		}
		free(t, h)
		time.Sleep(2 * time.Second)
		free(t, waits.has(t, "who waited"))
	})
}

// A server whose scripts let a token through that is none, or that no other can follow, is not believed: the
// grant is given back, and the error is typed.
func TestATokenThatIsNoneIsRefused(t *testing.T) {
	onFake(t, func(t *testing.T, f *fakeRedis, core *engine.Core) {
		for _, before := range []int64{1<<53 - 1, math.MaxInt64 - 1, math.MinInt64, -2} {
			f.token = before // the next one is larger by one
			h, err := plain(core, "l", lock.Fenced()).TryLock(t.Context(), 0, 0)
			var refused *lock.ServerError
			if !errors.As(err, &refused) {
				t.Error(h, err)
			}
			time.Sleep(time.Second) // it is undone in the background
			testbed.Equal(t, f.count("l"), 0, "whether the grant stands")
		}
	})
}
