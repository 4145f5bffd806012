package integration

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/testbed"
)

// Holders that are cut off from their server: the hold ends before the lease can
// run out there, and never earlier than need be.

// Lock goes on trying while the server can't be reached; TryLock tells an
// unreachable server from a busy lock; ctx is heard all the while.
func TestRLockUnreachableServerIsNotBusy(t *testing.T) {
	t.Parallel()
	s := rlServer(t)
	p := testbed.NewProxy(t, s.Addr())
	c := rlClient(t, p.Addr(), rlLease(5*time.Second), rlUnlockTimeout(3*time.Second))
	p.Refuse()
	p.Cut()
	for name, f := range map[string]func() error{
		"wait 0":      func() error { _, err := c.RLock("l").TryLock(t.Context(), 0, 0); return err },
		"wait 3 s":    func() error { _, err := c.RLock("l").TryLock(t.Context(), 3*time.Second, 0); return err },
		"State":       func() error { _, err := c.RLock("l").State(t.Context()); return err },
		"ForceUnlock": func() error { _, err := c.RLock("l").ForceUnlock(t.Context()); return err },
	} {
		err := f()
		if !errors.Is(err, redlatch.ErrUnavailable) {
			t.Errorf("%s: %v", name, err)
		}
		if errors.Is(err, redlatch.ErrNotAcquired) {
			t.Errorf("%s: both: %v", name, err)
		}
		var busy *redlatch.NotAcquiredError
		if errors.As(err, &busy) && busy.Holder != "" {
			t.Errorf("%s: a server that can't be reached named a holder: %v", name, err)
		}
		var detail *redlatch.UnavailableError
		if errors.As(err, &detail) && (len(detail.Nodes) != 1 || detail.Nodes[0].Err == nil) {
			t.Errorf("%s: details %+v", name, detail)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	began := time.Now()
	_, err := c.RLock("l").Lock(ctx)
	rlWant(t, err, context.DeadlineExceeded)
	rlWant(t, err, redlatch.ErrUnavailable)
	if took := time.Since(began); took > rlSlack {
		t.Errorf("ctx of 200 ms was heard after %v", took)
	}
	var got <-chan rlAttempt
	testbed.Mark(t.Name(), func() { got = rlAsync(t.Context(), c.RLock("l")) })
	rlMarked(t, "(*acquisition).pause") // it has failed, and will try again
	p.Admit(t)
	r := rlGet(t, got)
	if r.err != nil {
		t.Fatal(r.err)
	}
	rlUnlock(t, r.hold)
}

// A server that is frozen in the middle of an operation: ctx is heard at once,
// and what was sent leaves nothing behind once the server goes on.
func TestRLockFrozenServerHearsContext(t *testing.T) {
	t.Parallel()
	s := rlServer(t)
	rlLoad(t, s)
	c := rlClient(t, s.Addr())
	rlUnlock(t, rlLock(t, t.Context(), c.RLock("l")))
	s.Freeze(t)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	began := time.Now()
	_, err := c.RLock("l").Lock(ctx)
	rlWant(t, err, context.DeadlineExceeded)
	if took := time.Since(began); took > rlSlack { // the connection is given up after 4 s
		t.Errorf("ctx was heard after %v", took)
	}
	s.Thaw(t)
	rlUntil(t, "the late grant given back", func() bool { return s.Int(t, "EXISTS", "l") == 0 })
	rlUnlock(t, rlLock(t, t.Context(), c.RLock("l")))
}

// Unlock on a server that does not answer returns within UnlockTimeout, says
// that it does not know, and may be called again.
func TestRLockUnlockWithoutAnswer(t *testing.T) {
	t.Parallel()
	s := rlServer(t)
	c := rlClient(t, s.Addr(), rlLease(30*time.Second), rlUnlockTimeout(300*time.Millisecond))
	h := rlLock(t, t.Context(), c.RLock("l"))
	s.Freeze(t)
	began := time.Now()
	err := h.Unlock(t.Context())
	rlWant(t, err, redlatch.ErrUnavailable)
	rlNoWant(t, err, redlatch.ErrNotHeld, redlatch.ErrLeaseLost)
	if took := time.Since(began); took < 300*time.Millisecond || took > rlSlack {
		t.Errorf("Unlock took %v", took)
	}
	if h.Context().Err() == nil {
		t.Error("the hold's context lives after Unlock")
	}
	s.Thaw(t)
	rlUntil(t, "the release", func() bool { return s.Int(t, "EXISTS", "l") == 0 })
	rlUntil(t, "the second Unlock", func() bool { err = h.Unlock(t.Context()); return !errors.Is(err, redlatch.ErrUnavailable) })
	if err != nil {
		t.Errorf("the second Unlock says %v", err)
	}
	rlWant(t, h.Unlock(t.Context()), redlatch.ErrNotHeld)
}

// One attempt on a server that is silent takes the time that tells slow from silent, a second or a
// third of LeaseTime, and is an outage; never the time that Unlock has.
func TestOneAttemptOnASilentServer(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ lease, bound time.Duration }{{30 * time.Second, time.Second}, {900 * time.Millisecond, 300 * time.Millisecond}} {
		t.Run(tc.bound.String(), func(t *testing.T) {
			t.Parallel()
			s := rlServer(t)
			c := rlClient(t, s.Addr(), rlLease(tc.lease))
			rlUnlock(t, rlLock(t, t.Context(), c.RLock("warm")))
			s.Freeze(t)
			rw := c.ReadWriteLock("rw")
			var all sync.WaitGroup
			const slack = time.Second // for a busy machine
			for name, l := range map[string]redlatch.Locker{
				"plain": c.RLock("l"), "fair": c.FairLock("f"), "read": rw.ReadLock(), "write": rw.WriteLock(),
				"multi": redlatch.MultiLock(c.RLock("{m}1"), c.RLock("{m}2")), "spread": redlatch.MultiLock(c.RLock("a"), c.FairLock("b")),
			} {
				all.Go(func() {
					began := time.Now()
					_, err := l.TryLock(t.Context(), 0, 0)
					took := time.Since(began)
					if !errors.Is(err, redlatch.ErrUnavailable) {
						t.Errorf("%s: %v, want ErrUnavailable", name, err)
					}
					if took < tc.bound || took > tc.bound+slack { // UnlockTimeout is 5 s
						t.Errorf("%s: it took %v, want %v", name, took, tc.bound)
					}
				})
			}
			all.Wait()
			s.Thaw(t)
		})
	}
}
