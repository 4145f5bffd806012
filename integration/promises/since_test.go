package promises

import (
	"slices"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/integration/bed"
)

// span is when something was called and when it was known to be done.
type span struct{ from, to time.Time }

// has fails if it was not within these.
func (s span) has(t *testing.T, what, owner string, at time.Time) {
	t.Helper()
	if at.Before(s.from.Truncate(time.Millisecond)) || at.After(s.to) {
		t.Errorf("%s %s since %v: %v after the earliest, %v before the latest", owner, what, at, at.Sub(s.from), s.to.Sub(at))
	}
}

// since fails if a holder of the lock did not ask, or get it, within these.
func since(t *testing.T, x *bed.Site, name string, asked, held span) {
	t.Helper()
	for _, c := range x.Through {
		for _, h := range c.Held() {
			if slices.Contains(x.Kind.Names(name), h.Name) {
				held.has(t, "holds by itself", h.Owner, h.HeldSince)
			}
		}
	}
	if st, err := x.Kind.New(x.Direct, name).(operated).State(t.Context()); x.Kind.Servers == 1 && x.Kind.Parts == nil {
		if err != nil || len(st.Holders) == 0 {
			t.Errorf("State: %+v, %v", st, err)
		}
		for _, h := range st.Holders {
			asked.has(t, "asked, says State,", h.Owner, h.AskedSince)
			held.has(t, "is held, says State,", h.Owner, h.HeldSince)
		}
	}
	for _, c := range x.Direct {
		for _, part := range x.Kind.Names(name) {
			in, err := c.Inspect(t.Context(), part)
			if err != nil || len(in.Holders) == 0 && !quorum(x) { // a copy may come late
				t.Errorf("%s: %+v, %v", part, in, err)
			}
			if quorum(x) { // a copy that came late is held since then
				held.to = time.Now()
			}
			for _, h := range in.Holders {
				asked.has(t, "asked", h.Owner, h.AskedSince)
				held.has(t, "is held", h.Owner, h.HeldSince)
			}
		}
	}
}

// Inspect and State tell since when a lock is held, and apart from that since when it was asked for: of who got it at
// once, who waited for another process, who waited behind others of its own; a re-entry changes neither.
func TestHeldIsSinceTheGrant(t *testing.T) {
	t.Parallel()
	const wait = 2 * time.Second
	besideEachOther(t, nil, cases{
		"at once, and again inside": func(t *testing.T, x *bed.Site, name string) {
			began := time.Now()
			outer := bed.Lock(t, t.Context(), x.Lock(name))
			once := span{began, time.Now()}
			since(t, x, name, once, once)
			inner := bed.Lock(t, outer.Context(), x.Lock(name))
			since(t, x, name, once, once)
			bed.Unlock(t, inner)
			bed.Unlock(t, outer)
		},
		"after a wait": func(t *testing.T, x *bed.Site, name string) {
			before, began := bed.Lock(t, t.Context(), x.Beside(name)), time.Now()
			next := begun(t, t.Context(), x, name, x.Lock(name))
			asked := span{began, time.Now()}
			if x.Kind.Queues && !x.Kind.Shared {
				var st redlatch.State
				bed.Eventually(t, "a place in the queue", func() bool {
					st, _ = x.Kind.New(x.Direct, name).(operated).State(t.Context())
					return len(st.Queue) == 1
				})
				asked.has(t, "waits, says State,", st.Queue[0].Owner, st.Queue[0].AskedSince)
			}
			time.Sleep(wait)
			freed := time.Now().Add(-wait / 2) // a command that is late counts from when it was sent
			bed.Unlock(t, before)
			a := entered(t, next)
			since(t, x, name, asked, span{freed, a.At})
			bed.Unlock(t, a.Hold)
		},
		"behind others of its process": func(t *testing.T, x *bed.Site, name string) {
			before, began := bed.Lock(t, t.Context(), x.Beside(name)), time.Now()
			one := begun(t, t.Context(), x, name, x.Lock(name))
			other := bed.Async(t.Context(), x.Lock(name))
			time.Sleep(wait)
			freed := time.Now().Add(-wait / 2) // a command that is late counts from when it was sent
			bed.Unlock(t, before)
			for range 2 { // whoever comes first gives it to the other one
				h := either(t, one, other)
				since(t, x, name, span{began, freed}, span{freed, time.Now()})
				bed.Unlock(t, h)
			}
		},
	})
}
