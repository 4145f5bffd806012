package promises

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"testing"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/integration/bed"
)

// The context carries the owner: who has the hold's context enters again, everybody else is another
// owner, and the lock is free when the last of the owner's holds is unlocked.
func TestTheContextIsTheOwner(t *testing.T) {
	t.Parallel()
	overKinds(t, nil, cases{
		"another owner is kept out, of whatever client": func(t *testing.T, x *bed.Site, name string) {
			for _, own := range []context.Context{t.Context(), redlatch.WithOwner(t.Context(), "same")} {
				h := bed.Lock(t, own, x.Lock(name))
				refused(t, x.Kind.Excluded(x.Through, name))
				refusedTo(t, redlatch.NewOwner(h.Context()), x.Kind.Excluded(x.Through, name))
				for _, ctx := range []context.Context{t.Context(), h.Context(), own} {
					refusedTo(t, ctx, x.Beside(name))
				}
				bed.Unlock(t, h)
			}
		},
		"an owner holds locks of two clients": func(t *testing.T, x *bed.Site, name string) {
			h := bed.Lock(t, t.Context(), x.Lock(name))
			a, b := bed.Lock(t, h.Context(), x.Lock(name+"a")), bed.Lock(t, h.Context(), x.Kind.New(x.Direct, name+"b"))
			again := []redlatch.Hold{bed.Lock(t, b.Context(), x.Lock(name+"a")), bed.Lock(t, a.Context(), x.Kind.New(x.Direct, name+"b"))}
			bed.Unlock(t, a)
			bed.Unlock(t, b)
			refused(t, x.Beside(name+"a"))
			refused(t, x.Beside(name+"b"))
			bed.Unlock(t, append(again, h)...)
		},
		"nested holds are unlocked in any order, each once": func(t *testing.T, x *bed.Site, name string) {
			first := bed.Lock(t, t.Context(), x.Lock(name))
			second := bed.Lock(t, context.WithoutCancel(first.Context()), x.Kind.New(x.Through, name)) // another object
			third := bed.Lock(t, second.Context(), x.Lock(name))
			counted(t, x, name, 3)
			st, err := x.Lock(name).(operated).State(t.Context())
			if err != nil || !st.Held || len(st.Holders) == 0 || st.Holders[0].Count != 3 || st.Remaining > bed.Lease || st.Remaining < bed.Lease*3/5 {
				t.Errorf("state %+v, %v", st, err)
			}
			for _, h := range []redlatch.Hold{first, third, second} {
				refused(t, x.Beside(name))
				bed.Unlock(t, h)
				ended(t, h, redlatch.ErrUnlocked)
				want(t, "a second Unlock", h.Unlock(t.Context()), redlatch.ErrNotHeld)
				if h == first {
					bed.Alive(t, second)
				}
			}
			bed.Unlock(t, bed.Lock(t, t.Context(), x.Beside(name)))
		},
		"who is inside enters again past those who wait": func(t *testing.T, x *bed.Site, name string) {
			for _, ctx := range []context.Context{t.Context(), redlatch.WithOwner(t.Context(), "inside")} {
				first := bed.Lock(t, ctx, x.Lock(name))
				asked := x.Asked(t, name)
				waits := bed.Async(t.Context(), x.Kind.Excluded(x.Through, name)) // in its own process
				asked()
				bed.Unlock(t, bed.Lock(t, first.Context(), x.Lock(name)), first)
				bed.Unlock(t, bed.Holds(t, []<-chan bed.Attempt{waits})...)
			}
		},
		"nested holds are unlocked at the same time": func(t *testing.T, x *bed.Site, name string) {
			for range 10 {
				holds := []redlatch.Hold{bed.Lock(t, t.Context(), x.Lock(name))}
				for len(holds) < 4 {
					holds = append(holds, bed.Lock(t, holds[0].Context(), x.Lock(name)))
				}
				unlockAll(t, holds)
				bed.Unlock(t, bed.Lock(t, t.Context(), x.Beside(name)))
			}
		},
		"an owner of one's own enters again": func(t *testing.T, x *bed.Site, name string) {
			const odd = "job 7:a-b{}é"
			first := bed.Lock(t, redlatch.WithOwner(t.Context(), odd), x.Lock(name))
			second := bed.Lock(t, redlatch.WithOwner(context.Background(), odd), x.Lock(name))
			third := bed.Lock(t, second.Context(), x.Lock(name)) // which carries it, too
			for _, h := range []redlatch.Hold{first, third, second} {
				refusedTo(t, redlatch.WithOwner(t.Context(), "job 8"), x.Kind.Excluded(x.Through, name))
				refused(t, x.Beside(name))
				bed.Unlock(t, h)
			}
			for _, bad := range []string{"", string(make([]byte, 257))} {
				_, err := x.Lock(name).Lock(redlatch.WithOwner(t.Context(), bad))
				want(t, "an owner that can't be", err, redlatch.ErrInvalidOption)
			}
		},
		"an owner enters and leaves in many goroutines": func(t *testing.T, x *bed.Site, name string) {
			settle := func() {
				if quorum(x) { // whose last copies come later
					quiet(t, x)
				}
			}
			for range 5 {
				got := make([]<-chan bed.Attempt, 8)
				for i := range got {
					got[i] = bed.Async(redlatch.WithOwner(t.Context(), "one"), x.Lock(name))
				}
				holds := bed.Holds(t, got)
				settle()
				counted(t, x, name, len(holds))
				unlockAll(t, holds[1:])
				settle()
				counted(t, x, name, 1)
				refused(t, x.Beside(name))
				bed.Unlock(t, holds[0])
				bed.Unlock(t, bed.Lock(t, t.Context(), x.Beside(name)))
			}
		},
		"an owner that waits in several goroutines enters in all of them": func(t *testing.T, x *bed.Site, name string) {
			for range 5 {
				before := bed.Lock(t, t.Context(), x.Beside(name))
				asked := x.Asked(t, name)
				ctx := redlatch.WithOwner(t.Context(), "one")
				got := []<-chan bed.Attempt{bed.Async(ctx, x.Lock(name)), bed.Async(ctx, x.Lock(name)), bed.Async(ctx, x.Lock(name))}
				asked()
				bed.Unlock(t, before)
				unlockAll(t, bed.Holds(t, got)) // nobody has left when the last one has entered
			}
		},
		"an owner goes on to other locks, and ends with its last hold": func(t *testing.T, x *bed.Site, name string) {
			h := bed.Lock(t, t.Context(), x.Lock(name+"first"))
			kept := context.WithoutCancel(h.Context())
			child := bed.Lock(t, kept, x.Lock(name))
			bed.Unlock(t, h)
			bed.Alive(t, child)
			bed.Unlock(t, bed.Lock(t, child.Context(), x.Lock(name)))
			bed.Unlock(t, bed.Lock(t, kept, x.Lock(name)))
			refused(t, x.Beside(name))
			bed.Unlock(t, child)
			last := bed.Lock(t, kept, x.Lock(name)) // a new owner: nothing is left of the old one
			refusedTo(t, kept, x.Kind.Excluded(x.Through, name))
			bed.Unlock(t, last)
		},
		"a second unlock says so and frees nobody's lock": func(t *testing.T, x *bed.Site, name string) {
			h := bed.Lock(t, t.Context(), x.Lock(name))
			bed.Unlock(t, h)
			next := bed.Lock(t, t.Context(), x.Beside(name))
			want(t, "the second Unlock returned", h.Unlock(context.Background()), redlatch.ErrNotHeld)
			refused(t, x.Lock(name))
			bed.Unlock(t, next)
		},
	})
}

// counted fails unless one owner holds all parts of the lock so often. A quorum's last copies come later.
func counted(t *testing.T, x *bed.Site, name string, count int) {
	t.Helper()
	if wrong := miscounted(t, x, name, count); wrong != "" {
		t.Error(wrong)
	}
}

// miscounted says what is not as counted wants it.
func miscounted(t *testing.T, x *bed.Site, name string, count int) string {
	t.Helper()
	free, spare := 0, 0
	for _, s := range x.Servers {
		for _, key := range x.Kind.Names(name) {
			all := s.Hash(t, "HGETALL", key)
			delete(all, "mode")
			for owner, n := range all {
				if got, err := strconv.Atoi(n); x.Kind.Servers >= 3 && len(all) == 1 && err == nil && got < count {
					delete(all, owner) // one of the holds goes without this copy, which came too late for it
				} else if n != strconv.Itoa(count) || len(all) > 1 {
					return fmt.Sprintf("the holders are %v, want one with a count of %d", all, count)
				}
			}
			if len(all) == 0 {
				free++
			}
		}
	}
	if x.Kind.Servers >= 3 {
		spare = (x.Kind.Servers - 1) / 2
	}
	if free > spare {
		return fmt.Sprintf("nobody holds %d parts of %s, want %d at most", free, name, spare)
	}
	return ""
}

// unlockAll unlocks at the same time, in goroutines of their own.
func unlockAll(t *testing.T, holds []redlatch.Hold) {
	t.Helper()
	var all sync.WaitGroup
	for _, h := range holds {
		all.Go(func() {
			if err := h.Unlock(context.Background()); err != nil {
				t.Errorf("Unlock: %v", err)
			}
		})
	}
	all.Wait()
}
