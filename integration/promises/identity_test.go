package promises

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/integration/bed"
)

type valueKey struct{}

// A hold names its owner as State and Inspect do, also of a re-entry; IfOwner takes that text.
func TestAHoldNamesItsOwner(t *testing.T) {
	t.Parallel()
	besideEachOther(t, nil, cases{
		"an evicted one": func(t *testing.T, x *bed.Site, name string) {
			l, at := x.Lock(name), x.Kind.Names(name)[0] // of the first client and part
			h := x.Everywhere(t, redlatch.WithOwner(t.Context(), "job-1 "+name), l, name, x.Through)
			inner := bed.Lock(t, h.Context(), l)
			bed.Eventually(t, "the first copy is the hold's", func() bool { return h.Owner().Client == x.Through[0].ID() })
			st, err := l.(operated).State(t.Context())
			in, ierr := x.Through[0].Inspect(t.Context(), at)
			named := func(o redlatch.Holder) bool { return o.Owner == h.Owner().String() }
			if err != nil || ierr != nil || !slices.ContainsFunc(st.Holders, named) || in.HolderCount != 1 || in.Holders[0].Owner != h.Owner().String() {
				t.Errorf("%s: State %+v, %v; Inspect %+v, %v", h.Owner(), st.Holders, err, in.Holders, ierr)
			}
			if h.Owner().Explicit != "job-1 "+name || inner.Owner() != h.Owner() {
				t.Errorf("%+v, of the re-entry %+v", h.Owner(), inner.Owner())
			}
			was, err := x.Direct[0].ForceUnlock(t.Context(), at, redlatch.IfOwner(h.Owner().String()))
			if err != nil || !was {
				t.Errorf("ForceUnlock: %t, %v", was, err)
			}
			before := h.Owner()
			_, _ = inner.Unlock(t.Context()), h.Unlock(t.Context())
			if h.Owner() != before {
				t.Errorf("after Unlock: %s, not %s", h.Owner(), before)
			}
		},
	})
}

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
