package integration

import (
	"context"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/luascript"
	"github.com/redlatch/redlatch/internal/testbed"
)

// Replies, requests and messages that are lost, late or come twice.

// rlProxied is a server behind a proxy with the scripts loaded, and a client
// that goes through it.
func rlProxied(t *testing.T, change ...func(*redlatch.Config)) (*testbed.Server, *testbed.Proxy, *redlatch.Client) {
	t.Helper()
	s := rlServer(t)
	rlLoad(t, s)
	p := testbed.NewProxy(t, s.Addr())
	return s, p, rlClient(t, p.Addr(), change...)
}

func rlRuns(script *luascript.Script, key string) testbed.Match {
	return testbed.Contains("EVALSHA", script.SHA, key)
}

// An acquisition whose reply is lost is counted once, and has the token that the server gave.
func TestRLockAcquireReplyLost(t *testing.T) {
	t.Parallel()
	for times := 1; times <= 3; times++ {
		s, p, c := rlProxied(t)
		trap := p.DropReply(rlRuns(luascript.Acquire, "l")).Times(times)
		h := rlLock(t, t.Context(), c.RLock("l", redlatch.Fenced()))
		for range times {
			trap.Wait(t)
		}
		if n := rlCount(t, s, "l"); n != 1 {
			t.Fatalf("count %d after %d lost replies", n, times)
		}
		if got := s.Int(t, "GET", luascript.TokenKey("l")); got != int64(h.Token()) {
			t.Errorf("token %d, the counter says %d", h.Token(), got)
		}
		rlUnlock(t, h)
		rlAbsent(t, s)
	}
}

// An acquisition whose request is lost is sent again, and the lost one takes nothing when it
// arrives after the unlock.
func TestRLockAcquireRequestLost(t *testing.T) {
	t.Parallel()
	s, p, c := rlProxied(t)
	trap := p.DropRequest(rlRuns(luascript.Acquire, "l"))
	h := rlLock(t, t.Context(), c.RLock("l"))
	trap.Wait(t)
	if n := rlCount(t, s, "l"); n != 1 {
		t.Fatalf("count %d", n)
	}
	rlUnlock(t, h)
	// The first request arrives after all: the lock must not be taken by it.
	if got := trap.Deliver(t); got != "*1\r\n:-1\r\n" {
		t.Errorf("the late request got %q", got)
	}
	rlAbsent(t, s)
}

// An acquisition that was given up without an answer takes nothing when its request arrives after
// the undoing.
func TestRLockGivenUpAcquireArrivesLate(t *testing.T) {
	t.Parallel()
	s, p, c := rlProxied(t)
	trap := p.DropRequest(rlRuns(luascript.Acquire, "l"))
	ctx, cancel := context.WithCancel(t.Context())
	p.Refuse() // no retry gets through
	got := rlAsync(ctx, c.RLock("l"))
	trap.Wait(t)
	cancel()
	rlWant(t, rlGet(t, got).err, context.Canceled)
	p.Admit(t)
	rlUntil(t, "the undoing", func() bool { return s.Int(t, "EXISTS", luascript.VoidKey("l")) == 1 })
	if got := trap.Deliver(t); got != "*1\r\n:-1\r\n" {
		t.Errorf("the late request got %q", got)
	}
	rlAbsent(t, s)
	if ttl := s.Int(t, "PTTL", luascript.VoidKey("l")); ttl <= 0 {
		t.Errorf("the mark of given-up acquisitions stays for %d ms", ttl)
	}
	rlUnlock(t, rlLock(t, t.Context(), c.RLock("l")))
}

// An unlock whose reply is lost succeeds.
func TestRLockReleaseReplyLost(t *testing.T) {
	t.Parallel()
	for times := 1; times <= 3; times++ {
		s, p, c := rlProxied(t)
		h := rlLock(t, t.Context(), c.RLock("l"))
		trap := p.DropReply(rlRuns(luascript.Release, "l")).Times(times)
		if err := h.Unlock(t.Context()); err != nil {
			t.Fatalf("a release that worked says %v", err)
		}
		for range times {
			trap.Wait(t)
		}
		rlAbsent(t, s)
		rlWant(t, h.Unlock(t.Context()), redlatch.ErrNotHeld)
	}
}

// An unlock whose request is lost is sent again.
func TestRLockReleaseRequestLost(t *testing.T) {
	t.Parallel()
	s, p, c := rlProxied(t)
	h := rlLock(t, t.Context(), c.RLock("l"))
	trap := p.DropRequest(rlRuns(luascript.Release, "l"))
	rlUnlock(t, h)
	trap.Wait(t)
	rlAbsent(t, s)
}

// Nested holds whose replies are lost are counted right.
func TestRLockNestedRepliesLost(t *testing.T) {
	t.Parallel()
	s, p, c := rlProxied(t)
	h1 := rlLock(t, t.Context(), c.RLock("l"))
	trap := p.DropReply(rlRuns(luascript.Reenter, "l"))
	h2 := rlLock(t, h1.Context(), c.RLock("l"))
	trap.Wait(t)
	if n := rlCount(t, s, "l"); n != 2 {
		t.Fatalf("count %d after a lost re-entry reply", n)
	}
	trap = p.DropReply(rlRuns(luascript.Release, "l"))
	rlUnlock(t, h2)
	trap.Wait(t)
	if n := rlCount(t, s, "l"); n != 1 {
		t.Fatalf("count %d after a lost release reply", n)
	}
	rlAlive(t, h1)
	trap = p.DropReply(rlRuns(luascript.Reenter, "l"))
	if err := h1.Extend(t.Context(), time.Minute); err != nil {
		t.Fatal(err)
	}
	trap.Wait(t)
	if n := rlCount(t, s, "l"); n != 1 {
		t.Fatalf("count %d after a lost extension reply", n)
	}
	rlUnlock(t, h1)
	rlAbsent(t, s)
}

// A release that comes twice, the second time after the same owner has locked
// again, must not free the new hold.
func TestRLockLateDuplicateOfARelease(t *testing.T) {
	t.Parallel()
	s, p, c := rlProxied(t)
	ctx := redlatch.WithOwner(t.Context(), "one")
	trap := p.CopyRequest(rlRuns(luascript.Release, "l"))
	rlUnlock(t, rlLock(t, ctx, c.RLock("l")))
	trap.Wait(t)
	again := rlLock(t, ctx, c.RLock("l"))
	nested := rlLock(t, ctx, c.RLock("l"))
	if got := trap.Deliver(t); got != ":0\r\n" {
		t.Errorf("the duplicate got %q", got)
	}
	if n := rlCount(t, s, "l"); n != 2 {
		t.Fatalf("count %d after the duplicate", n)
	}
	rlUnlock(t, nested)
	rlUnlock(t, again)
	rlAbsent(t, s)
}

// A duplicate of an acquisition that was answered, delivered while the same
// owner holds the lock anew, takes nothing.
func TestRLockLateDuplicateOfAnAcquisition(t *testing.T) {
	t.Parallel()
	s, p, c := rlProxied(t)
	ctx := redlatch.WithOwner(t.Context(), "one")
	trap := p.CopyRequest(rlRuns(luascript.Acquire, "l"))
	h := rlLock(t, ctx, c.RLock("l"))
	trap.Wait(t)
	rlUnlock(t, h)
	again := rlLock(t, ctx, c.RLock("l"))
	trap.Deliver(t)
	if n := rlCount(t, s, "l"); n != 1 {
		t.Fatalf("count %d after the duplicate", n)
	}
	rlUnlock(t, again)
	rlAbsent(t, s)
}

// A waiter whose unlock message is lost with the subscription's connection goes on when it has
// subscribed again, not at the end of the lease.
func TestRLockUnlockMessageLost(t *testing.T) {
	t.Parallel()
	s, p, c := rlProxied(t)
	holder := rlClient(t, s.Addr())
	for range 3 {
		h := rlLock(t, t.Context(), holder.RLock("l"), redlatch.WithLease(10*time.Minute))
		got := rlAsync(t.Context(), c.RLock("l"))
		rlSubscribed(t, s, "l", 1)
		p.Refuse()
		s.Do(t, "CLIENT", "KILL", "TYPE", "pubsub")
		rlSubscribed(t, s, "l", 0)
		rlUnlock(t, h)
		p.Admit(t)
		r := rlGet(t, got)
		if r.err != nil {
			t.Fatal(r.err)
		}
		rlUnlock(t, r.hold)
	}
}

// A release between a waiter's try and its confirmed subscription is not missed.
func TestRLockReleaseBeforeTheSubscription(t *testing.T) {
	t.Parallel()
	s, p, c := rlProxied(t)
	holder := rlClient(t, s.Addr())
	h := rlLock(t, t.Context(), holder.RLock("l"), redlatch.WithLease(10*time.Minute))
	trap := p.StallRequest(testbed.Contains("SUBSCRIBE", rlCalls("l")))
	got := rlAsync(t.Context(), c.RLock("l"))
	trap.Wait(t)
	rlUnlock(t, h)
	trap.Release()
	r := rlGet(t, got)
	if r.err != nil {
		t.Fatal(r.err)
	}
	rlUnlock(t, r.hold)
}

// Replies that are slow on the way hang nobody on a free lock.
func TestRLockSlowNetwork(t *testing.T) {
	t.Parallel()
	_, p, c := rlProxied(t)
	p.Delay(testbed.Replies, 60*time.Millisecond)
	p.Delay(testbed.Requests, 60*time.Millisecond)
	for range 3 {
		h := rlLock(t, t.Context(), c.RLock("l"))
		got := rlAsync(t.Context(), c.RLock("l"))
		rlUnlock(t, h)
		r := rlGet(t, got)
		if r.err != nil {
			t.Fatal(r.err)
		}
		rlUnlock(t, r.hold)
	}
}
