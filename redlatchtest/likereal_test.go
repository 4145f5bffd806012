package redlatchtest_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlatch/redlatch"
)

// Parts of TestLockerBehavesAsARealLock.

// ownership is about who gets the lock, who is refused and how, and who enters again.
func ownership(t *testing.T, l redlatch.Locker, check func(string, bool)) {
	t.Helper()
	ctx := t.Context()
	refused := func(step string, ctx context.Context, wait, lease time.Duration, want ...error) {
		t.Helper()
		_, err := l.TryLock(ctx, wait, lease)
		for _, w := range want {
			check(fmt.Sprintf("%s: %v", step, err), errors.Is(err, w))
		}
	}
	const long = time.Minute
	h := mustLock(t, ctx, l)
	check("name", h.Name() == "a")
	check("token", h.Token() > 0)
	check("valid", time.Until(h.ValidUntil()) > 0)
	nested := mustLock(t, h.Context(), l)
	check("a nested hold has the same token", nested.Token() == h.Token())
	check("a nested unlock", nested.Unlock(ctx) == nil)
	check("a nested hold's context after unlock", errors.Is(nested.Context().Err(), context.Canceled) &&
		errors.Is(context.Cause(nested.Context()), redlatch.ErrUnlocked))
	check("the outer context lives", h.Context().Err() == nil)

	_, err := l.TryLock(ctx, 0, 0)
	var busy *redlatch.NotAcquiredError
	check("busy", errors.As(err, &busy) && busy.Holder != "" && busy.Own && busy.Remaining > 0 && busy.Err == nil)
	began := time.Now()
	refused("busy for the wait", ctx, time.Second, 0, redlatch.ErrNotAcquired)
	check("the wait", time.Since(began) == time.Second)
	short, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	refused("ctx ended", short, long, 0, redlatch.ErrNotAcquired, context.DeadlineExceeded)
	told, tell := context.WithCancelCause(ctx)
	over := errors.New("the request is over")
	time.AfterFunc(time.Second, func() { tell(over) })
	for _, step := range []string{"ctx ended with a cause", "a ctx that has ended"} {
		_, err = l.Lock(told)
		check(step, errors.Is(err, redlatch.ErrNotAcquired) && errors.Is(err, context.Canceled) && errors.Is(err, over))
	}
	refused("negative wait", ctx, -1, 0, redlatch.ErrInvalidOption)
	refused("negative lease", ctx, 0, -1, redlatch.ErrInvalidOption)
	refused("a lease below a millisecond", ctx, 0, time.Microsecond, redlatch.ErrInvalidOption)
	_, err = l.Lock(ctx, redlatch.WithLease(-1))
	check("negative lease", errors.Is(err, redlatch.ErrInvalidOption))
	check("extend by less than a millisecond", errors.Is(h.Extend(ctx, time.Microsecond), redlatch.ErrInvalidOption))
	check("extend by nothing", errors.Is(h.Extend(ctx, 0), redlatch.ErrInvalidOption))
	ended, end := context.WithCancel(ctx)
	end()
	check("extend with an ended ctx", errors.Is(h.Extend(ended, time.Hour), context.Canceled))
	check("extend", h.Extend(ctx, time.Hour) == nil)

	got := make(chan redlatch.Hold)
	go func() { got <- mustLock(t, ctx, l) }()
	synctest.Wait()
	check("unlock", h.Unlock(ctx) == nil)
	next := <-got
	check("the next token is larger", next.Token() > h.Token())
	check("a second unlock", errors.Is(h.Unlock(ctx), redlatch.ErrNotHeld))
	check("extend after unlock", errors.Is(h.Extend(ctx, time.Second), redlatch.ErrNotHeld))
	check("unlock of the next", next.Unlock(ctx) == nil)

	// An explicit owner re-enters from anywhere; NewOwner makes another one.
	job := redlatch.WithOwner(ctx, "job 17")
	h = mustLock(t, job, l)
	again, err := l.TryLock(job, 0, 0)
	check("the same explicit owner", err == nil && again.Unlock(ctx) == nil)
	again, err = l.TryLock(h.Context(), 0, 0)
	check("the explicit owner by the hold's context", err == nil && again.Unlock(ctx) == nil)
	refused("another explicit owner", redlatch.WithOwner(ctx, "job 18"), 0, 0, redlatch.ErrNotAcquired)
	refused("a new owner", redlatch.NewOwner(h.Context()), 0, 0, redlatch.ErrNotAcquired)
	check("the explicit owner's unlock", h.Unlock(ctx) == nil)
	_, err = l.Lock(redlatch.WithOwner(ctx, ""))
	check("an owner without an id", errors.Is(err, redlatch.ErrInvalidOption))

	// An owner means something only while one of its holds lives.
	h = mustLock(t, ctx, l)
	gone := context.WithoutCancel(h.Context())
	check("its unlock", h.Unlock(ctx) == nil)
	h = mustLock(t, gone, l)
	refused("the owner that was", gone, 0, 0, redlatch.ErrNotAcquired)
	check("the next owner's unlock", h.Unlock(ctx) == nil)

	// The ctx of the acquisition ends the hold's, not the hold.
	request, done := context.WithCancel(ctx)
	h = mustLock(t, request, l)
	done()
	<-h.Context().Done()
	refused("held after its request", ctx, 0, 0, redlatch.ErrNotAcquired)
	check("unlock with a cancelled ctx", h.Unlock(request) == nil)
}

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
	_, err := l.Lock(h.Context())
	check("another lock in the lost section", errors.Is(err, redlatch.ErrNotAcquired) && errors.Is(err, redlatch.ErrLeaseLost))
	gone, is := errors.AsType[*redlatch.LeaseLostError](h.Unlock(ctx))
	check("unlock after the lease", is && gone.Name == "a" && gone.Owner != "" && gone.Reason == "expired")
	check("a second unlock after the lease", errors.Is(h.Unlock(ctx), redlatch.ErrNotHeld))
	passes(t, l)

	h = mustLock(t, ctx, l)
	check("lose", lose())
	<-h.Context().Done() // the real one may have been renewed meanwhile, in vain
	stays(h, "a loss", func() {})
	check("unlock", errors.Is(h.Unlock(ctx), redlatch.ErrLeaseLost))
	stays(h, "its Unlock", func() {})
}

// losses is about a lock that is lost: all holds of its owner end, whose context is nobody's any more.
func losses(t *testing.T, l redlatch.Locker, lose func() bool, check func(string, bool)) {
	t.Helper()
	ctx := t.Context()
	check("a free lock can't be lost", !lose())
	h := mustLock(t, ctx, l)
	nested := mustLock(t, h.Context(), l)
	check("lose", lose())
	for _, h := range []redlatch.Hold{h, nested} {
		<-h.Context().Done()
		gone, is := errors.AsType[*redlatch.LeaseLostError](context.Cause(h.Context()))
		check("the cause of a lost hold's end", is && gone.Reason == "gone")
		check("unlock of a lost hold", errors.Is(h.Unlock(ctx), redlatch.ErrLeaseLost))
	}
	next := mustLock(t, ctx, l)
	_, err := l.TryLock(context.WithoutCancel(h.Context()), 0, 0)
	check("the lost owner", errors.Is(err, redlatch.ErrNotAcquired))
	check("unlock of the next", next.Unlock(ctx) == nil)
}

// waitsInAnOutage is about acquisitions while the server is away: nobody knows whether the lock is free, and a Lock,
// also one that re-enters, goes on when it is back.
func waitsInAnOutage(t *testing.T, l redlatch.Locker, away func(bool), check func(string, bool)) {
	t.Helper()
	unavailable := func(err error) bool {
		return errors.Is(err, redlatch.ErrUnavailable) && !errors.Is(err, redlatch.ErrNotAcquired)
	}
	h := mustLock(t, t.Context(), l)
	away(true)
	_, err := l.TryLock(t.Context(), outage, 0)
	check("a wait in an outage", unavailable(err))
	ctx, cancel := context.WithTimeout(t.Context(), outage)
	defer cancel()
	_, err = l.Lock(ctx)
	check("a ctx that ends in an outage", unavailable(err) && errors.Is(err, context.DeadlineExceeded))
	check("extend in an outage", errors.Is(h.Extend(t.Context(), time.Hour), redlatch.ErrUnavailable))
	got := make(chan redlatch.Hold, 1)
	go func() { got <- mustLock(t, h.Context(), l) }()
	time.Sleep(time.Second) // it has tried
	check("a re-entry waits", len(got) == 0)
	away(false)
	mustUnlock(t, <-got, h)
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
