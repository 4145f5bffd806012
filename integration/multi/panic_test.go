package multi

import (
	"context"
	"errors"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
)

// touchy is a Locker of a user's own, on a lock of a client's, whose code panics at one of its calls.
type touchy struct {
	l    redlatch.Locker
	left atomic.Int64 // calls until one panics; below zero: none does
	busy atomic.Bool  // the next attempt that does not wait finds it held
}

// errTouchy is what it panics with.
var errTouchy = errors.New("code of the user's")

func (u *touchy) call() {
	// What is given back, or found ended, in the background belongs to no call: a panic there ends the program.
	stack := string(debug.Stack())
	if !strings.Contains(stack, "multilock.(*part).drop") && !strings.Contains(stack, "multilock.(*hold).memberEnded") && u.left.Add(-1) == 0 {
		panic(errTouchy)
	}
}

func (u *touchy) Lock(ctx context.Context, opts ...redlatch.AcquireOption) (redlatch.Hold, error) {
	u.call()
	return u.took(u.l.Lock(ctx, opts...))
}

func (u *touchy) TryLock(ctx context.Context, wait, lease time.Duration) (redlatch.Hold, error) {
	u.call()
	if u.busy.Swap(false) {
		return nil, &redlatch.NotAcquiredError{Name: "u"}
	}
	return u.took(u.l.TryLock(ctx, wait, lease))
}

func (u *touchy) took(h redlatch.Hold, err error) (redlatch.Hold, error) {
	if err != nil {
		return nil, err
	}
	return touchyHold{h, u}, nil
}

// touchyHold is its hold. It does what it is asked for before it panics.
type touchyHold struct {
	redlatch.Hold
	u *touchy
}

func (h touchyHold) Context() context.Context {
	h.u.call()
	return h.Hold.Context()
}

func (h touchyHold) ValidUntil() time.Time {
	h.u.call()
	return h.Hold.ValidUntil()
}

func (h touchyHold) Token() uint64 {
	h.u.call()
	return h.Hold.Token()
}

func (h touchyHold) Unlock(ctx context.Context) error {
	err := h.Hold.Unlock(ctx)
	h.u.call()
	return err
}

func (h touchyHold) Extend(ctx context.Context, lease time.Duration) error {
	err := h.Hold.Extend(ctx, lease)
	h.u.call()
	return err
}

// broke is what f panics with; f must not hang.
func broke(t *testing.T, f func()) any {
	t.Helper()
	over := make(chan any, 1)
	go func() {
		defer func() { over <- recover() }()
		f()
	}()
	select {
	case why := <-over:
		return why
	case <-time.After(patience):
		t.Fatal("a call hangs")
		return nil
	}
}

// panics makes each of the user's calls panic in turn, while the lock is acquired, extended and
// unlocked, and returns how many there were. The panic is that of one call of the caller's, and free
// fails unless all is given back then.
func (u *touchy) panics(t *testing.T, busy bool, acquire func() (redlatch.Hold, error), free func()) (n int) {
	t.Helper()
	for ; ; n++ {
		u.left.Store(int64(n) + 1)
		u.busy.Store(busy)
		var h redlatch.Hold
		var err error
		why := broke(t, func() { h, err = acquire() })
		if why == nil && err == nil {
			if why = broke(t, func() { err = h.Extend(t.Context(), 15*time.Second) }); why != nil {
				u.left.Store(-1)
				unlock(t, h) // it is held still
			} else if why = broke(t, func() { err = errors.Join(err, h.Unlock(t.Context())) }); why != nil {
				u.left.Store(-1)
				want(t, h.Unlock(t.Context()), redlatch.ErrNotHeld)
			}
			if h.Context().Err() == nil {
				t.Errorf("call %d: the section of an unlocked hold goes on", n+1)
			}
		}
		u.left.Store(-1)
		free()
		switch {
		case why == nil && err != nil && !errors.Is(err, redlatch.ErrNotAcquired):
			t.Fatalf("call %d: %v", n+1, err)
		case why == nil:
			return n
		case why != any(errTouchy):
			t.Fatalf("call %d panics with %v", n+1, why)
		}
	}
}

// TestPanicOfAUsersMember: a panic in the code of a member that is a type of the user's is its
// caller's, who hears of it once; all other members are free soon. So it is in nested MultiLocks, beside
// a QuorumLock, and for a member alone.
func TestPanicOfAUsersMember(t *testing.T) {
	list := servers(t, 3)
	cs := clients(t, addrs(list))
	other := dial(t, list[1].Addr())
	u := &touchy{l: cs[0].RLock("u")}
	u.left.Store(-1)
	quorum := redlatch.QuorumLock(copies(cs, "q")...)
	free := func() {
		t.Helper()
		for _, s := range list {
			becomesFree(t, s, "a", "b", "u", "q")
		}
	}
	for name, whole := range map[string]redlatch.Locker{
		"alone":  redlatch.MultiLock(u),
		"member": redlatch.MultiLock(cs[0].RLock("a"), u, redlatch.MultiLock(cs[1].RLock("b"), quorum)),
		"nested": redlatch.MultiLock(redlatch.MultiLock(redlatch.MultiLock(quorum, u), cs[1].RLock("b")), cs[0].RLock("a")),
	} {
		t.Run(name, func(t *testing.T) {
			lock := func() (redlatch.Hold, error) { return whole.Lock(t.Context()) }
			// It is tried, looked at, watched, extended and unlocked.
			if n := u.panics(t, false, lock, free); n < 5 {
				t.Errorf("%d panics", n)
			}
			if name == "alone" {
				return
			}
			// It is waited for before the others are tried.
			if n := u.panics(t, true, lock, free); n < 6 {
				t.Errorf("it is waited for: %d panics", n)
			}
			// Another member is busy: what was got is given back.
			b := mustLock(t, t.Context(), other.RLock("b"))
			n := u.panics(t, false, func() (redlatch.Hold, error) { return whole.TryLock(t.Context(), 0, 0) }, func() {
				t.Helper()
				becomesFree(t, list[0], "a", "u", "q")
				becomesFree(t, list[1], "q")
				becomesFree(t, list[2], "q")
			})
			if unlock(t, b); n != 2 {
				t.Errorf("another one is busy: %d panics", n)
			}
		})
	}
}
