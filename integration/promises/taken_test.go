package promises

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/integration/bed"
	"github.com/redlatch/redlatch/internal/luascript"
	"github.com/redlatch/redlatch/internal/testbed"
)

// A lock that was taken away is lost for its holder alone, who may take it anew.
func TestWhoseLockWasTakenAway(t *testing.T) {
	t.Parallel()
	overKinds(t, []func(*redlatch.Config){short}, cases{
		"from an owner who takes it anew": func(t *testing.T, x *bed.Site, name string) {
			job, l := redlatch.WithOwner(t.Context(), "job"), x.Lock(name)
			old := bed.Lock(t, job, l, redlatch.WithLease(brief(x)))
			next := bed.Lock(t, t.Context(), x.Beside(name))
			ended(t, old, redlatch.ErrLeaseLost)
			refusedTo(t, job, l)
			bed.Unlock(t, next)
			anew := bed.Lock(t, job, l)
			want(t, "Extend of the old hold", old.Extend(t.Context(), time.Hour), redlatch.ErrLeaseLost)
			want(t, "Unlock of the old hold", old.Unlock(t.Context()), redlatch.ErrLeaseLost)
			want(t, "its second Unlock", old.Unlock(t.Context()), redlatch.ErrNotHeld)
			bed.Alive(t, anew)
			refused(t, x.Beside(name))
			bed.Unlock(t, anew)
		},
	})
}

// Who may delete a lock and not publish takes it away all the same, and is told that nobody was woken: who waits comes by
// himself, long before the lease would have ended.
func TestALockIsTakenAwayInSilence(t *testing.T) {
	t.Parallel()
	all := cases{}
	for what, rules := range map[string]string{"may publish nothing": "&* -publish", "may publish nowhere": "~*"} {
		all["by one who "+what] = func(t *testing.T, x *bed.Site, name string) {
			if rules == "~*" && !testbed.ServerVersion(t).AtLeast(6, 2) {
				return // it has no rules about channels
			}
			mute := silenced(t, x, what[len(what)-5:], rules)
			for force, call := range map[string]func() (bool, error){
				"the kind's": func() (bool, error) { return x.Kind.New(mute, name).(operated).ForceUnlock(t.Context()) },
				"the client's": func() (was bool, err error) {
					for _, c := range mute {
						for _, part := range x.Kind.Names(name) {
							one, refused := c.ForceUnlock(t.Context(), part)
							was, err = was || one, refused
						}
					}
					return was, err
				},
			} {
				h := bed.Lock(t, t.Context(), x.Lock(name))
				next := bed.Async(t.Context(), x.Beside(name))
				quiet(t, x)
				was, err := call()
				if _, is := errors.AsType[*redlatch.ServerError](err); !was || !is || !strings.Contains(err.Error(), "wake the waiters") {
					t.Errorf("%s ForceUnlock: %t, %v", force, was, err)
				}
				bed.Unlock(t, bed.Hold(t, next))
				want(t, "Unlock", h.Unlock(t.Context()), redlatch.ErrLeaseLost)
				if was, err = call(); was || err == nil { // nor anybody who waits although it is free
					t.Errorf("%s ForceUnlock of a free lock: %t, %v", force, was, err)
				}
			}
		}
	}
	overKinds(t, nil, all)
}

// silenced are clients of a user with these rules about channels.
func silenced(t *testing.T, x *bed.Site, user, rules string) []*redlatch.Client {
	t.Helper()
	clients := make([]*redlatch.Client, len(x.Servers))
	for i, s := range x.Servers {
		s.SetUser(t, user, append([]string{"on", ">secret", "~*", "+@all"}, strings.Fields(rules)...)...)
		clients[i] = bed.Client(t, s.Addr(), func(c *redlatch.Config) { c.Redis.Username, c.Redis.Password = user, "secret" })
	}
	return clients
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
			got := begun(t, t.Context(), x, name, l)
			quiet(t, x)
			deleted(t, x, name)
			want(t, "Extend", h.Extend(t.Context(), time.Hour), redlatch.ErrLeaseLost)
			bed.Unlock(t, bed.Hold(t, got))
			want(t, "Unlock", h.Unlock(t.Context()), redlatch.ErrLeaseLost)
		}
	}
	overKinds(t, nil, all)
}

// Somebody deletes a lock and tells nobody. Once one of its holders finds that, or who waits in their process gets the
// lock, all of them are told, and do not count on it until their next check; before that one is inside, if it was a holder.
func TestADeletedLockIsLostForAllOfTheProcess(t *testing.T) {
	t.Parallel()
	all := cases{
		"one finds it": func(t *testing.T, x *bed.Site, name string) {
			if !x.Kind.Shared {
				return
			}
			var holds []redlatch.Hold
			for range 3 {
				holds = append(holds, bed.Lock(t, t.Context(), x.Lock(name), redlatch.WithLease(time.Hour)))
			}
			asked := time.Now()
			got := begun(t, t.Context(), x, name, x.Kind.Excluded(x.Through, name))
			quiet(t, x)
			deleted(t, x, name)
			want(t, "Extend", holds[0].Extend(t.Context(), time.Hour), redlatch.ErrLeaseLost)
			looked := time.Since(asked) > 700*time.Millisecond // then the writer may have found it before, by its own look
			next := entered(t, got).Hold
			for i, h := range holds {
				if looked {
					ended(t, h, redlatch.ErrLeaseLost)
				} else if h.Context().Err() == nil {
					t.Errorf("reader %d counts on the lock beside a writer of its process", i+1)
				}
			}
			bed.Unlock(t, next)
			for _, h := range holds {
				want(t, "Unlock", h.Unlock(t.Context()), redlatch.ErrLeaseLost)
			}
		},
		"who waits finds it": func(t *testing.T, x *bed.Site, name string) {
			if quorum(x) {
				return // each round asks its copies anew, and knows of no holder: the next check tells
			}
			waiters := []redlatch.Locker{x.Kind.Excluded(x.Through, name)}
			if x.Kind.Name == "write" {
				waiters = append(waiters, x.Through[0].ReadWriteLock(name).ReadLock())
			}
			for _, l := range waiters {
				h := bed.Lock(t, t.Context(), x.Lock(name), redlatch.WithLease(time.Hour))
				got := begun(t, t.Context(), x, name, l)
				quiet(t, x)
				deleted(t, x, name)
				next := entered(t, got).Hold
				ended(t, h, redlatch.ErrLeaseLost)
				bed.Alive(t, next)
				bed.Unlock(t, next)
				want(t, "Unlock", h.Unlock(t.Context()), redlatch.ErrLeaseLost)
			}
		},
	}
	overKinds(t, []func(*redlatch.Config){func(c *redlatch.Config) { c.LeaseTime = time.Hour }}, all) // no check comes meanwhile
}

// deleted deletes the lock, and leaves who waits for it in the queue.
func deleted(t *testing.T, x *bed.Site, name string) {
	t.Helper()
	for _, s := range x.Servers {
		keys := append([]string{"DEL", luascript.RWLeasesKey(name)}, x.Kind.Names(name)...)
		s.Do(t, append(keys, s.List(t, "KEYS", "*"+name+"*rwlock_timeout*")...)...)
	}
}
