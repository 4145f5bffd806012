package redlatchtest_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
)

// Parts of TestLockerBehavesAsARealLock.

// deadlines is about ValidUntil: renewals and Extend move it forward, and the end of the hold leaves it where it is.
func deadlines(t *testing.T, l redlatch.Locker, lose func() bool, check func(string, bool)) {
	t.Helper()
	ctx := t.Context()
	in := func(h redlatch.Hold, step string, want time.Duration) {
		t.Helper()
		want -= want/100 + 2*time.Millisecond // the margin
		left := time.Until(h.ValidUntil()).Round(time.Millisecond)
		check(fmt.Sprintf("valid %s: %v, want %v", step, left, want), left == want)
	}
	stays := func(h redlatch.Hold, step string, end func()) {
		t.Helper()
		before := h.ValidUntil()
		end()
		check("valid after "+step, h.ValidUntil().Equal(before))
		time.Sleep(2 * time.Minute)
		check("valid long after "+step, h.ValidUntil().Equal(before))
	}
	h := mustLock(t, ctx, l)
	in(h, "at first", 30*time.Second)
	for range 3 {
		time.Sleep(15 * time.Second)
		left := time.Until(h.ValidUntil())
		check(fmt.Sprint("valid while it is renewed: ", left), left > 19*time.Second && left <= 30*time.Second)
	}
	check("extend", h.Extend(ctx, 5*time.Minute) == nil)
	in(h, "after Extend", 5*time.Minute)
	check("extend by less", h.Extend(ctx, time.Minute) == nil)
	in(h, "after Extend by less", 5*time.Minute)
	time.Sleep(6 * time.Minute)
	left := time.Until(h.ValidUntil())
	check(fmt.Sprint("valid when it is renewed again: ", left), left > 19*time.Second && left <= 30*time.Second)
	stays(h, "Unlock", func() { check("unlock", h.Unlock(ctx) == nil) })

	h = mustLock(t, ctx, l, redlatch.WithLease(time.Minute))
	in(h, "of a fixed lease", time.Minute)
	check("extend", h.Extend(ctx, time.Second) == nil)
	in(h, "of a fixed lease after Extend by less", time.Minute)
	check("extend", h.Extend(ctx, 2*time.Minute) == nil)
	in(h, "of a fixed lease after Extend", 2*time.Minute)
	until := h.ValidUntil()
	stays(h, "the lease", func() {
		<-h.Context().Done()
		check("the section ends at ValidUntil", !time.Now().Before(until) && time.Since(until) < 10*time.Millisecond)
	})
	check("unlock", errors.Is(h.Unlock(ctx), redlatch.ErrLeaseLost))

	h = mustLock(t, ctx, l)
	check("lose", lose())
	<-h.Context().Done() // the real one may have been renewed meanwhile, in vain
	stays(h, "a loss", func() {})
	check("unlock", errors.Is(h.Unlock(ctx), redlatch.ErrLeaseLost))
	stays(h, "its Unlock", func() {})
}

// unlocksInAnOutage is about holds that are unlocked while the server is away: that goes on in the background, and
// another Unlock tells what came of it, once.
func unlocksInAnOutage(t *testing.T, l redlatch.Locker, away func(bool), lose func() bool, check func(string, bool)) {
	t.Helper()
	ctx := t.Context()
	const back = 10 * time.Second // the real one tries again now and then
	gone := func(h redlatch.Hold) {
		t.Helper()
		check("unlock in an outage", errors.Is(h.Unlock(ctx), redlatch.ErrUnavailable))
		check("the section's end", errors.Is(context.Cause(h.Context()), redlatch.ErrUnlocked))
	}
	free := func(when string) {
		t.Helper()
		h, err := l.TryLock(ctx, back, 0)
		if check("free "+when, err == nil); err == nil {
			check("unlock of the next", h.Unlock(ctx) == nil)
		}
	}
	h := mustLock(t, ctx, l)
	nested := mustLock(t, h.Context(), l)
	away(true)
	gone(nested)
	gone(h)
	until := h.ValidUntil()
	check("extend in the outage", errors.Is(h.Extend(ctx, time.Hour), redlatch.ErrUnavailable))
	gone(h) // again
	away(false)
	free("after the outage")
	check("valid after the outage", h.ValidUntil().Equal(until))
	for _, h := range []redlatch.Hold{nested, h} {
		check("extend after the outage", errors.Is(h.Extend(ctx, time.Hour), redlatch.ErrNotHeld))
		check("unlock after the outage", h.Unlock(ctx) == nil)
		check("a second unlock after the outage", errors.Is(h.Unlock(ctx), redlatch.ErrNotHeld))
		check("extend after that", errors.Is(h.Extend(ctx, time.Hour), redlatch.ErrNotHeld))
	}

	// One that was not unlocked is held on.
	h = mustLock(t, ctx, l)
	nested = mustLock(t, h.Context(), l)
	away(true)
	gone(nested)
	away(false)
	_, err := l.TryLock(ctx, back, 0)
	check("held after the outage", errors.Is(err, redlatch.ErrNotAcquired) && !errors.Is(err, redlatch.ErrUnavailable) && h.Context().Err() == nil)
	check("its extend", h.Extend(ctx, time.Second) == nil)
	check("its unlock", h.Unlock(ctx) == nil)
	check("the nested one's unlock", nested.Unlock(ctx) == nil)
	free("after both")

	// The lease ends in the outage.
	h = mustLock(t, ctx, l, redlatch.WithLease(20*time.Second))
	away(true)
	gone(h)
	time.Sleep(time.Minute)
	away(false)
	free("after the lease")
	check("unlock after the lease", errors.Is(h.Unlock(ctx), redlatch.ErrUnavailable))
	check("a second unlock after the lease", errors.Is(h.Unlock(ctx), redlatch.ErrNotHeld))

	// The lock is lost in the outage.
	h = mustLock(t, ctx, l)
	away(true)
	gone(h)
	check("lose", lose())
	away(false)
	free("after the loss")
	check("extend after the loss", errors.Is(h.Extend(ctx, time.Hour), redlatch.ErrNotHeld))
	err = h.Unlock(ctx) // nil: the first one's command may have come before the loss, for all that a Client knows
	check(fmt.Sprint("unlock after the loss: ", err), err == nil || errors.Is(err, redlatch.ErrLeaseLost))
	check("a second unlock after the loss", errors.Is(h.Unlock(ctx), redlatch.ErrNotHeld))

	// Nobody can make its owner live on.
	h = mustLock(t, ctx, l)
	owner := context.WithoutCancel(h.Context())
	away(true)
	gone(h)
	away(false)
	next, err := l.TryLock(owner, back, 0)
	if check("the owner's next", err == nil); err != nil {
		return
	}
	_, err = l.TryLock(owner, 0, 0)
	check("the owner that was", errors.Is(err, redlatch.ErrNotAcquired))
	check("the next owner's unlock", next.Unlock(ctx) == nil)
}
