package integration

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/luascript"
)

// TryLock of a busy lock says at once who holds it and for how long, and that it is nothing else.
func TestRLockTryLock(t *testing.T) {
	t.Parallel()
	s := rlServer(t)
	c := rlClient(t, s.Addr())
	l := c.RLock("l")
	h, err := l.TryLock(t.Context(), 0, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	if h.Name() != "l" || h.Token() != 0 {
		t.Errorf("name %q, token %d", h.Name(), h.Token())
	}
	if left := time.Until(h.ValidUntil()); left < 55*time.Second || left > time.Minute {
		t.Errorf("valid for %v", left)
	}

	// Busy: who holds it, and for how long; ErrNotAcquired and nothing else.
	began := time.Now()
	_, err = l.TryLock(t.Context(), 0, 0)
	var busy *redlatch.NotAcquiredError
	if !errors.As(err, &busy) || !errors.Is(err, redlatch.ErrNotAcquired) {
		t.Fatalf("TryLock on a busy lock: %v", err)
	}
	rlNoWant(t, err, context.Canceled, context.DeadlineExceeded, redlatch.ErrUnavailable)
	if busy.Name != "l" || busy.Err != nil || !strings.HasPrefix(busy.Holder, c.ID()+":g") {
		t.Errorf("details %+v", busy)
	}
	if busy.Remaining < 50*time.Second || busy.Remaining > time.Minute {
		t.Errorf("remaining %v", busy.Remaining)
	}
	if took := time.Since(began); took > 4*time.Second { // less than UnlockTimeout
		t.Errorf("one attempt took %v", took)
	}
	if n := rlSubscriptions(t, s, "l"); n != 0 {
		t.Errorf("a TryLock without a wait has subscribed")
	}

	// A wait is used up, and not much exceeded. Within it even a busy server says who holds the lock.
	const wait = 3 * time.Second
	began = time.Now()
	_, err = l.TryLock(t.Context(), wait, 0)
	rlWant(t, err, redlatch.ErrNotAcquired)
	if took := time.Since(began); took < wait || took > wait+4*time.Second {
		t.Errorf("a wait of %v took %v", wait, took)
	}
	if !errors.As(err, &busy) || busy.Remaining <= 0 || busy.Holder == "" {
		t.Errorf("details %+v", busy)
	}

	// Within the wait it is taken as soon as it is free.
	got := make(chan rlAttempt, 1)
	go func() {
		h, err := l.TryLock(context.Background(), time.Minute, 0)
		got <- rlAttempt{hold: h, err: err}
	}()
	rlSubscribed(t, s, "l", 1)
	rlUnlock(t, h)
	r := rlGet(t, got)
	if r.err != nil {
		t.Fatal(r.err)
	}
	rlUnlock(t, r.hold)

	for _, bad := range [][2]time.Duration{{-1, 0}, {0, -1}, {0, time.Microsecond}} {
		_, err := l.TryLock(t.Context(), bad[0], bad[1])
		rlWant(t, err, redlatch.ErrInvalidOption)
	}
	_, err = l.Lock(t.Context(), redlatch.WithLease(-time.Second))
	rlWant(t, err, redlatch.ErrInvalidOption)
}

// The error of a wait that ctx ended is ErrNotAcquired and ctx's error, with the cause.
func TestRLockErrorWhenTheContextEnds(t *testing.T) {
	t.Parallel()
	s := rlServer(t)
	l := rlClient(t, s.Addr()).RLock("l")
	h := rlLock(t, t.Context(), l)
	defer rlUnlock(t, h)

	// At its end every question has its answer, also from a busy server: a second without one is an outage.
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	_, err := l.Lock(ctx)
	rlWant(t, err, redlatch.ErrNotAcquired)
	rlWant(t, err, context.DeadlineExceeded)
	rlNoWant(t, err, redlatch.ErrUnavailable, redlatch.ErrClosed)

	reason := errors.New("the user has gone")
	ctx2, cancel2 := context.WithCancelCause(t.Context())
	got := rlAsync(ctx2, l)
	rlSubscribed(t, s, "l", 1)
	cancel2(reason)
	r := rlGet(t, got)
	rlWant(t, r.err, redlatch.ErrNotAcquired)
	rlWant(t, r.err, context.Canceled)
	rlWant(t, r.err, reason)

	// A context that had ended before.
	_, err = l.Lock(ctx2)
	rlWant(t, err, redlatch.ErrNotAcquired)
	rlWant(t, err, context.Canceled)
	_, err = l.TryLock(ctx2, 0, 0)
	rlWant(t, err, context.Canceled)
}

// A wait without a deadline is not cut at the holder's lease or anywhere else.
func TestRLockWaitsBeyondTheHoldersLease(t *testing.T) {
	t.Parallel()
	s := rlServer(t)
	c := rlClient(t, s.Addr(), rlLease(5*time.Second))
	h := rlLock(t, t.Context(), c.RLock("l"))
	got := rlAsync(t.Context(), c.RLock("l"))
	time.Sleep(11 * time.Second) // more than two leases
	rlBlocked(t, got)
	rlUnlock(t, h)
	r := rlGet(t, got)
	if r.err != nil {
		t.Fatal(r.err)
	}
	rlUnlock(t, r.hold)
}

// The end of the context given to Lock ends the hold's context, never the hold;
// Unlock with that ended context works.
func TestRLockHoldOutlivesItsRequest(t *testing.T) {
	t.Parallel()
	s := rlServer(t)
	c := rlClient(t, s.Addr(), rlLease(5*time.Second))
	ctx, cancel := context.WithCancel(t.Context())
	h := rlLock(t, ctx, c.RLock("l"))
	cancel()
	rlEnded(t, h, context.Canceled)
	for end := time.Now().Add(11 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if s.Int(t, "EXISTS", "l") != 1 {
			t.Fatal("the lock was given away under a running section")
		}
	}
	if err := h.Unlock(ctx); err != nil {
		t.Fatal(err)
	}
	if s.Int(t, "EXISTS", "l") != 0 {
		t.Fatal("Unlock with an ended context left the key")
	}
}

// The deadline for waiting is not one for holding.
func TestRLockWaitDeadlineDoesNotEndTheHold(t *testing.T) {
	t.Parallel()
	s := rlServer(t)
	h, err := rlClient(t, s.Addr()).RLock("l").TryLock(t.Context(), 3*time.Second, 0)
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(3200 * time.Millisecond)
	rlAlive(t, h)
	rlUnlock(t, h)
}

// Do unlocks whatever becomes of its function, also when that panics, and passes on what it
// returned.
func TestRLockDo(t *testing.T) {
	s := rlServer(t)
	l := rlClient(t, s.Addr()).RLock("l")
	free := func() {
		t.Helper()
		if s.Int(t, "EXISTS", "l") != 0 {
			t.Fatal("still locked")
		}
	}
	boom := errors.New("boom")
	err := l.Do(t.Context(), func(ctx context.Context) error {
		if s.Int(t, "EXISTS", "l") != 1 {
			t.Error("not locked")
		}
		return l.Do(ctx, func(context.Context) error { return boom }) // re-enters
	})
	rlWant(t, err, boom)
	free()

	func() {
		defer func() {
			if recover() == nil {
				t.Error("the panic was swallowed")
			}
		}()
		_ = l.Do(t.Context(), func(context.Context) error { panic("at the disco") })
	}()
	free()

	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = l.Do(context.Background(), func(context.Context) error { runtime.Goexit(); return nil })
	}()
	<-done
	free()

	// Both errors: the section's and the loss.
	err = redlatch.Do(t.Context(), l, func(ctx context.Context) error {
		<-ctx.Done()
		return boom
	}, redlatch.WithLease(100*time.Millisecond))
	rlWant(t, err, boom)
	rlWant(t, err, redlatch.ErrLeaseLost)
	rlUntil(t, "end of the lease", func() bool { return s.Int(t, "EXISTS", "l") == 0 })

	err = l.Do(t.Context(), func(context.Context) error { return nil }, redlatch.WithLease(-1))
	rlWant(t, err, redlatch.ErrInvalidOption)
}

// An uncontended Lock + Unlock is two commands, one round trip each, and no
// subscription.
func TestRLockUncontendedCostsTwoCommands(t *testing.T) {
	s := rlServer(t)
	rlLoad(t, s)
	c := rlClient(t, s.Addr())
	for name, l := range map[string]redlatch.Locker{
		"plain": c.RLock("l"), "fenced": c.RLock("f", redlatch.Fenced()),
	} {
		const rounds = 50
		before := s.CommandStats(t)
		goroutines := runtime.NumGoroutine()
		for range rounds {
			h := rlLock(t, context.Background(), l)
			rlUnlock(t, h)
		}
		calls := s.CommandStats(t).Sub(before).Calls
		if calls["evalsha"] != 2*rounds {
			t.Errorf("%s: %d scripts for %d pairs", name, calls["evalsha"], rounds)
		}
		for _, not := range []string{"eval", "subscribe", "ssubscribe", "wait", "multi", "script|load"} {
			if calls[not] != 0 {
				t.Errorf("%s: %d × %s", name, calls[not], not)
			}
		}
		if calls["publish"] != rounds {
			t.Errorf("%s: %d messages", name, calls["publish"])
		}
		if n := runtime.NumGoroutine(); n > goroutines+3 {
			t.Errorf("%s: %d goroutines, %d before", name, n, goroutines)
		}
	}
}

// State says who holds the lock and for how long; ForceUnlock frees it, lets in who waits, and its
// holder hears of it.
func TestRLockStateAndForceUnlock(t *testing.T) {
	s := rlServer(t)
	c := rlClient(t, s.Addr(), rlLease(5*time.Second))
	l := c.RLock("l")
	st, err := l.State(t.Context())
	if err != nil || st.Held || st.Mode != redlatch.ModeNone || len(st.Owners) != 0 || st.Name != "l" {
		t.Fatalf("State of a free lock %+v, %v", st, err)
	}
	if was, err := l.ForceUnlock(t.Context()); was || err != nil {
		t.Fatalf("ForceUnlock of a free lock: %v, %v", was, err)
	}
	h := rlLock(t, t.Context(), l, redlatch.WithLease(time.Minute))
	st, err = l.State(t.Context())
	if err != nil || !st.Held || st.Remaining < 50*time.Second || st.Remaining > time.Minute ||
		len(st.Owners) != 1 || !strings.HasPrefix(st.Owners[0].Owner, c.ID()+":") || st.Owners[0].Count != 1 {
		t.Fatalf("State %+v, %v", st, err)
	}
	// Forced: a waiter goes on at once, the holder hears at its next check.
	got := rlAsync(t.Context(), l)
	rlSubscribed(t, s, "l", 1)
	if was, err := l.ForceUnlock(t.Context()); !was || err != nil {
		t.Fatalf("ForceUnlock: %v, %v", was, err)
	}
	r := rlGet(t, got)
	if r.err != nil {
		t.Fatal(r.err)
	}
	rlEnded(t, h, redlatch.ErrLeaseLost)
	rlWant(t, h.Unlock(t.Context()), redlatch.ErrLeaseLost)
	if rlCount(t, s, "l") != 1 {
		t.Error("the late Unlock touched the successor")
	}
	rlUnlock(t, r.hold)
}

// An operator's call with a wrong name costs no application data.
func TestRLockOperatorsCallsSpareForeignKeys(t *testing.T) {
	s := rlServer(t)
	c := rlClient(t, s.Addr())
	s.Do(t, "SET", "text", "v")
	s.Do(t, "HSET", "user", "name", "x")
	s.Do(t, "HSET", "numbers", "a", "1")
	s.Do(t, "HSET", "two", "a", "1", "b", "2")
	s.Do(t, "LPUSH", "list", "v")
	for _, name := range []string{"text", "user", "numbers", "two", "list"} {
		was, err := c.RLock(name).ForceUnlock(t.Context())
		if was || !errors.Is(err, redlatch.ErrInvalidName) {
			t.Errorf("ForceUnlock(%s): %v, %v", name, was, err)
		}
		if s.Int(t, "EXISTS", name) != 1 {
			t.Errorf("%s is gone", name)
		}
	}
	for _, name := range []string{"text", "list", "user"} {
		if _, err := c.RLock(name).State(t.Context()); !errors.Is(err, redlatch.ErrInvalidName) {
			t.Errorf("State(%s): %v", name, err)
		}
	}
	s.Do(t, "DEL", "text", "user", "numbers", "two", "list")
}

// Prefix and NameMapper make the key, and a Hold is called what its caller called the lock.
func TestRLockPrefixAndMapper(t *testing.T) {
	s := rlServer(t)
	c := rlClient(t, s.Addr(), func(c *redlatch.Config) {
		c.Prefix = "app:"
		c.NameMapper = func(name string) string {
			if name == "none" {
				return ""
			}
			return strings.ToLower(name)
		}
	})
	h := rlLock(t, t.Context(), c.RLock("Orders"))
	if h.Name() != "Orders" {
		t.Errorf("name %q", h.Name())
	}
	if rlCount(t, s, "app:orders") != 1 {
		t.Errorf("keys %v", s.List(t, "KEYS", "*"))
	}
	again := rlLock(t, h.Context(), c.RLock("ORDERS")) // one key, one lock
	rlUnlock(t, again)
	rlUnlock(t, h)
	_, err := c.RLock("none").Lock(t.Context())
	rlWant(t, err, redlatch.ErrInvalidName)
}

// The remaining lease is that of the latest-ending live hold: re-entry neither
// shortens it nor adds up, and an inner unlock takes back what it had raised.
func TestRLockLeaseOfNestedHolds(t *testing.T) {
	s := rlServer(t)
	c := rlClient(t, s.Addr(), rlLease(20*time.Second))
	l := c.RLock("l")
	ttl := func(low, high time.Duration) {
		t.Helper()
		got := time.Duration(s.Int(t, "PTTL", "l")) * time.Millisecond
		if got < low-5*time.Second || got > high {
			t.Fatalf("remaining lease %v, want %v", got, high)
		}
	}
	check := func(d time.Duration) { t.Helper(); ttl(d, d) }
	h1 := rlLock(t, t.Context(), l, redlatch.WithLease(time.Minute))
	check(time.Minute)
	h2 := rlLock(t, h1.Context(), l, redlatch.WithLease(10*time.Second))
	check(time.Minute) // not shortened
	h3 := rlLock(t, h1.Context(), l, redlatch.WithLease(5*time.Minute))
	check(5 * time.Minute) // not added up
	if left := time.Until(h1.ValidUntil()); left > time.Minute {
		t.Errorf("the outer fixed lease was extended to %v", left)
	}
	rlUnlock(t, h3)
	check(5 * time.Minute) // nothing takes a lease back but the last unlock
	if left := time.Until(h1.ValidUntil()); left > time.Minute {
		t.Errorf("the outer fixed lease was extended to %v by an inner unlock", left)
	}
	h4 := rlLock(t, h1.Context(), l) // the watchdog's
	rlUnlock(t, h1)
	check(5 * time.Minute)
	if left := time.Until(h4.ValidUntil()); left > time.Minute {
		t.Errorf("the watchdog's hold is valid for %v", left)
	}
	if err := h4.Extend(t.Context(), 10*time.Minute); err != nil {
		t.Fatal(err)
	}
	check(10 * time.Minute)
	rlUnlock(t, h2) // the release of a nested hold keeps what Extend promised
	check(10 * time.Minute)
	if left := time.Until(h4.ValidUntil()); left < 9*time.Minute {
		t.Errorf("the extended hold is valid for %v", left)
	}
	rlUnlock(t, h4)
	rlAbsent(t, s) // the last one frees at once
}

// Extend lengthens a lease on the server and in the hold, and refuses what is no lease.
func TestRLockExtend(t *testing.T) {
	s := rlServer(t)
	c := rlClient(t, s.Addr())
	h := rlLock(t, t.Context(), c.RLock("l"), redlatch.WithLease(5*time.Second))
	if err := h.Extend(t.Context(), time.Minute); err != nil {
		t.Fatal(err)
	}
	if err := h.Extend(t.Context(), 10*time.Millisecond); err != nil { // never shorter
		t.Fatal(err)
	}
	if ttl := s.Int(t, "PTTL", "l"); ttl < 50_000 {
		t.Errorf("remaining %d ms", ttl)
	}
	if left := time.Until(h.ValidUntil()); left < 50*time.Second {
		t.Errorf("valid for %v", left)
	}
	if n := rlCount(t, s, "l"); n != 1 {
		t.Errorf("count %d", n)
	}
	for _, bad := range []time.Duration{0, -1, time.Microsecond} {
		rlWant(t, h.Extend(t.Context(), bad), redlatch.ErrInvalidOption)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	rlWant(t, h.Extend(ctx, time.Minute), context.Canceled)
	rlUnlock(t, h)
	rlWant(t, h.Extend(t.Context(), time.Minute), redlatch.ErrNotHeld)

	gone := rlLock(t, t.Context(), c.RLock("l"))
	s.Do(t, "DEL", "l")
	rlWant(t, gone.Extend(t.Context(), time.Minute), redlatch.ErrLeaseLost)
	rlEnded(t, gone, redlatch.ErrLeaseLost)
	if s.Int(t, "EXISTS", "l") != 0 {
		t.Error("Extend created the key")
	}
	rlWant(t, gone.Unlock(t.Context()), redlatch.ErrLeaseLost)
}

// Every derived key falls into the lock's slot, so that scripts with several
// keys are possible on a cluster.
func TestRLockKeysShareASlot(t *testing.T) {
	for _, name := range []string{"a", "a{b}c", "{x}", "a:b:c"} {
		for _, key := range []string{
			luascript.VoidKey(name), luascript.TokenKey(name), luascript.TraceKey(name), luascript.LockChannel(name),
		} {
			if luascript.Slot(key) != luascript.Slot(name) {
				t.Errorf("%s is in another slot than %s", key, name)
			}
		}
	}
}
