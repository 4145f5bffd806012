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
	"github.com/redlatch/redlatch/internal/inspect"
	"github.com/redlatch/redlatch/internal/luascript"
	"github.com/redlatch/redlatch/lock"
	"github.com/redlatch/redlatch/rwlock"
)

// openRW is what Client.ReadWriteLock does.
func openRW(core *engine.Core, name string, opts ...lock.Option) *rwlock.ReadWriteLock {
	l := new(rwlock.ReadWriteLock)
	engine.Open(l.ReadLock(), core, name, opts...)
	engine.Open(l.WriteLock(), core, name, opts...)
	return l
}

// Readers that share a hold, in the order in which the test gives the answers.

func sharing(core *engine.Core, opts ...lock.Option) *rwlock.ReadWriteLock {
	return openRW(core, "n", append(opts, rwlock.ShareReads())...)
}

// reads begins to read for an owner.
func reads(l *rwlock.ReadWriteLock, owner string, opts ...lock.AcquireOption) *got {
	return start(func() (lock.Hold, error) {
		return l.ReadLock().Lock(held.WithOwner(context.Background(), owner), opts...)
	})
}

// writes begins to write for an owner.
func writes(l *rwlock.ReadWriteLock, owner string) *got {
	return start(func() (lock.Hold, error) {
		return l.WriteLock().Lock(held.WithOwner(context.Background(), owner))
	})
}

// readsNoMore unlocks, of several readers with one session each.
func (b *byHand) readsNoMore(holds ...*got) {
	b.t.Helper()
	for _, g := range holds {
		gone := unlocks(g.has(b.t, "a reader"))
		b.tell(b.only(luascript.RWReadRelease, ""), code1(1), nil)
		gone.has(b.t, "the unlock")
	}
}

// A reader that follows is not brought in while another command of its owner's is under way:
// the owner would have two sessions, and forget the first of them with the end of the other.
func TestShareLeavesOutWhoseOwnerAsks(t *testing.T) {
	onByHand(t, func(t *testing.T, b *byHand, core *engine.Core) {
		l := sharing(core)
		leader := reads(l, "a")
		lead := b.only(luascript.RWRead, "g=a-")
		follows := reads(l, "b")
		fixed := reads(l, "b", lock.WithLease(10*time.Second))
		own := b.only(luascript.RWRead, "g=b-")

		b.tell(lead, code1(1), nil)
		leader.has(t, "the leader")
		follows.waits(t, "the reader whose owner asks")
		b.tell(own, code1(1), nil)
		second := fixed.has(t, "the owner's other reader")
		b.tell(b.only(luascript.RWReenter, "g=b-"), code1(1), nil)
		follows.has(t, "the reader that re-enters")

		gone := unlocks(second)
		b.tell(b.only(luascript.Release, "g=b-"), code1(1), nil)
		gone.has(t, "the unlock")
		_, err := l.WriteLock().TryLock(held.WithOwner(t.Context(), "b"), 0, 0)
		if !errors.Is(err, lock.ErrUpgrade) {
			t.Errorf("an owner that reads asks to write: %v", err)
		}
		b.readsNoMore(follows, leader)
	})
}

// A reader that came behind a writer of its process, after the command of the reader that it
// follows had been sent, stands back for that writer: the answer knows nothing of it.
func TestShareFirstAttemptLeavesOutWhoCameBehindAWriter(t *testing.T) {
	onByHand(t, func(t *testing.T, b *byHand, core *engine.Core) {
		l := sharing(core)
		leader := reads(l, "a")
		lead := b.only(luascript.RWRead, "g=a-")
		early := reads(l, "early")
		writer := writes(l, "w")
		b.tellEach(luascript.RWWrite, "g=w-", busyRW(0)) // once more when it listens
		late := reads(l, "late")

		b.tell(lead, code1(1), nil)
		leader.has(t, "the leader")
		early.has(t, "the reader that came before the writer")
		late.waits(t, "the reader that came behind the writer")
		b.tell(b.only(luascript.RWRead, "g=late-"), busyRW(1), nil)
		late.waits(t, "the reader that came behind the writer")
		writer.waits(t, "the writer")
	})
}

// After a ForceUnlock of its own client nobody is brought in by what an older command got: each
// asks for itself, and at the same time.
func TestShareBringsNobodyInAfterForceUnlock(t *testing.T) {
	onByHand(t, func(t *testing.T, b *byHand, core *engine.Core) {
		l := sharing(core)
		leader := reads(l, "a")
		lead := b.only(luascript.RWRead, "g=a-")
		x, y := reads(l, "x"), reads(l, "y")
		forced := start(func() (lock.Hold, error) {
			_, err := l.ReadLock().ForceUnlock(t.Context())
			return nil, err
		})
		force := b.only(luascript.ForceAny, "")
		b.tell(lead, code1(1), nil)
		leader.has(t, "the leader")
		x.waits(t, "a reader of the line")
		y.waits(t, "a reader of the line")
		qx, qy := b.only(luascript.RWRead, "g=x-"), b.only(luascript.RWRead, "g=y-")
		b.tell(force, code1(0), nil)
		forced.has(t, "the operator")
		b.tell(qx, code1(1), nil)
		x.has(t, "the one")
		y.waits(t, "the other")
		b.tell(qy, code1(1), nil)
		y.has(t, "the other")
		b.readsNoMore(leader, x, y)
	})
}

// Who was kept from looking for a reader to share with, by another command of its owner's, joins
// no session after its tenure: it may be long gone on the server.
func TestShareEndsWithTheTenureAlsoForWhoCameBefore(t *testing.T) {
	onByHand(t, func(t *testing.T, b *byHand, core *engine.Core) {
		l := sharing(core)
		leader := reads(l, "a")
		lead := b.only(luascript.RWRead, "g=a-")
		follows := reads(l, "b")
		ctx, cancel := context.WithCancel(held.WithOwner(t.Context(), "b"))
		fixed := start(func() (lock.Hold, error) { return l.ReadLock().Lock(ctx, lock.WithLease(10*time.Second)) })
		own := b.only(luascript.RWRead, "g=b-")
		b.tell(lead, code1(1), nil)
		leader.has(t, "the leader")
		cancel()
		synctest.Wait()
		if !fixed.over || fixed.err == nil {
			t.Fatal("not cancelled")
		}
		time.Sleep(time.Second) // of the tenure's 10 ms; another process forces the lock open, and writes
		b.tell(own, busyRW(0), nil)
		b.tell(b.only(luascript.RWReadRelease, "g=b-"), code1(0), nil) // its place
		follows.waits(t, "a reader that comes to look after the tenure")
		b.tell(b.only(luascript.RWRead, "g=b-"), code1(1), nil)
		b.readsNoMore(leader, follows)
	})
}

// A TryLock that can't wait is not kept by others of its kind whose commands fail.
func TestShareOnceAllAskAfterAFailure(t *testing.T) {
	onByHand(t, func(t *testing.T, b *byHand, core *engine.Core) {
		l := sharing(core)
		once := func(owner string) *got {
			return start(func() (lock.Hold, error) {
				return l.ReadLock().TryLock(held.WithOwner(context.Background(), owner), 0, 0)
			})
		}
		lead, x, y := once("a"), once("x"), once("y")
		b.tell(b.only(luascript.RWRead, "g=a-"), conn.Reply{}, errLoading)
		if !lead.over || !errors.Is(lead.err, lock.ErrUnavailable) {
			t.Error("the leader:", lead.err)
		}
		for _, q := range []*question{b.only(luascript.RWRead, "g=x-"), b.only(luascript.RWRead, "g=y-")} {
			b.tell(q, conn.Reply{}, errLoading)
		}
		if !x.over || !y.over {
			t.Error("still under way")
		}
	})
}

// Two readers of a shared hold that unlock at the same time, after something happened that makes
// each of them ask the server: when both are told, nothing is left there.
func TestShareLastUnlocksTogetherAfterABreak(t *testing.T) {
	onByHand(t, func(t *testing.T, b *byHand, core *engine.Core) {
		l := sharing(core)
		leader := reads(l, "a")
		b.tell(b.only(luascript.RWRead, "g=a-"), code1(1), nil)
		x := reads(l, "x").has(t, "who joins")
		over := core.Doubt("n")
		over(true, inspect.Evicted{})

		one, two := unlocks(leader.has(t, "the leader")), unlocks(x)
		for _, q := range b.of(luascript.Release, "g=a-") {
			b.tell(q, code1(1), nil)
		}
		last := b.only(luascript.RWReadRelease, "g=a-")
		if one.over && two.over {
			t.Error("both have unlocked while the lock is still to be freed")
		}
		b.tell(last, code1(1), nil)
		one.has(t, "the first unlock")
		two.has(t, "the second unlock")
	})
}

// Readers that pass waiting writers share beside a writer of their process, too: they would
// enter one by one otherwise, each after the answer to the one before it.
func TestShareOfReadersThatPassWriters(t *testing.T) {
	onByHand(t, func(t *testing.T, b *byHand, core *engine.Core) {
		l := sharing(core, rwlock.PreferReaders())
		writer := writes(l, "w")
		b.tellEach(luascript.RWWrite, "g=w-", busyRW(0))
		leader, x, y := reads(l, "a"), reads(l, "x"), reads(l, "y")
		b.tell(b.only(luascript.RWRead, ""), code1(1), nil)
		for _, g := range []*got{leader, x, y, reads(l, "z")} {
			g.has(t, "a reader that passes writers")
		}
		writer.waits(t, "the writer")
	})
}

// The place of a waiter that asked for a short lease outlives that lease: if the server refuses
// for the moment to take it back, it is tried again for as long as the place lives.
func TestPlaceOfAShortLeaseIsTakenBack(t *testing.T) {
	onByHand(t, func(t *testing.T, b *byHand, core *engine.Core) {
		l := openRW(core, "n")
		short := start(func() (lock.Hold, error) {
			return l.ReadLock().TryLock(t.Context(), 500*time.Millisecond, 5*time.Millisecond)
		})
		b.tellEach(luascript.RWRead, "", busyRW(0))
		for began := time.Now(); time.Since(began) < 4*time.Second; time.Sleep(time.Second) {
			for _, q := range b.of(luascript.RWReadRelease, "") {
				b.tell(q, conn.Reply{}, errLoading)
			}
		}
		if !short.over || !errors.Is(short.err, lock.ErrNotAcquired) {
			t.Error(short.err)
		}
		b.tell(b.only(luascript.RWReadRelease, ""), code1(0), nil)
	})
}
