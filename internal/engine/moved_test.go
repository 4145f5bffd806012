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
)

// A renewal under way at the move may have been answered by the old server: it does
// not count, and another follows at once.
func TestRenewalUnderWayAtAMoveDoesNotCount(t *testing.T) {
	onFake(t, func(t *testing.T, f *fakeRedis, core *engine.Core) {
		h := take(t, t.Context(), core, "l")
		const held = 3 * time.Second
		stuck := make(chan struct{})
		f.onAfter(fault{script: luascript.Renew, once: true, do: func() { close(stuck) }, pause: held}.hook())
		before := h.ValidUntil()
		<-stuck
		time.Sleep(held / 2)
		core.Moved()
		// From here on the new server answers: nothing.
		f.onBefore(func(conn.Command) error { return errLost })
		time.Sleep(held)
		if !h.ValidUntil().Equal(before) {
			t.Errorf("the old server's answer moved the deadline by %v", h.ValidUntil().Sub(before))
		}
		f.onBefore(nil)
		time.Sleep(2 * time.Second)
		renewed := f.scripts("renew")
		if len(renewed) < 2 || !h.ValidUntil().After(before) {
			t.Errorf("%d renewals; the deadline moved by %v", len(renewed), h.ValidUntil().Sub(before))
		}
	})
}

// oldAnswers makes the old server run what the call sends next, and the move be noticed while the
// answer is on its way: then the keys are as forget left them, and the new server can't be
// reached yet.
func oldAnswers(f *fakeRedis, core *engine.Core, forget func()) {
	if f.latency == 0 {
		f.latency = 100 * time.Millisecond
	}
	time.AfterFunc(f.latency*3/2, func() {
		f.locked(forget)
		core.Moved()
		f.onBefore(func(conn.Command) error { return errUnsent })
	})
}

// A grant that the old server answered, and that is heard after the move was noticed, does not
// count: the new server is asked. Else its holder would believe in it for as long as nobody can
// tell it better. So it is with a re-entry: the outer hold stays what it was meanwhile.
func TestGrantUnderWayAtAMoveAsksTheNewServer(t *testing.T) {
	for name, tc := range map[string]struct{ outer, knows bool }{
		"it never heard of it": {}, "its replica has it": {knows: true}, "a re-entry": {outer: true},
	} {
		bubble(t, name, func(t *testing.T) {
			f, core := newFake(t)
			job, old := held.WithOwner(t.Context(), "job"), time.Now().Add(leaseTime)
			var outer []lock.Hold
			if tc.outer {
				outer = append(outer, take(t, job, core, "l", lock.WithLease(leaseTime)))
				time.Sleep(time.Second)
			}
			forget := func() {
				switch {
				case tc.outer:
					f.keys["l"].ends = old
				case !tc.knows:
					delete(f.keys, "l")
				}
			}
			oldAnswers(f, core, forget)
			if _, err := plain(core, "l").TryLock(job, time.Second, time.Hour); !errors.Is(err, lock.ErrUnavailable) {
				t.Fatalf("no server that is the master now has said that the lock is held: %v", err)
			}
			if n := len(core.Held()); n != len(outer) {
				t.Errorf("%d holds", n)
			}
			f.onBefore(nil)
			time.Sleep(5 * time.Second)
			if n := f.count("l"); (n > 0) != tc.outer {
				t.Errorf("what the new server has of it counts %d", n)
			}
			oldAnswers(f, core, forget)
			time.AfterFunc(time.Second, func() { f.onBefore(nil) })
			h := take(t, job, core, "l", lock.WithLease(time.Hour))
			f.covers(t, h)
			free(t, append([]lock.Hold{h}, outer...)...)
			if n := f.count("l"); n != 0 {
				t.Errorf("%d holds are left on the server", n)
			}
		})
	}
}

// Of several locks that the old server granted together none counts.
func TestGrantOfSeveralUnderWayAtAMoveAsksTheNewServer(t *testing.T) {
	onByHand(t, func(t *testing.T, b *byHand, core *engine.Core) {
		var holds []*held.Hold
		g := start(func() (_ lock.Hold, err error) {
			holds, err = group(t.Context(), core, -1, "a", "b")
			return nil, err
		})
		q := b.only(luascript.GroupAcquire, "")
		time.Sleep(time.Millisecond)
		core.Moved()
		b.tell(q, grantedTwo(), nil)
		g.waits(t, "the group, whose locks nobody has granted who is the master now")
		if n := len(core.Held()); n > 0 {
			t.Errorf("%d holds", n)
		}
		b.tell(b.only(luascript.GroupAcquire, ""), grantedTwo(), nil)
		g.has(t, "the group")
		done := make(chan *held.Releasing, 1)
		held.Release(t.Context(), holds, done)
		b.tellEach(luascript.GroupRelease, "", conn.Reply{Code: 1, Vals: []conn.Value{{Int: 1}, {}, {Int: 1}, {}}})
		<-done
	})
}

// What was asked of the old server for longer than its last write that the new one has is
// asked of that one, too: else it would free the lock while the holder counts on it. That is so of what is answered
// after the move was noticed, too.
func TestLongLeasesAreAskedForAgainAfterAMove(t *testing.T) {
	onFake(t, func(t *testing.T, f *fakeRedis, core *engine.Core) {
		holds := []lock.Hold{take(t, t.Context(), core, "fixed", lock.WithLease(time.Hour)), take(t, t.Context(), core, "longer")}
		if err := holds[1].Extend(t.Context(), time.Hour); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		for _, h := range holds {
			f.sets(h.Name(), time.Now().Add(leaseTime/2))
		}
		core.Moved()
		synctest.Wait()
		for _, h := range holds {
			f.covers(t, h)
			f.locked(func() {
				if late := f.keys[h.Name()].ends.Sub(h.ValidUntil()); late > time.Hour/50 {
					t.Errorf("%s: it lasts for %v after its holder's deadline", h.Name(), late)
				}
			})
		}

		h, old := take(t, t.Context(), core, "l", lock.WithLease(leaseTime)), time.Now().Add(leaseTime)
		f.latency = 100 * time.Millisecond
		time.AfterFunc(f.latency*3/2, func() {
			f.sets("l", old)
			core.Moved()
		})
		if err := h.Extend(t.Context(), time.Hour); err != nil {
			t.Fatal(err)
		}
		f.covers(t, h)
	})
}

// An Extend that is refused since its hold has been unlocked asks for nothing, so nothing of it
// may be asked of the server that takes over, nor be given back.
func TestExtendOfAnUnlockedHoldAsksForNothing(t *testing.T) {
	onFake(t, func(t *testing.T, f *fakeRedis, core *engine.Core) {
		nested := func(opts ...lock.AcquireOption) lock.Hold {
			outer := take(t, t.Context(), core, "l", opts...)
			inner := take(t, outer.Context(), core, "l", opts...)
			free(t, inner)
			if err := inner.Extend(t.Context(), time.Hour); !errors.Is(err, lock.ErrNotHeld) {
				t.Fatal("Extend after Unlock:", err)
			}
			return outer
		}
		outer := nested()
		time.Sleep(time.Second)
		core.Moved()
		synctest.Wait()
		f.locked(func() {
			if left := time.Until(f.keys["l"].ends); left > leaseTime {
				t.Errorf("the lock stays for %v if its holder dies now, want at most the LeaseTime of %v", left, leaseTime)
			}
		})
		free(t, outer)

		outer = nested(lock.WithLease(leaseTime))
		releases := len(f.scripts("release"))
		lostAt(t, outer, lock.LossExpired)
		synctest.Wait()
		if n := len(f.scripts("release")) - releases; n > 0 {
			t.Errorf("%d releases of what nobody asked for", n)
		}
	})
}

// A server that forgot an Extend (its replica took over in a cluster, or it was started again with
// what it had written a second before) still has the lock, with a shorter lease. The checks that
// find it held must not let the holder count on more than the server has for the rest of an hour.
func TestAnExtendThatTheServerForgot(t *testing.T) {
	for name, opts := range map[string][]lock.AcquireOption{"watchdog": nil, "fixed": {lock.WithLease(leaseTime)}} {
		bubble(t, name, func(t *testing.T) {
			f, core := newFake(t)
			h := take(t, t.Context(), core, "l", opts...)
			work := h.Context()
			if err := h.Extend(t.Context(), time.Hour); err != nil {
				t.Fatal(err)
			}
			f.sets("l", time.Now().Add(leaseTime)) // what it had before
			time.Sleep(leaseTime - time.Second)
			checks := len(f.scripts("renew"))
			f.onBefore(func(conn.Command) error { return errUnsent }) // and now the line is cut
			time.Sleep(2 * leaseTime)
			if f.count("l") == 0 && work.Err() == nil {
				t.Errorf("%d checks found it held; the server has freed the lock, and the holder believes in it for another %v",
					checks, time.Until(h.ValidUntil()))
			}
			f.onBefore(nil)
			_ = h.Unlock(context.Background())
		})
	}
}
