package redlatchtest_test

import (
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/testbed"
	"github.com/redlatch/redlatch/redlatchtest"
)

// TestHeldAndLoseInEachDatabase: a Client that selects another database has its locks there.
func TestHeldAndLoseInEachDatabase(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := redlatchtest.NewServer(t)
		at := func(db int) *redlatch.Client {
			return s.Client(redlatch.WithConfig(func(c *redlatch.Config) { c.Redis.SelectDB = db }))
		}
		first, last := at(0), at(15)
		b := mustLock(t, t.Context(), first.RLock("b"))
		a := mustLock(t, t.Context(), last.ReadWriteLock("a").WriteLock())
		both := []redlatch.Hold{mustLock(t, t.Context(), first.RLock("c")), mustLock(t, t.Context(), last.RLock("c"))}
		var got []string
		for _, state := range s.Held() {
			got = append(got, fmt.Sprint(state.Name, state.Mode, len(state.Holders)))
		}
		testbed.Equal(t, fmt.Sprint(got), "[awrite1 block1 clock1 clock1]", "held")
		for _, name := range []string{"a", "c"} {
			if !s.Lose(name) || s.Lose(name) {
				t.Fatalf("%s was not there, or is there still", name)
			}
		}
		for _, h := range append(both, a) {
			lost(t, h)
		}
		if held := s.Held(); len(held) != 1 || held[0].Name != "b" {
			t.Error(held)
		}
		mustUnlock(t, b)
	})
}

// TestHeldWhileTheServerIsAway: what is held can be looked at also while no client reaches the server.
func TestHeldWhileTheServerIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := redlatchtest.NewServer(t)
		h := mustLock(t, t.Context(), s.Client().RLock("a"))
		for what, state := range map[string]struct{ away, back func() }{"down": {s.Down, s.Up}, "frozen": {s.Freeze, s.Thaw}} {
			state.away()
			if held := s.Held(); len(held) != 1 || held[0].Name != "a" {
				t.Error(what, held)
			}
			state.back()
		}
		mustUnlock(t, h)
	})
}
