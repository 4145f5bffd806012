package hazard

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
)

// A hold whose fixed lease has ended counts for nothing, also if nobody ever unlocks it: the
// Unlock of the last living one frees the lock at once, whichever of them was the first.
func TestForgottenHoldKeepsNothing(t *testing.T) {
	s := server(t)
	c, other := dial(t, s.Addr()), dial(t, s.Addr())
	for _, kind := range kinds {
		for _, order := range []string{"inner", "outer"} {
			t.Run(kind.name+"/"+order, func(t *testing.T) {
				t.Parallel()
				name := "forgotten-" + kind.name + "-" + order
				l := kind.make(c, name)
				x := redlatch.WithOwner(t.Context(), "x")
				short := redlatch.WithLease(200 * time.Millisecond)
				var lives, ends redlatch.Hold
				if order == "inner" {
					lives = take(t, x, l)
					ends = take(t, x, l, short)
				} else {
					ends = take(t, x, l, short)
					lives = take(t, x, l)
				}
				<-ends.Context().Done()
				is(t, "its end", context.Cause(ends.Context()), redlatch.ErrLeaseLost)
				if lives.Context().Err() != nil {
					t.Errorf("the other hold ended, too: %v", context.Cause(lives.Context()))
				}
				_, err := exclusive(other, kind.name, name).TryLock(t.Context(), 0, 0)
				is(t, "another beside the living hold", err, redlatch.ErrNotAcquired)
				unlock(t, lives)
				next, err := exclusive(other, kind.name, name).TryLock(t.Context(), 0, 0)
				if err != nil {
					t.Fatalf("after the last Unlock: %v", err)
				}
				is(t, "the late Unlock", ends.Unlock(t.Context()), redlatch.ErrLeaseLost)
				unlock(t, next)
			})
		}
	}
}

// Whatever speaks of a lock calls it as the caller did, not by the key that Prefix and
// NameMapper made of it.
func TestEverythingNamesTheLockAsItsCallerDid(t *testing.T) {
	s := server(t)
	c := dial(t, s.Addr(), leaseTime(time.Second), func(c *redlatch.Config) {
		c.Prefix, c.NameMapper = "pre:", strings.ToUpper
	})
	for _, kind := range kinds[:4] {
		l := kind.make(c, "name")
		h := take(t, t.Context(), l)
		if s.Int(t, "EXISTS", "pre:NAME") != 1 {
			t.Fatalf("keys %v", s.List(t, "KEYS", "*"))
		}
		st, err := l.(interface {
			State(context.Context) (redlatch.State, error)
		}).State(t.Context())
		in, ierr := c.Inspect(t.Context(), "name")
		_, busy := exclusive(c, kind.name, "name").TryLock(t.Context(), 0, 0)
		var refused *redlatch.NotAcquiredError
		if err != nil || ierr != nil || !errors.As(busy, &refused) {
			t.Fatalf("%v, %v, %v", err, ierr, busy)
		}
		s.Do(t, "DEL", "pre:NAME")
		<-h.Context().Done()
		var lost *redlatch.LeaseLostError
		if !errors.As(context.Cause(h.Context()), &lost) {
			t.Fatalf("the hold ended with %v", context.Cause(h.Context()))
		}
		for what, got := range map[string]string{
			"Hold.Name": h.Name(), "State": st.Name, "Inspect": in.Name, "NotAcquiredError": refused.Name, "LeaseLostError": lost.Name,
		} {
			if got != "name" {
				t.Errorf("%s: %s says %q", kind.name, what, got)
			}
		}
		if in.Key != "pre:NAME" {
			t.Errorf("key %q", in.Key)
		}
		is(t, "Unlock", h.Unlock(t.Context()), redlatch.ErrLeaseLost)
	}
}
