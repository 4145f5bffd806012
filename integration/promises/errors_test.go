package promises

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/integration/bed"
	"github.com/redlatch/redlatch/internal/testbed"
)

// Errors say what is: a busy lock is told from a server that can't be reached or is silent, one that is slow from both,
// and all from a ctx that ended; who is refused has waited as long as he wanted, and is told by whom and for how long.
// One attempt on servers that are silent takes a third of a short LeaseTime, never the time that Unlock has.
func TestErrorsSayWhatIs(t *testing.T) {
	t.Parallel()
	const unlockTimeout = 3 * time.Second
	notBusy := []error{redlatch.ErrNotAcquired, redlatch.ErrClosed, redlatch.ErrLeaseLost, redlatch.ErrNotHeld}
	overKinds(t, []func(*redlatch.Config){func(c *redlatch.Config) { c.UnlockTimeout = unlockTimeout }}, cases{
		"the lock is busy": func(t *testing.T, x *bed.Site, name string) {
			const lease = 50 * time.Second
			before := bed.Lock(t, t.Context(), x.Beside(name), redlatch.WithLease(lease))
			for _, wait := range []time.Duration{0, 1500 * time.Millisecond} {
				began := time.Now()
				_, err := x.Lock(name).TryLock(t.Context(), wait, 0)
				if took := time.Since(began); took < wait || took > wait+slack {
					t.Errorf("a wait of %v took %v", wait, took)
				}
				want(t, "TryLock", err, redlatch.ErrNotAcquired)
				wantNot(t, "TryLock", err, context.Canceled, context.DeadlineExceeded, redlatch.ErrUnavailable)
				busy, is := errors.AsType[*redlatch.NotAcquiredError](err)
				one := x.Kind.Servers == 1 && x.Kind.Parts == nil // else the detail is a member's
				if !is || one && (busy.Name != name || busy.Err != nil || busy.Own) {
					t.Errorf("a wait of %v: %+v, %v", wait, busy, err)
					continue
				}
				if !strings.HasPrefix(busy.Holder, x.Direct[0].ID()+":g") && x.Kind.Servers == 1 || busy.Holder == "" {
					t.Errorf("a wait of %v: the holder is %q", wait, busy.Holder)
				}
				left, now := time.Until(before.ValidUntil()), busy.Remaining-busy.Age
				if x.Kind.Servers <= 2 && (now < left-time.Second || now > left+2*time.Second) {
					t.Errorf("a wait of %v: %v are left, want about %v", wait, now, left)
				}
				if n := len(x.Servers[0].LockChannels(t)); wait == 0 && n > 0 {
					t.Errorf("one attempt made %d subscriptions", n)
				}
				if said := strings.Contains(err.Error(), "as seen "); one && said != (wait > 0) {
					t.Errorf("a wait of %v: %v", wait, err)
				}
			}
			bed.Unlock(t, before)
		},
		"ctx ended": func(t *testing.T, x *bed.Site, name string) {
			before := bed.Lock(t, t.Context(), x.Beside(name))
			// At its end every question has its answer, also from a busy server: a second without one is an outage.
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			defer cancel()
			_, err := x.Lock(name).Lock(ctx)
			want(t, "Lock", err, redlatch.ErrNotAcquired)
			want(t, "Lock", err, context.DeadlineExceeded)
			wantNot(t, "Lock", err, redlatch.ErrUnavailable, redlatch.ErrClosed)
			reason := errors.New("the user\nhas gone")
			caused, leave := context.WithCancelCause(t.Context())
			got := begun(t, caused, x, name, x.Lock(name))
			leave(reason)
			_, tried := x.Lock(name).TryLock(caused, 0, 0)
			_, waited := x.Lock(name).TryLock(caused, time.Hour, 0)
			for what, err := range map[string]error{"Lock": bed.Get(t, got).Err, "one attempt": tried, "a wait": waited} {
				for _, e := range []error{redlatch.ErrNotAcquired, context.Canceled, reason} {
					want(t, what, err, e)
				}
				if strings.Contains(err.Error(), "\n") {
					t.Errorf("%s: more than one line: %q", what, err)
				}
			}
			bed.Unlock(t, before)
		},
		"its servers can't be reached": func(t *testing.T, x *bed.Site, name string) {
			cutOff(x)
			for what, wait := range map[string]time.Duration{"one attempt": 0, "a wait": 3 * time.Second} {
				_, err := x.Lock(name).TryLock(t.Context(), wait, 0)
				want(t, what, err, redlatch.ErrUnavailable)
				wantNot(t, what, err, notBusy...)
				if busy, is := errors.AsType[*redlatch.NotAcquiredError](err); is && busy.Holder != "" {
					t.Errorf("%s: servers that can't be reached named a holder: %v", what, err)
				}
				detail, is := errors.AsType[*redlatch.UnavailableError](err)
				if !is || len(detail.Nodes) == 0 || detail.Nodes[0].Err == nil {
					t.Errorf("%s: %+v", what, detail)
				}
				namesOnce(t, what, err)
			}
			l := x.Lock(name).(operated)
			_, err := l.State(t.Context())
			want(t, "State", err, redlatch.ErrUnavailable)
			_, err = l.ForceUnlock(t.Context())
			want(t, "ForceUnlock", err, redlatch.ErrUnavailable)
			ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			defer cancel()
			began := time.Now()
			_, err = x.Lock(name).Lock(ctx)
			want(t, "Lock", err, context.DeadlineExceeded)
			want(t, "Lock", err, redlatch.ErrUnavailable)
			testbed.AtMost(t, time.Since(began), slack, "ctx was heard after")
			got := bed.Async(t.Context(), x.Lock(name))
			time.Sleep(100 * time.Millisecond) // it has failed, most likely, and tries again
			admit(t, x)
			bed.Unlock(t, bed.Hold(t, got))
		},
		"its servers are silent": func(t *testing.T, x *bed.Site, name string) {
			const lease = 1500 * time.Millisecond
			h, brief := bed.Lock(t, t.Context(), x.Lock(name+"held")), x.Fresh(t, func(c *redlatch.Config) { c.LeaseTime = lease })
			for _, s := range x.Servers {
				s.Freeze(t)
				defer s.Thaw(t)
			}
			for _, one := range []struct {
				clients []*redlatch.Client
				most    time.Duration
			}{{x.Through, time.Second}, {brief, lease / 3}} { // slow is told from silent; UnlockTimeout is longer
				began := time.Now()
				_, err := x.Kind.New(one.clients, name).TryLock(t.Context(), 0, 0)
				testbed.AtMost(t, time.Since(began), one.most+slack/2, "one attempt took")
				want(t, "one attempt", err, redlatch.ErrUnavailable)
				wantNot(t, "one attempt", err, notBusy...)
				namesOnce(t, "one attempt", err)
			}
			for range 2 {
				began := time.Now()
				err := h.Unlock(t.Context())
				if took := time.Since(began); took < unlockTimeout || took > unlockTimeout+slack {
					t.Errorf("Unlock took %v", took)
				}
				want(t, "Unlock", err, redlatch.ErrUnavailable)
				wantNot(t, "Unlock", err, notBusy...)
				if quorum(x) {
					namesOnce(t, "Unlock", err) // of a set each member is named
				}
				ended(t, h, redlatch.ErrUnlocked)
			}
			for _, s := range x.Servers {
				s.Thaw(t)
			}
			bed.Eventually(t, "the release", func() bool { return len(x.Keys(t, name)) == 0 })
			var err error
			bed.Eventually(t, "an answer in time", func() bool {
				err = h.Unlock(t.Context())
				return !errors.Is(err, redlatch.ErrUnavailable)
			})
			want(t, "Unlock, which tells what came of it", err, nil)
			want(t, "Unlock once more", h.Unlock(t.Context()), redlatch.ErrNotHeld)
		},
		"its servers answer later than a short wait lasts, which is no outage": func(t *testing.T, x *bed.Site, name string) {
			slowed(x, testbed.Replies, 100*time.Millisecond)
			for _, wait := range []time.Duration{5 * time.Millisecond, 20 * time.Millisecond, 60 * time.Millisecond} {
				h, err := x.Lock(name).TryLock(t.Context(), wait, 0)
				if err == nil {
					bed.Unlock(t, h)
				} else if !errors.Is(err, redlatch.ErrNotAcquired) || errors.Is(err, redlatch.ErrUnavailable) {
					t.Errorf("a wait of %v: %v", wait, err)
				}
			}
			slowed(x, testbed.Replies, 0)
		},
		"the lock becomes something else, which is for good and leaves no place": func(t *testing.T, x *bed.Site, name string) {
			before := bed.Lock(t, t.Context(), x.Beside(name))
			waits := begun(t, t.Context(), x, name, x.Kind.Lasting(x.Through, name))
			quiet(t, x)
			for _, key := range x.Kind.Names(name) {
				onAll(t, x, "SET", key, "data")
			}
			onAll(t, x, "CLIENT", "KILL", "TYPE", "pubsub") // who hears again asks
			want(t, "who waits", bed.Get(t, waits).Err, redlatch.ErrInvalidName)
			want(t, "Unlock", before.Unlock(t.Context()), redlatch.ErrLeaseLost)
			deleted(t, x, name)
		},
		"its servers have no memory": func(t *testing.T, x *bed.Site, name string) {
			before := bed.Lock(t, t.Context(), x.Beside(name))
			waits := begun(t, t.Context(), x, name, x.Lock(name))
			onAll(t, x, "CONFIG", "SET", "maxmemory", "1")
			defer onAll(t, x, "CONFIG", "SET", "maxmemory", "0")
			bed.Unlock(t, before) // who waits is woken, and can't take it
			waited := bed.Get(t, waits)
			errs := map[string]error{"who waits": waited.Err}
			if x.Kind.Name == "fair" && waited.Err == nil { // its place has become the hold, and has the memory that takes
				bed.Unlock(t, waited.Hold)
				delete(errs, "who waits")
			}
			_, errs["Lock"] = x.Lock(name).Lock(t.Context())
			_, errs["TryLock"] = x.Lock(name).TryLock(t.Context(), 0, 0)
			for what, err := range errs {
				if refused, is := errors.AsType[*redlatch.ServerError](err); !is || refused.Op == "" || !strings.Contains(err.Error(), "OOM") {
					t.Errorf("%s: %v", what, err)
				}
				wantNot(t, what, err, append(notBusy, redlatch.ErrUnavailable, context.DeadlineExceeded)...)
				namesOnce(t, what, err)
			}
			_, err := x.Lock(name).(operated).State(t.Context())
			want(t, "State", err, nil)
		},
	})
}

// namesOnce: the text of an outage, or a refusal, says once on which lock, or set of locks.
func namesOnce(t *testing.T, what string, err error) {
	t.Helper()
	if err != nil && strings.Count(err.Error(), `lock "`) != 1 {
		t.Errorf("%s: %v", what, err)
	}
}
