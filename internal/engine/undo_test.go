package engine_test

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlatch/redlatch/internal/conn"
	"github.com/redlatch/redlatch/internal/engine"
	"github.com/redlatch/redlatch/internal/luascript"
	"github.com/redlatch/redlatch/lock"
	"github.com/redlatch/redlatch/rlock"
)

// A group whose members the owner has got in other calls since its first try, which
// had no answer: when it is given up, that try is undone all the same.
func TestGroupGivenUpAfterItsMembersWereTakenElsewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, _ := newFake(t, leaseTime)
		g := &groupRunner{Runner: f}
		core := coreOn(t, g)
		ctx, cancel := context.WithCancel(engine.WithOwner(t.Context(), "x"))
		defer cancel()
		both := []*engine.Lock{engine.Of(engine.Open(new(rlock.RLock), core, "a")), engine.Of(engine.Open(new(rlock.RLock), core, "b"))}
		ended := make(chan error, 1)
		go func() {
			_, err := engine.AcquireAll(ctx, both, -1, 0, time.Now(), time.Time{})
			ended <- err
		}()
		synctest.Wait() // the first try had no answer; the second one comes in a moment
		own := engine.WithOwner(t.Context(), "x")
		a, b := take(t, own, core, "a"), take(t, own, core, "b")
		g.slow.Store(true)
		time.Sleep(time.Second) // the second try has been sent
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("the group: %v", err)
		}
		time.Sleep(20 * time.Second)
		for _, h := range []lock.Hold{a, b} {
			if err := h.Unlock(context.Background()); err != nil {
				t.Errorf("Unlock: %v", err)
			}
		}
		if g.released.Load() == 0 {
			t.Error("the try without an answer was not undone")
		}
	})
}

// groupRunner loses the replies to a group's acquisitions, none of which runs.
type groupRunner struct {
	conn.Runner
	slow     atomic.Bool
	released atomic.Int32
}

func (g *groupRunner) Run(ctx context.Context, cmd conn.Command) (conn.Reply, error) {
	switch cmd.Script {
	case luascript.GroupAcquire:
		if g.slow.Load() {
			time.Sleep(10 * time.Second)
		}
		return conn.Reply{}, errLost
	case luascript.GroupRelease:
		g.released.Add(1)
		return conn.Reply{Vals: []conn.Value{{}, {IsStr: true}, {}, {IsStr: true}}}, nil
	}
	return g.Runner.Run(ctx, cmd)
}

// A log handler that blocks keeps no late grant from being given back.
func TestSlowLogKeepsNoLateGrant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := slowLog{make(chan struct{})}
		f, core := newFakeWith(t, func(_ *fakeRedis, cfg *engine.Config) { cfg.Log = slog.New(log) })
		defer close(log.released)
		f.latency = time.Second
		ctx, cancel := context.WithTimeout(t.Context(), time.Second/2)
		defer cancel()
		if _, err := engine.Open(new(rlock.RLock), core, "l").Lock(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Lock: %v", err)
		}
		time.Sleep(5 * time.Second)
		if f.count("l") != 0 {
			t.Error("the late grant stands")
		}
	})
}

// An attempt whose reply was lost is undone by a command of two keys, which a cluster refuses
// while it moves the slot. Nobody can take the lock as long; when the slot is whole, the undo
// that is repeated meanwhile frees it within a second, and not the lease.
func TestUndoOutlastsTheMoveOfItsSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, core := newFake(t, time.Minute)
		f.onAfter(func(cmd conn.Command) error {
			if cmd.Script == luascript.Acquire {
				return errLost
			}
			return nil
		})
		f.onBefore(func(cmd conn.Command) error {
			if f.count("l") > 0 && len(cmd.Keys) > 1 {
				return conn.Refusal("TRYAGAIN Multiple keys request during rehashing of slot")
			}
			return nil
		})
		if h, err := engine.Open(new(rlock.RLock), core, "l").TryLock(t.Context(), time.Second, 0); !errors.Is(err, lock.ErrUnavailable) {
			t.Fatalf("TryLock: %v, %v", h, err)
		}
		time.Sleep(20 * time.Second)
		if f.count("l") != 1 {
			t.Fatal("the attempt did not get the lock")
		}
		f.onBefore(nil)
		time.Sleep(2 * time.Second) // a pause is a second and a half at most
		if f.count("l") != 0 {
			t.Error("the lock was not given back")
		}
	})
}
