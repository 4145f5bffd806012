package promises

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/integration/bed"
)

type valueKey struct{}

// The innermost of WithOwner, NewOwner and a hold's context decides who asks; for the rest a hold's context is the
// caller's.
func TestTheInnermostOwnerDecides(t *testing.T) {
	t.Parallel()
	besideEachOther(t, nil, cases{
		"of ids and contexts": func(t *testing.T, x *bed.Site, name string) {
			if x.Kind.Shared {
				return // it admits them all
			}
			l, job := x.Lock(name), redlatch.WithOwner(t.Context(), "job")
			h := bed.Lock(t, job, l)
			again := bed.Lock(t, redlatch.WithOwner(redlatch.NewOwner(job), "job"), l)
			for _, other := range []context.Context{redlatch.WithOwner(h.Context(), "other"), redlatch.NewOwner(h.Context()), redlatch.NewOwner(job)} {
				refusedTo(t, other, l)
			}
			bed.Unlock(t, again)
			bed.Unlock(t, h)
		},
		"the context is the caller's with an end of its own": func(t *testing.T, x *bed.Site, name string) {
			gone, deadline := errors.New("the user has gone"), time.Now().Add(time.Hour)
			parent, end := context.WithCancelCause(context.WithValue(t.Context(), valueKey{}, "v"))
			ctx, cancel := context.WithDeadline(parent, deadline)
			defer cancel()
			h := bed.Lock(t, ctx, x.Lock(name))
			got := h.Context()
			if d, ok := got.Deadline(); got != h.Context() || got.Value(valueKey{}) != "v" || !ok || !d.Equal(deadline) {
				t.Errorf("value %v, deadline %v (%v)", got.Value(valueKey{}), d, ok)
			}
			end(gone)
			ended(t, h, gone)
			bed.Unlock(t, h)
			if got.Err() != context.Canceled || context.Cause(got) != gone { //nolint:errorlint // the very errors, as context has them
				t.Errorf("after Unlock: %v, %v", got.Err(), context.Cause(got))
			}
		},
	})
}
