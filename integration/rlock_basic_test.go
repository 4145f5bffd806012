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
