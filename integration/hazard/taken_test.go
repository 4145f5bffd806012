package hazard

import (
	"context"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/luascript"
	"github.com/redlatch/redlatch/internal/testbed"
)

// TestFixedLeaseTakenAway: who holds a lock of any kind for a fixed lease hears within a third of
// LeaseTime that an operator took it away, however long the lease was to last.
func TestFixedLeaseTakenAway(t *testing.T) {
	t.Parallel()
	const (
		watched = 3 * time.Second
		slack   = 3 * time.Second
	)
	s := server(t)
	c, operator := dial(t, s.Addr(), leaseTime(watched)), dial(t, s.Addr())
	for _, kind := range kinds {
		for what, takeAway := range map[string]func(t *testing.T, s *testbed.Server, name string){
			"DEL": func(t *testing.T, s *testbed.Server, name string) {
				t.Helper()
				s.Do(t, "DEL", name, luascript.RWLeasesKey(name))
			},
			"ForceUnlock": func(t *testing.T, _ *testbed.Server, name string) {
				t.Helper()
				if n, err := operator.ForceUnlock(t.Context(), name); err != nil {
					t.Fatalf("ForceUnlock: %v, %v", n, err)
				}
			},
		} {
			t.Run(kind.name+"/"+what, func(t *testing.T) {
				t.Parallel()
				name := "taken-" + kind.name + what
				h := take(t, t.Context(), kind.make(c, name), redlatch.WithLease(time.Hour))
				began := time.Now()
				takeAway(t, s, name)
				select {
				case <-h.Context().Done():
				case <-time.After(patience):
					t.Fatal("the holder does not hear of it")
				}
				if took := time.Since(began); took > watched/3+slack {
					t.Errorf("noticed after %v", took)
				}
				is(t, "the cause", context.Cause(h.Context()), redlatch.ErrLeaseLost)
				is(t, "Unlock", h.Unlock(t.Context()), redlatch.ErrLeaseLost)
			})
		}
	}
}

// Once a command of the process that held a lock finds that somebody has deleted it, those of the
// process who wait go on: not at the end of the lease that they know of.
func TestDeletedLockIsNotLeftLying(t *testing.T) {
	t.Parallel()
	s := server(t)
	c := dial(t, s.Addr())
	by := map[string]func(*redlatch.Client, string) redlatch.Locker{}
	for _, kind := range kinds {
		by[kind.name] = kind.make
	}
	for holder, waiters := range map[string][]string{
		"rlock": {"rlock", "multi"}, "fair": {"fair"}, "read": {"write"}, "write": {"read", "write"}, "multi": {"multi", "rlock"},
	} {
		for _, waiter := range waiters {
			t.Run(waiter+" behind "+holder, func(t *testing.T) {
				t.Parallel()
				name := "lying-" + holder + "-" + waiter
				h := take(t, t.Context(), by[holder](c, name), redlatch.WithLease(time.Hour))
				var got <-chan result
				testbed.Mark(name, func() { got = async(t.Context(), by[waiter](c, name)) })
				eventually(t, "a waiter", func() bool { return len(s.List(t, "PUBSUB", "CHANNELS", "*"+name+"*")) > 0 })
				marked(t, name, "(*acquisition).sleep")
				keys := append([]string{"DEL", name, "{" + name + "}2", luascript.RWLeasesKey(name)}, s.List(t, "KEYS", "*"+name+"*rwlock_timeout*")...)
				s.Do(t, keys...)
				is(t, "Extend", h.Extend(t.Context(), time.Hour), redlatch.ErrLeaseLost)
				if r := await(t, got); r.err != nil {
					t.Errorf("Lock: %v", r.err)
				} else {
					unlock(t, r.hold)
				}
				is(t, "Unlock", h.Unlock(t.Context()), redlatch.ErrLeaseLost)
			})
		}
	}
}
