package promises

import (
	"context"
	"errors"
	"testing"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/integration/bed"
)

// The context carries the owner: who has the hold's context enters again, everybody else is another
// owner, and the lock is free when the last of the owner's holds is unlocked.
func TestTheContextIsTheOwner(t *testing.T) {
	t.Parallel()
	overKinds(t, nil, map[string]func(t *testing.T, x *bed.Site, name string){
		"another goroutine is another owner": func(t *testing.T, x *bed.Site, name string) {
			h := bed.Lock(t, t.Context(), x.Lock(name))
			refused(t, x.Kind.Excluded(x.Through, name))
			bed.Unlock(t, h)
		},
		"the hold's context enters again": func(t *testing.T, x *bed.Site, name string) {
			outer := bed.Lock(t, t.Context(), x.Lock(name))
			inner := bed.Lock(t, outer.Context(), x.Lock(name))
			bed.Unlock(t, inner)
			refused(t, x.Beside(name))
			bed.Unlock(t, outer)
		},
		"the outer hold may be unlocked first": func(t *testing.T, x *bed.Site, name string) {
			outer := bed.Lock(t, t.Context(), x.Lock(name))
			inner := bed.Lock(t, context.WithoutCancel(outer.Context()), x.Lock(name))
			bed.Unlock(t, outer)
			refused(t, x.Beside(name))
			alive(t, inner)
			bed.Unlock(t, inner)
		},
		"an owner of one's own enters again": func(t *testing.T, x *bed.Site, name string) {
			first := bed.Lock(t, redlatch.WithOwner(t.Context(), "one"), x.Lock(name))
			second := bed.Lock(t, redlatch.WithOwner(context.Background(), "one"), x.Lock(name))
			if _, err := x.Kind.Excluded(x.Through, name).TryLock(redlatch.WithOwner(t.Context(), "two"), 0, 0); err == nil {
				t.Error("another owner came in")
			}
			bed.Unlock(t, first)
			refused(t, x.Beside(name))
			bed.Unlock(t, second)
		},
		"a second unlock says so and frees nobody's lock": func(t *testing.T, x *bed.Site, name string) {
			h := bed.Lock(t, t.Context(), x.Lock(name))
			bed.Unlock(t, h)
			next := bed.Lock(t, t.Context(), x.Beside(name))
			if err := h.Unlock(context.Background()); !errors.Is(err, redlatch.ErrNotHeld) {
				t.Errorf("the second Unlock returned %v", err)
			}
			refused(t, x.Lock(name))
			bed.Unlock(t, next)
		},
		"a context that ends frees nothing": func(t *testing.T, x *bed.Site, name string) {
			ctx, leave := context.WithCancel(t.Context())
			h := bed.Lock(t, ctx, x.Lock(name))
			leave()
			ended(t, h, context.Canceled)
			refused(t, x.Beside(name))
			bed.Unlock(t, h)
		},
	})
}
