package promises

import (
	"context"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/integration/bed"
	"github.com/redlatch/redlatch/internal/luascript"
)

// A lock that was taken away is lost for its holder with the next thing that he does, and only for him: he may take it
// anew, and what stands in its place is left alone.
func TestWhoseLockWasTakenAway(t *testing.T) {
	t.Parallel()
	all := cases{
		"from an owner who takes it anew": func(t *testing.T, x *bed.Site, name string) {
			job, l := redlatch.WithOwner(t.Context(), "job"), x.Lock(name)
			old := bed.Lock(t, job, l, redlatch.WithLease(brief(x)))
			next := bed.Lock(t, t.Context(), x.Beside(name))
			want(t, "the old hold's end", context.Cause(old.Context()), redlatch.ErrLeaseLost)
			refusedTo(t, job, l)
			bed.Unlock(t, next)
			anew := bed.Lock(t, job, l)
			want(t, "Extend of the old hold", old.Extend(t.Context(), time.Hour), redlatch.ErrLeaseLost)
			want(t, "Unlock of the old hold", old.Unlock(t.Context()), redlatch.ErrLeaseLost)
			want(t, "its second Unlock", old.Unlock(t.Context()), redlatch.ErrNotHeld)
			alive(t, anew)
			refused(t, x.Beside(name))
			bed.Unlock(t, anew)
		},
	}
	for what, step := range map[string]func(outer, inner redlatch.Hold, l redlatch.Locker) error{
		"the release of an inner hold": func(_, inner redlatch.Hold, _ redlatch.Locker) error { return inner.Unlock(context.Background()) },
		"a re-entry": func(outer, _ redlatch.Hold, l redlatch.Locker) error {
			_, err := l.TryLock(outer.Context(), 0, 0)
			return err
		},
	} {
		all["for another type, which "+what+" finds"] = func(t *testing.T, x *bed.Site, name string) {
			l := x.Lock(name)
			outer := bed.Lock(t, t.Context(), l)
			inner := bed.Lock(t, outer.Context(), l)
			taken := takeAway(t, x, losses["is something else"], name)
			want(t, what, step(outer, inner, l), redlatch.ErrLeaseLost)
			ended(t, outer, redlatch.ErrLeaseLost)
			_ = inner.Unlock(context.Background())
			_ = outer.Unlock(context.Background())
			taken.untouched(t)
		}
	}
	overKinds(t, []func(*redlatch.Config){short}, all)
}

// Somebody deletes a lock and tells nobody: once a command of the process that held it finds that, those of the same
// process who wait for it go on, not at the end of the lease that they know of.
func TestADeletedLockIsNotLeftLying(t *testing.T) {
	t.Parallel()
	all := cases{}
	for _, waiter := range []string{"its own kind", "another kind"} {
		all["for "+waiter] = func(t *testing.T, x *bed.Site, name string) {
			l := x.Kind.Excluded(x.Through, name)
			if waiter == "another kind" {
				switch c := x.Through[0]; x.Kind.Name {
				case "write":
					l = c.ReadWriteLock(name).ReadLock()
				case "plain", "fenced":
					l = redlatch.MultiLock(c.RLock(name), c.RLock(name+"2"))
				case "group":
					l = c.RLock(x.Kind.Names(name)[0])
				default:
					return
				}
			}
			h := bed.Lock(t, t.Context(), x.Lock(name), redlatch.WithLease(time.Hour))
			asked := x.Asked(t, name)
			got := bed.Async(t.Context(), l)
			asked()
			quiet(t, x)
			deleted(t, x, name)
			want(t, "Extend", h.Extend(t.Context(), time.Hour), redlatch.ErrLeaseLost)
			bed.Unlock(t, bed.Hold(t, got))
			want(t, "Unlock", h.Unlock(t.Context()), redlatch.ErrLeaseLost)
		}
	}
	overKinds(t, nil, all)
}

// deleted deletes the lock, and leaves who waits for it in the queue.
func deleted(t *testing.T, x *bed.Site, name string) {
	t.Helper()
	for _, s := range x.Servers {
		keys := append([]string{"DEL", luascript.RWLeasesKey(name)}, x.Kind.Names(name)...)
		s.Do(t, append(keys, s.List(t, "KEYS", "*"+name+"*rwlock_timeout*")...)...)
	}
}
