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

// The keys are on another server, where the lease ends earlier than what the last
// answer promised: it is renewed there at once.
func TestMovedLocksAreRenewedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, core := newFake(t, leaseTime)
		h := take(t, t.Context(), core, "l")
		fixed := take(t, t.Context(), core, "fixed", lock.WithLease(leaseTime))
		time.Sleep(4 * time.Second)
		f.mu.Lock()
		f.keys["l"].ends = time.Now().Add(10 * time.Millisecond)
		delete(f.keys, "fixed")
		f.mu.Unlock()
		core.Moved()
		began := time.Now()
		if at := lostAt(t, fixed, lock.LossGone); at != began {
			t.Errorf("a lock that is not there was found out after %v", at.Sub(began))
		}
		time.Sleep(time.Second)
		if f.count("l") != 1 || h.Context().Err() != nil {
			t.Fatal("lost: it was not renewed at once")
		}
		if err := h.Unlock(context.Background()); err != nil {
			t.Error(err)
		}
	})
}

// A renewal under way at the move may have been answered by the old server: it does
// not count, and another follows at once.
func TestRenewalUnderWayAtAMoveDoesNotCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, core := newFake(t, leaseTime)
		h := take(t, t.Context(), core, "l")
		const held = 3 * time.Second
		stuck := make(chan struct{})
		first := true
		f.onAfter(func(cmd conn.Command) error {
			if cmd.Script == luascript.Renew && first {
				first = false
				close(stuck)
				time.Sleep(held)
			}
			return nil
		})
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
		f.mu.Lock()
		forget()
		f.mu.Unlock()
		core.Moved()
		f.onBefore(func(conn.Command) error { return errUnsent })
	})
}

// A grant that the old server answered, and that is heard after the move was noticed, does not
// count: the new server is asked. Else its holder would believe in it for as long as nobody can
// tell it better.
func TestGrantUnderWayAtAMoveAsksTheNewServer(t *testing.T) {
	for name, knows := range map[string]bool{"it never heard of it": false, "its replica has it": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f, core := newFake(t, leaseTime)
				oldAnswers(f, core, func() {
					if !knows {
						delete(f.keys, "l")
					}
				})
				l := engine.Open(new(rlock.RLock), core, "l")
				if _, err := l.TryLock(t.Context(), time.Second, time.Hour); !errors.Is(err, lock.ErrUnavailable) {
					t.Fatalf("no server that is the master now has said that the lock is held: %v", err)
				}
				if n := len(core.Held()); n > 0 {
					t.Errorf("%d holds", n)
				}
				f.onBefore(nil)
				time.Sleep(5 * time.Second)
				if f.count("l") != 0 {
					t.Error("what the replica had of it was not given back")
				}

				oldAnswers(f, core, func() {
					if !knows {
						delete(f.keys, "l")
					}
				})
				time.AfterFunc(time.Second, func() { f.onBefore(nil) })
				h := take(t, t.Context(), core, "l", lock.WithLease(time.Hour))
				f.mu.Lock()
				if early := h.ValidUntil().Sub(f.keys["l"].ends); early > 0 {
					t.Errorf("the server frees it %v before its holder's deadline", early)
				}
				f.mu.Unlock()
				if err := h.Unlock(t.Context()); err != nil || f.count("l") != 0 {
					t.Errorf("Unlock: %v; %d holds are left on the server", err, f.count("l"))
				}
			})
		})
	}
}

// So it is with a re-entry: the outer hold stays what it was meanwhile.
func TestReentryUnderWayAtAMoveAsksTheNewServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, core := newFake(t, leaseTime)
		job := held.WithOwner(t.Context(), "job")
		outer := take(t, job, core, "l", lock.WithLease(leaseTime))
		old := time.Now().Add(leaseTime)
		time.Sleep(time.Second)
		oldAnswers(f, core, func() { f.keys["l"].ends = old })
		if _, err := engine.Open(new(rlock.RLock), core, "l").TryLock(job, 5*time.Second, time.Hour); !errors.Is(err, lock.ErrUnavailable) {
			t.Fatalf("no server that is the master now has said that the lock is held for an hour: %v", err)
		}
		if err := outer.Context().Err(); err != nil {
			t.Error("the outer hold:", err)
		}

		f.onBefore(nil)
		oldAnswers(f, core, func() { f.keys["l"].ends = old })
		time.AfterFunc(time.Second, func() { f.onBefore(nil) })
		inner := take(t, job, core, "l", lock.WithLease(time.Hour))
		f.mu.Lock()
		if early := inner.ValidUntil().Sub(f.keys["l"].ends); early > 0 {
			t.Errorf("the server frees it %v before its holder's deadline", early)
		}
		f.mu.Unlock()
		for _, h := range []lock.Hold{inner, outer} {
			if err := h.Unlock(t.Context()); err != nil {
				t.Error(err)
			}
		}
		if f.count("l") != 0 {
			t.Error("the lock is not free")
		}
	})
}

// Of several locks that the old server granted together none counts.
func TestGrantOfSeveralUnderWayAtAMoveAsksTheNewServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, core := newByHand(t)
		both := []*engine.Lock{engine.Of(engine.Open(new(rlock.RLock), core, "a")), engine.Of(engine.Open(new(rlock.RLock), core, "b"))}
		var holds []*held.Hold
		g := start(func() (_ lock.Hold, err error) {
			holds, err = engine.AcquireAll(t.Context(), both, -1, 0, time.Now(), time.Time{})
			return nil, err
		})
		granted := conn.Reply{Code: 1, Vals: []conn.Value{{Int: 1}, {}, {}}}
		q := b.only(luascript.GroupAcquire, "")
		time.Sleep(time.Millisecond)
		core.Moved()
		b.tell(q, granted, nil)
		g.waits(t, "the group, whose locks nobody has granted who is the master now")
		if n := len(core.Held()); n > 0 {
			t.Errorf("%d holds", n)
		}
		b.tell(b.only(luascript.GroupAcquire, ""), granted, nil)
		g.has(t, "the group")
		done := make(chan *held.Releasing, 1)
		held.Release(t.Context(), holds, done)
		for qs := b.of(luascript.GroupRelease, ""); len(qs) > 0; qs = b.of(luascript.GroupRelease, "") {
			b.tell(qs[0], conn.Reply{Code: 1, Vals: []conn.Value{{Int: 1}, {}, {Int: 1}, {}}}, nil)
		}
		<-done
	})
}

// What was asked of the old server for longer than its last write that the new one has is
// asked of that one, too: else it would free the lock while the holder counts on it.
func TestLongLeasesAreAskedForAgainAfterAMove(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, core := newFake(t, leaseTime)
		fixed := take(t, t.Context(), core, "fixed", lock.WithLease(time.Hour))
		longer := take(t, t.Context(), core, "longer")
		if err := longer.Extend(t.Context(), time.Hour); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		f.mu.Lock()
		for _, k := range f.keys {
			k.ends = time.Now().Add(leaseTime / 2)
		}
		f.mu.Unlock()
		core.Moved()
		synctest.Wait()
		f.mu.Lock()
		for name, h := range map[string]lock.Hold{"fixed": fixed, "longer": longer} {
			if early := h.ValidUntil().Sub(f.keys[name].ends); early > 0 {
				t.Errorf("%s: the server frees it %v before its holder's deadline", name, early)
			}
			if late := f.keys[name].ends.Sub(h.ValidUntil()); late > time.Hour/50 {
				t.Errorf("%s: it lasts for %v after its holder's deadline", name, late)
			}
		}
		f.mu.Unlock()
	})
}

// An Extend that the old server answered does not count: the new one is asked.
func TestExtendUnderWayAtAMoveAsksTheNewServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, core := newFake(t, leaseTime)
		h := take(t, t.Context(), core, "l", lock.WithLease(leaseTime))
		f.latency = 100 * time.Millisecond
		old := time.Now().Add(leaseTime)
		time.AfterFunc(f.latency*3/2, func() {
			f.mu.Lock()
			f.keys["l"].ends = old
			f.mu.Unlock()
			core.Moved()
		})
		if err := h.Extend(t.Context(), time.Hour); err != nil {
			t.Fatal(err)
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		if early := h.ValidUntil().Sub(f.keys["l"].ends); early > 0 {
			t.Errorf("the server frees it %v before its holder's deadline", early)
		}
	})
}

// An Extend that is refused since its hold has been unlocked asks for nothing, so nothing of it
// may be asked of the server that takes over.
func TestExtendOfAnUnlockedHoldAsksForNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, core := newFake(t, leaseTime)
		outer := take(t, t.Context(), core, "l")
		inner := take(t, outer.Context(), core, "l")
		if err := inner.Unlock(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := inner.Extend(t.Context(), time.Hour); !errors.Is(err, lock.ErrNotHeld) {
			t.Fatal("Extend after Unlock:", err)
		}
		time.Sleep(time.Second)
		core.Moved()
		synctest.Wait()
		f.mu.Lock()
		left := time.Until(f.keys["l"].ends)
		f.mu.Unlock()
		if left > leaseTime {
			t.Errorf("the lock stays for %v if its holder dies now, want at most the LeaseTime of %v", left, leaseTime)
		}
		if err := outer.Unlock(t.Context()); err != nil {
			t.Error(err)
		}

		outer = take(t, t.Context(), core, "l", lock.WithLease(leaseTime))
		inner = take(t, outer.Context(), core, "l", lock.WithLease(leaseTime))
		if err := inner.Unlock(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := inner.Extend(t.Context(), time.Hour); !errors.Is(err, lock.ErrNotHeld) {
			t.Fatal("Extend after Unlock:", err)
		}
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
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f, core := newFake(t, leaseTime)
				h := take(t, t.Context(), core, "l", opts...)
				work := h.Context()
				if err := h.Extend(t.Context(), time.Hour); err != nil {
					t.Fatal(err)
				}
				f.mu.Lock()
				f.keys["l"].ends = time.Now().Add(leaseTime) // what it had before
				f.mu.Unlock()
				time.Sleep(leaseTime - time.Second)
				checks := len(f.scripts("renew"))
				f.onBefore(func(conn.Command) error { return errUnsent }) // and now the line is cut
				time.Sleep(2 * leaseTime)
				f.mu.Lock()
				k := f.find("l")
				f.mu.Unlock()
				if k == nil && work.Err() == nil {
					t.Errorf("%d checks found it held; the server has freed the lock, and the holder believes in it for another %v",
						checks, time.Until(h.ValidUntil()))
				}
				f.onBefore(nil)
				_ = h.Unlock(context.Background())
			})
		})
	}
}
