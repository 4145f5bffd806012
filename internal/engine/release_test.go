package engine_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlatch/redlatch/internal/conn"
	"github.com/redlatch/redlatch/internal/engine"
	"github.com/redlatch/redlatch/internal/held"
	"github.com/redlatch/redlatch/internal/luascript"
	"github.com/redlatch/redlatch/lock"
)

// A release that can't be delivered is tried until the lease has run out, and no
// longer; nothing renews the key meanwhile.
func TestUnlockGivesUpWithTheLease(t *testing.T) {
	onFake(t, func(t *testing.T, f *fakeRedis, core *engine.Core) {
		h := take(t, t.Context(), core, "l")
		f.onBefore(func(conn.Command) error { return errUnsent })
		if err := h.Unlock(t.Context()); !errors.Is(err, lock.ErrUnavailable) {
			t.Errorf("Unlock: %v", err)
		}
		time.Sleep(leaseTime)
		if core.Holding() != 0 || core.Scheduled() != 0 || f.count("l") != 0 {
			t.Errorf("%d held, %d scheduled, count %d", core.Holding(), core.Scheduled(), f.count("l"))
		}
		if err := h.Unlock(t.Context()); !errors.Is(err, lock.ErrUnavailable) {
			t.Errorf("the second Unlock: %v", err)
		}
	})
}

// A release that can't be delivered is tried until the latest end that a command may have set: one that ran
// long after it was sent set it from then on. So nothing stays held for nobody.
func TestAReleaseIsTriedAsLongAsALateCommandLasts(t *testing.T) {
	for name, c := range map[string]struct {
		script *luascript.Script
		begins func(*testing.T, *engine.Core) lock.Hold
		once   bool // it is answered when it has run
	}{
		"an acquisition": {luascript.Acquire, func(t *testing.T, core *engine.Core) lock.Hold {
			return take(t, t.Context(), core, "l", lock.WithLease(leaseTime))
		}, true},
		"a renewal": {luascript.Renew, func(t *testing.T, core *engine.Core) lock.Hold {
			return take(t, t.Context(), core, "l")
		}, false},
		"a re-entry that nobody waits for": {luascript.Reenter, func(t *testing.T, core *engine.Core) lock.Hold {
			h := take(t, t.Context(), core, "l", lock.WithLease(leaseTime))
			ctx, cancel := context.WithTimeout(h.Context(), 10*time.Second)
			defer cancel()
			if _, err := plain(core, "l").Lock(ctx); err == nil {
				t.Error("the re-entry was answered")
			}
			return h
		}, false},
		"an extension that nobody waits for": {luascript.Reenter, func(t *testing.T, core *engine.Core) lock.Hold {
			h := take(t, t.Context(), core, "l", lock.WithLease(leaseTime))
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if err := h.Extend(ctx, leaseTime); err == nil {
				t.Error("Extend was answered")
			}
			return h
		}, false},
	} {
		for how, answer := range map[string]struct {
			after time.Duration
			err   error
		}{"answered": {0, nil}, "answer lost": {0, errLost}, "no answer for a lease": {43 * time.Second, errLost}} {
			if answer.err != nil && c.once {
				continue
			}
			bubble(t, name+"/"+how, func(t *testing.T) { comesLate(t, c.script, c.begins, answer.after, answer.err) })
		}
	}
}

// comesLate holds a command back for 19 s, so that the lease that it sets lasts until 49 s.
func comesLate(t *testing.T, script *luascript.Script, begins func(*testing.T, *engine.Core) lock.Hold, after time.Duration, answer error) {
	f, core := newFake(t)
	start := time.Now()
	at := func(d time.Duration) { time.Sleep(time.Until(start.Add(d))) }
	var cut atomic.Bool // nothing but the late command reaches the server
	f.onBefore(func(cmd conn.Command) error {
		switch {
		case cmd.Script == script:
			at(19 * time.Second)
		case cut.Load():
			return errUnsent
		}
		return nil
	})
	f.onAfter(func(cmd conn.Command) error {
		if cmd.Script != script {
			return nil
		}
		at(after)
		return answer
	})
	h := begins(t, core)
	at(20 * time.Second)
	cut.Store(true)
	if err := h.Unlock(context.Background()); !errors.Is(err, lock.ErrUnavailable) {
		t.Errorf("Unlock: %v", err)
	}
	at(45 * time.Second) // a lease and more after the sending
	if f.count("l") == 0 {
		t.Fatal("the late command did not keep the lock")
	}
	cut.Store(false)
	at(47 * time.Second)
	if f.count("l") != 0 {
		t.Error("the lock is held for nobody")
	}
}

// The inner Unlock's reply is lost, and the key with it: that the field is gone
// can't be the first try's doing, which leaves the outer hold's count.
func TestPartialReleaseThatFindsTheKeyGone(t *testing.T) {
	onFake(t, func(t *testing.T, f *fakeRedis, core *engine.Core) {
		outer := take(t, t.Context(), core, "l")
		inner := take(t, outer.Context(), core, "l")
		f.onAfter(fault{script: luascript.Release, once: true, do: func() { f.forget("l") }, err: errLost}.hook())
		began := time.Now()
		if err := inner.Unlock(context.Background()); !errors.Is(err, lock.ErrLeaseLost) {
			t.Errorf("Unlock: %v", err)
		}
		if took := lostAt(t, outer, lock.LossGone).Sub(began); took > time.Second {
			t.Errorf("the outer hold heard of it after %v", took)
		}
	})
}

// A hold whose own lease passes while its Unlock waits behind another command is
// released all the same: the key was the owner's until then.
func TestPartialReleaseBesideAHoldThatIsOver(t *testing.T) {
	onFake(t, func(t *testing.T, f *fakeRedis, core *engine.Core) {
		outer := take(t, t.Context(), core, "l")
		inner := take(t, outer.Context(), core, "l", lock.WithLease(time.Second))
		f.onBefore(fault{script: luascript.Reenter, pause: 2 * time.Second}.hook()) // it keeps the gate until the inner lease is over
		start(func() (lock.Hold, error) { return nil, outer.Extend(context.Background(), leaseTime) })
		unlocked := []*got{unlocks(outer), unlocks(inner)}
		time.Sleep(3 * time.Second)
		for _, g := range unlocked {
			g.has(t, "an Unlock")
		}
		if n := len(f.scripts("release")); n != 2 || core.Holding() != 0 || f.count("l") != 0 {
			t.Errorf("%d releases, %d held, count %d", n, core.Holding(), f.count("l"))
		}
	})
}

// A living process leaves no lease behind that is longer than what its last hold
// lasted, also when the server was away at the last Unlock.
func TestTheLongerLeaseOfAReleasedHoldIsNotLeftBehind(t *testing.T) {
	onFake(t, func(t *testing.T, f *fakeRedis, core *engine.Core) {
		outer := take(t, t.Context(), core, "l", lock.WithLease(2*time.Second))
		free(t, take(t, outer.Context(), core, "l", lock.WithLease(time.Hour)))
		f.onBefore(func(conn.Command) error { return errUnsent })
		if err := outer.Unlock(context.Background()); !errors.Is(err, lock.ErrUnavailable) {
			t.Errorf("Unlock: %v", err)
		}
		f.onBefore(nil)
		time.Sleep(5 * time.Second)
		if f.count("l") != 0 {
			t.Error("the key is left for an hour")
		}
	})
}

// An Unlock that gave up waiting, whose release then found the lock gone: the next
// Unlock says so.
func TestALossFoundByAnUnlockThatGaveUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, core := newFakeWith(t, func(_ *fakeRedis, cfg *engine.Config) { cfg.LeaseTime = time.Minute })
		h := take(t, t.Context(), core, "l")
		f.forget("l")
		f.onBefore(fault{pause: 6 * time.Second}.hook()) // UnlockTimeout is 5 s
		for i, want := range []error{lock.ErrUnavailable, lock.ErrLeaseLost, lock.ErrNotHeld} {
			if err := h.Unlock(context.Background()); !errors.Is(err, want) {
				t.Errorf("Unlock %d: %v, want %v", i+1, err, want)
			}
			time.Sleep(2 * time.Second)
		}
	})
}

// An Unlock that waits behind another command when the client is closed ends its hold: nobody
// else does.
func TestCloseEndsAHoldWhoseUnlockWaits(t *testing.T) {
	onByHand(t, func(t *testing.T, b *byHand, core *engine.Core) {
		g := locking(held.WithOwner(t.Context(), "x"), core, "l")
		b.tell(b.only(luascript.Acquire, ""), code1(1), nil)
		h := g.has(t, "x")
		ctx, cancel := context.WithCancel(t.Context())
		extended := start(func() (lock.Hold, error) { return nil, h.Extend(ctx, time.Minute) })
		cancel() // its command is under way, and nobody waits for it
		unlocked := unlocks(h)
		unlocked.waits(t, "Unlock")
		closed := start(func() (lock.Hold, error) { core.Close(); return nil, nil })
		time.Sleep(time.Minute)
		for _, g := range []*got{extended, unlocked, closed} {
			g.ends(t)
		}
		if !errors.Is(unlocked.err, lock.ErrClosed) && !errors.Is(unlocked.err, lock.ErrUnavailable) {
			t.Errorf("Unlock: %v", unlocked.err)
		}
		if n := core.Holding(); n != 0 {
			t.Errorf("%d holds are counted after Close", n)
		}
	})
}

// While a cluster moves a slot, each lock of a group is free as soon as its own key can be
// written: what else is to be said about another one of them takes its time.
func TestGroupIsFreedWhileItsSlotMoves(t *testing.T) {
	onByHand(t, func(t *testing.T, b *byHand, core *engine.Core) {
		var holds []*held.Hold
		g := start(func() (_ lock.Hold, err error) {
			holds, err = group(t.Context(), core, -1, "a", "b")
			return nil, err
		})
		b.tell(b.only(luascript.GroupAcquire, ""), conn.Reply{}, errLost)
		time.Sleep(100 * time.Millisecond)
		b.tell(b.only(luascript.GroupAcquire, ""), grantedTwo(), nil)
		g.has(t, "the group")

		done := make(chan *held.Releasing, 1)
		held.Release(t.Context(), holds, done)
		released := map[string]bool{}
		for end := time.Now().Add(2 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
			for _, q := range b.all() {
				key := q.cmd.Keys[0]
				switch first := !released[key]; {
				case len(q.cmd.Keys) > 1:
					b.tell(q, conn.Reply{}, errTryAgain)
				case q.cmd.Script != luascript.Release || !first:
					b.tell(q, code1(0), nil)
				default:
					released[key] = true
					b.tell(q, code1(1), map[string]error{"a": errLost}[key]) // it ran
				}
			}
		}
		if !released["a"] || !released["b"] {
			t.Errorf("after two seconds these are free: %v", released)
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
			for _, q := range b.of(luascript.Release, "") {
				if len(q.cmd.Keys) < 2 {
					t.Errorf("%v", q.cmd)
				}
				followed++
				b.tell(q, code1(0), nil)
			}
		}
		if followed != 2 {
			t.Errorf("%d whole commands followed", followed)
		}
	})
}
