package engine_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlatch/redlatch/internal/conn"
	"github.com/redlatch/redlatch/internal/engine"
	"github.com/redlatch/redlatch/internal/held"
	"github.com/redlatch/redlatch/internal/luascript"
	"github.com/redlatch/redlatch/lock"
	"github.com/redlatch/redlatch/rlock"
)

// An Unlock that waits behind another command when the client is closed ends its hold: nobody
// else does.
func TestCloseEndsAHoldWhoseUnlockWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, core := newByHand(t)
		g := start(func() (lock.Hold, error) {
			return engine.Open(new(rlock.RLock), core, "l").Lock(held.WithOwner(t.Context(), "x"))
		})
		b.tell(b.only(luascript.Acquire, ""), code1(1), nil)
		h := g.has(t, "x")
		ctx, cancel := context.WithCancel(t.Context())
		extended := start(func() (lock.Hold, error) { return nil, h.Extend(ctx, time.Minute) })
		cancel() // its command is under way, and nobody waits for it
		unlocked := start(func() (lock.Hold, error) { return nil, h.Unlock(t.Context()) })
		unlocked.waits(t, "Unlock")
		closed := start(func() (lock.Hold, error) { core.Close(); return nil, nil })
		time.Sleep(time.Minute)
		synctest.Wait()
		if !extended.over || !unlocked.over || !closed.over || !errors.Is(unlocked.err, lock.ErrClosed) && !errors.Is(unlocked.err, lock.ErrUnavailable) {
			t.Errorf("Extend is over: %t, Unlock: %t (%v), Close: %t", extended.over, unlocked.over, unlocked.err, closed.over)
		}
		if n := core.Holding(); n != 0 {
			t.Errorf("%d holds are counted after Close", n)
		}
	})
}

// What was answered before the keys moved to another server says nothing of that one: a lock is
// not passed on because of it.
func TestNothingIsPassedOnOnAnAnswerOfTheOldServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, core := newByHand(t)
		l := engine.Open(new(rlock.RLock), core, "l")
		g := start(func() (lock.Hold, error) { return l.Lock(t.Context()) })
		b.tell(b.only(luascript.Acquire, ""), code1(1), nil)
		h := g.has(t, "the holder")
		next := start(func() (lock.Hold, error) { return l.Lock(t.Context()) })
		b.tell(b.only(luascript.Acquire, ""), busyPlain(h), nil)
		for qs := b.of(luascript.Acquire, ""); len(qs) > 0; qs = b.of(luascript.Acquire, "") {
			b.tell(qs[0], busyPlain(h), nil)
		}
		next.waits(t, "the next")

		time.Sleep(time.Millisecond)
		core.Moved()
		time.Sleep(time.Millisecond)
		start(func() (lock.Hold, error) { return nil, h.Unlock(t.Context()) })
		next.waits(t, "the next, whom nobody has told that the new server knows of the lock")
		b.tell(b.only(luascript.Release, ""), code1(1), nil)
	})
}

// busyPlain is the refusal of a plain lock that h holds.
func busyPlain(h lock.Hold) conn.Reply {
	left := time.Until(h.ValidUntil()).Milliseconds()
	return conn.Reply{Vals: []conn.Value{{}, {Int: left}, {Str: "other:g1-x.1", IsStr: true}, {IsStr: true}}}
}

// While a cluster moves a slot, each lock of a group is free as soon as its own key can be
// written: what else is to be said about another one of them takes its time.
func TestGroupIsFreedWhileItsSlotMoves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, core := newByHand(t)
		both := []*engine.Lock{engine.Of(engine.Open(new(rlock.RLock), core, "a")), engine.Of(engine.Open(new(rlock.RLock), core, "b"))}
		var holds []*held.Hold
		g := start(func() (_ lock.Hold, err error) {
			holds, err = engine.AcquireAll(t.Context(), both, -1, 0, time.Now(), time.Time{})
			return nil, err
		})
		granted := conn.Reply{Code: 1, Vals: []conn.Value{{Int: 1}, {}, {}}}
		b.tell(b.only(luascript.GroupAcquire, ""), conn.Reply{}, errLost)
		time.Sleep(100 * time.Millisecond)
		b.tell(b.only(luascript.GroupAcquire, ""), granted, nil)
		g.has(t, "the group")

		done := make(chan *held.Releasing, 1)
		held.Release(t.Context(), holds, done)
		tryAgain := conn.Refusal("TRYAGAIN Multiple keys request during rehashing of slot")
		free := map[string]bool{}
		for end := time.Now().Add(2 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
			synctest.Wait()
			b.mu.Lock()
			asked := append([]*question(nil), b.asked...)
			b.mu.Unlock()
			for _, q := range asked {
				if len(q.cmd.Keys) > 1 {
					b.tell(q, conn.Reply{}, tryAgain)
					continue
				}
				switch key := q.cmd.Keys[0]; {
				case q.cmd.Script != luascript.Release || free[key]:
					b.tell(q, code1(0), nil)
				case key == "a":
					free[key] = true
					b.tell(q, conn.Reply{}, errLost) // it ran
				default:
					free[key] = true
					b.tell(q, code1(1), nil)
				}
			}
		}
		if !free["a"] || !free["b"] {
			t.Errorf("after two seconds these are free: %v", free)
		}
		select {
		case rel := <-done:
			if err := errors.Join(rel.Errs()...); err != nil {
				t.Error(err)
			}
		default:
			t.Error("Unlock waits for what is not the caller's")
		}
		followed := 0 // by the whole commands
		for range 3 {
			time.Sleep(time.Second)
			for qs := b.of(luascript.Release, ""); len(qs) > 0; qs = b.of(luascript.Release, "") {
				if len(qs[0].cmd.Keys) < 2 {
					t.Errorf("%v", qs[0].cmd)
				}
				followed++
				b.tell(qs[0], code1(0), nil)
			}
		}
		if followed != 2 {
			t.Errorf("%d whole commands followed", followed)
		}
	})
}
