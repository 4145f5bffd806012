package engine_test

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlatch/redlatch/internal/conn"
	"github.com/redlatch/redlatch/internal/engine"
	"github.com/redlatch/redlatch/internal/luascript"
	"github.com/redlatch/redlatch/lock"
)

// A group whose members the owner has got in other calls since its first try, which
// had no answer: when it is given up, that try is undone all the same.
func TestGroupGivenUpAfterItsMembersWereTakenElsewhere(t *testing.T) {
	onFake(t, func(t *testing.T, f *fakeRedis, core *engine.Core) {
		var slow atomic.Bool
		f.onBefore(func(cmd conn.Command) error { // no acquisition of the group runs, and nobody knows
			if cmd.Script != luascript.GroupAcquire {
				return nil
			}
			if slow.Load() {
				time.Sleep(10 * time.Second)
			}
			return errLost
		})
		own := engine.WithOwner(t.Context(), "x")
		ctx, cancel := context.WithCancel(own)
		defer cancel()
		both := start(func() (lock.Hold, error) {
			_, err := group(ctx, core, -1, "a", "b")
			return nil, err
		}) // the first try had no answer; the second one comes in a moment
		a, b := take(t, own, core, "a"), take(t, own, core, "b")
		slow.Store(true)
		time.Sleep(time.Second) // the second try has been sent
		cancel()
		if both.ends(t); !errors.Is(both.err, context.Canceled) {
			t.Errorf("the group: %v", both.err)
		}
		time.Sleep(20 * time.Second)
		free(t, a, b)
		if len(f.scripts("group_release")) == 0 {
			t.Error("the try without an answer was not undone")
		}
	})
}

// An attempt whose reply was lost is undone by a command of two keys, which a cluster refuses
// while it moves the slot. Nobody can take the lock as long; when the slot is whole, the undo
// that is repeated meanwhile frees it within a second, and not the lease.
func TestUndoOutlastsTheMoveOfItsSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, core := newFakeWith(t, func(_ *fakeRedis, cfg *engine.Config) { cfg.LeaseTime = time.Minute })
		f.onAfter(fault{script: luascript.Acquire, err: errLost}.hook())
		f.onBefore(func(cmd conn.Command) error {
			if f.count("l") > 0 && len(cmd.Keys) > 1 {
				return errTryAgain
			}
			return nil
		})
		if h, err := plain(core, "l").TryLock(t.Context(), time.Second, 0); !errors.Is(err, lock.ErrUnavailable) {
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

// An acquisition's memory is used again, but not while an answer to it is out: what is
// granted to a caller who has gone is given back under that one's name, whoever came and
// went meanwhile.
func TestALateAnswerFindsItsOwnAcquisition(t *testing.T) {
	onFake(t, func(t *testing.T, f *fakeRedis, core *engine.Core) {
		answer := make(chan struct{})
		var late atomic.Int32
		f.onAfter(func(cmd conn.Command) error { // it ran; the reply takes long
			if cmd.Script == luascript.Acquire && late.Add(1) <= 3 {
				<-answer
			}
			return nil
		})
		ctx, cancel := context.WithCancel(t.Context())
		var leaving []*got
		for i := range 3 {
			leaving = append(leaving, locking(ctx, core, "left"+strconv.Itoa(i)))
		}
		cancel()
		for _, g := range leaving {
			if g.ends(t); !errors.Is(g.err, context.Canceled) {
				t.Errorf("Lock: %v", g.err)
			}
		}
		var stay []lock.Hold
		for i := range 50 { // in the memory of whoever ended before
			h := take(t, t.Context(), core, "other"+strconv.Itoa(i))
			if i%2 == 0 {
				stay = append(stay, h)
			} else {
				free(t, h)
			}
		}
		close(answer)
		time.Sleep(time.Second)
		for i := range 3 {
			if n := f.count("left" + strconv.Itoa(i)); n != 0 {
				t.Errorf("left%d is held %d times by somebody who gave up", i, n)
			}
		}
		for _, h := range stay {
			if n := f.count(h.Name()); n != 1 {
				t.Errorf("%s is held %d times", h.Name(), n)
			}
		}
		free(t, stay...)
	})
}

// What comes while a carrier is on its way, or busy, travels in one write.
func TestWhatComesTogetherTravelsTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newServer()
		f.latency = time.Millisecond
		writes := &counting{Runner: f.link()}
		core := newCore(t, writes, f.link(), nil)
		const many = 200
		var wg sync.WaitGroup
		for i := range many {
			wg.Go(func() { take(t, t.Context(), core, "l"+strconv.Itoa(i)) })
		}
		wg.Wait()
		if n := writes.n.Load(); n > many/4 {
			t.Errorf("%d writes for %d commands", n, many)
		}
	})
}

// counting counts what a client writes.
type counting struct {
	conn.Runner
	n atomic.Int32
}

func (c *counting) Run(ctx context.Context, cmd conn.Command) (conn.Reply, error) {
	c.n.Add(1)
	return c.Runner.Run(ctx, cmd)
}

func (c *counting) RunMulti(ctx context.Context, cmds []conn.Command, out []conn.Result) []conn.Result {
	c.n.Add(1)
	return c.Runner.RunMulti(ctx, cmds, out)
}
