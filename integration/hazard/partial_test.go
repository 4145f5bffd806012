package hazard

import (
	"context"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/luascript"
	"github.com/redlatch/redlatch/internal/testbed"
)

// partial is the script that takes an inner hold of a kind off.
func partial(kind string) *luascript.Script {
	if kind == "multi" {
		return luascript.GroupRelease
	}
	return luascript.Release
}

// warm puts the kind's scripts on the server, so that each command is one.
func warm(t *testing.T, l redlatch.Locker) {
	t.Helper()
	outer := take(t, t.Context(), l)
	inner := take(t, outer.Context(), l, redlatch.WithLease(time.Hour))
	unlock(t, inner)
	if err := outer.Extend(t.Context(), time.Hour); err != nil { // a multi-lock's is another script
		t.Fatal(err)
	}
	unlock(t, outer)
}

// lasts is for how long the key stands, at least.
func lasts(t *testing.T, s *testbed.Server, name string) time.Duration {
	t.Helper()
	return time.Duration(s.Int(t, "PTTL", name)) * time.Millisecond
}

// counts are the counts of a lock's fields.
func counts(t *testing.T, s *testbed.Server, name string) []string {
	t.Helper()
	var out []string
	for field, n := range s.Hash(t, "HGETALL", name) {
		if field != "mode" {
			out = append(out, n)
		}
	}
	return out
}

// Leases only rise: the release of an inner hold sets the count, and no copy of it
// that a network holds back, until the same owner has re-entered for longer, lowers
// a lease. The release of the last hold frees the lock at once, whatever was asked for.
func TestLatePartialReleaseDoesNotShortenALease(t *testing.T) {
	s := server(t)
	for _, kind := range kinds {
		t.Run(kind.name, func(t *testing.T) {
			t.Parallel()
			p := testbed.NewProxy(t, s.Addr())
			c := dial(t, p.Addr(), leaseTime(20*time.Second))
			name := "late-" + kind.name
			l := kind.make(c, name)
			warm(t, l)
			outer := take(t, t.Context(), l, redlatch.WithLease(15*time.Second))
			inner := take(t, outer.Context(), l, redlatch.WithLease(time.Minute))
			promised := outer.ValidUntil()
			late := p.DropRequest(testbed.Contains(partial(kind.name).SHA))
			unlock(t, inner)
			late.Wait(t)
			if left := lasts(t, s, name); left < 40*time.Second {
				t.Errorf("the inner Unlock has cut the lease to %v", left)
			}
			if got := counts(t, s, name); len(got) != 1 || got[0] != "1" {
				t.Errorf("counts %v", got)
			}
			if !outer.ValidUntil().Equal(promised) {
				t.Errorf("the inner Unlock has moved the outer hold's end by %v", outer.ValidUntil().Sub(promised))
			}
			again := take(t, outer.Context(), l, redlatch.WithLease(time.Hour))
			late.Deliver(t)
			if left := lasts(t, s, name); left < time.Hour-10*time.Second {
				t.Errorf("the late release has cut the lease of the next hold to %v", left)
			}
			unlock(t, again)
			unlock(t, outer)
			if s.Int(t, "EXISTS", name) != 0 {
				t.Error("the last Unlock has not freed the lock")
			}
		})
	}
}

// What the server refuses is not taken for done: no hold counts for longer than the
// key stands, whatever kind of release a server that takes no writes, or has no
// memory, was asked for.
func TestRefusedPartialReleaseMovesNoDeadline(t *testing.T) {
	for refusal, set := range map[string][2][]string{
		"NOREPLICAS": {{"CONFIG", "SET", "min-replicas-to-write", "1"}, {"CONFIG", "SET", "min-replicas-to-write", "0"}},
		"READONLY":   {{"REPLICAOF", "127.0.0.1", "1"}, {"REPLICAOF", "NO", "ONE"}},
		"OOM":        {{"CONFIG", "SET", "maxmemory", "1"}, {"CONFIG", "SET", "maxmemory", "0"}},
	} {
		t.Run(refusal, func(t *testing.T) {
			t.Parallel()
			s := server(t)
			c := dial(t, s.Addr(), leaseTime(15*time.Second))
			type nested struct {
				name         string
				outer, inner redlatch.Hold
			}
			var all []nested
			for _, kind := range kinds {
				for what, opts := range map[string][]redlatch.AcquireOption{"fixed": {redlatch.WithLease(15 * time.Second)}, "renewed": nil} {
					name := kind.name + "-" + what
					l := kind.make(c, name)
					warm(t, l)
					outer := take(t, t.Context(), l, opts...)
					all = append(all, nested{name, outer, take(t, outer.Context(), l, opts...)})
				}
			}
			time.Sleep(500 * time.Millisecond) // what a release would move on
			s.Do(t, set[0]...)
			for _, n := range all {
				unlock(t, n.inner)
				left := lasts(t, s, n.name)
				ends := time.Now().Add(left + time.Millisecond) // at the latest: the answer is older, and rounded down
				if until := n.outer.ValidUntil(); until.After(ends) {
					t.Errorf("%s: the hold counts for %v longer than the key stands", n.name, until.Sub(ends))
				}
				if n.outer.Context().Err() != nil {
					t.Errorf("%s: the outer hold was lost", n.name)
				}
			}
			s.Do(t, set[1]...)
			for _, n := range all {
				unlock(t, n.outer)
				if s.Int(t, "EXISTS", n.name) != 0 {
					t.Errorf("%s is not free", n.name)
				}
			}
		})
	}
}

// Nested holds cost one command to release, whatever their leases.
func TestPartialReleaseIsOneCommand(t *testing.T) {
	s := server(t)
	c := dial(t, s.Addr())
	for _, kind := range kinds {
		for _, lease := range []time.Duration{30 * time.Second, time.Hour} {
			l := kind.make(c, kind.name)
			warm(t, l)
			outer := take(t, t.Context(), l)
			inner := take(t, outer.Context(), l, redlatch.WithLease(lease))
			before := s.CommandStats(t)
			unlock(t, inner)
			if n := s.CommandStats(t).Sub(before).Calls["evalsha"]; n != 1 {
				t.Errorf("%s: %d commands", kind.name, n)
			}
			unlock(t, outer)
		}
	}
}

// An inner hold's release that gets no answer is tried again for as long as the inner lease lasts,
// and the outer hold lives on: its release corrects what was not done.
func TestPartialReleaseWithoutAnswer(t *testing.T) {
	s := server(t)
	for name, lease := range map[string]time.Duration{"long": 20 * time.Second, "short": 5 * time.Second} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := testbed.NewProxy(t, s.Addr())
			c := dial(t, p.Addr(), leaseTime(20*time.Second), func(c *redlatch.Config) { c.UnlockTimeout = 2 * time.Second })
			l := c.RLock(name)
			outer := take(t, t.Context(), l)
			inner := take(t, outer.Context(), l, redlatch.WithLease(lease))
			p.Refuse()
			p.Cut()
			is(t, "Unlock", inner.Unlock(context.Background()), redlatch.ErrUnavailable)
			if name == "short" {
				<-inner.Context().Done()
				time.Sleep(lease) // nothing of it is left
			}
			if got := counts(t, s, name); len(got) != 1 || got[0] != "2" {
				t.Fatalf("counts %q before the server can be reached again", got)
			}
			p.Admit(t)
			if name == "long" {
				eventually(t, "the release", func() bool { return counts(t, s, name)[0] == "1" })
				is(t, "the second Unlock", inner.Unlock(context.Background()), nil)
			} else {
				is(t, "the second Unlock", inner.Unlock(context.Background()), redlatch.ErrUnavailable)
			}
			is(t, "the third Unlock", inner.Unlock(context.Background()), redlatch.ErrNotHeld)
			if outer.Context().Err() != nil {
				t.Error("the outer hold was lost")
			}
			unlock(t, outer)
			if s.Int(t, "EXISTS", name) != 0 {
				t.Error("the lock is not free")
			}
		})
	}
}
