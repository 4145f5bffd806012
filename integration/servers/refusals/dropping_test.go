package refusals

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch/internal/luascript"
	"github.com/redlatch/redlatch/internal/testbed"
)

// queue is who stands in the queue of the fair lock "f": by the list, by the scores and by
// the wants.
func queue(t *testing.T, s *testbed.Server) (list []string, all bool) {
	t.Helper()
	keys := fairKeys("f")
	list = s.List(t, "LRANGE", keys[1], "0", "-1")
	scores := s.List(t, "ZRANGE", keys[2], "0", "-1")
	slices.Sort(scores)
	wants := slices.Sorted(maps.Keys(s.Hash(t, "HGETALL", keys[3])))
	sorted := slices.Sorted(slices.Values(list))
	return list, slices.Equal(sorted, scores) && slices.Equal(sorted, wants)
}

// TestPlacesStayWhole: a user who may not do one of the commands that take a waiter out of
// the queue takes out nobody: the list, the scores and the wants name the same waiters, and
// nobody holds the lock who still stands in the queue. Who may do it all goes on from there.
func TestPlacesStayWhole(t *testing.T) {
	s := testbed.Standalone(t)
	ms := strconv.Itoa(lease)
	w := []string{waiter + "1", waiter + "2", waiter + "3"}
	leave := func(f string) call { return fairCall(luascript.FairRelease, f, "0", "1", "0") }
	enter := func(f string) call { return fairCall(luascript.FairAcquire, f, ms, "-", "", ms, "nonce") }
	free := func() { s.Do(t, "DEL", "f") }
	stale := func() { // the first has died, and the lock is free
		free()
		s.Do(t, "HSET", luascript.FairWantsKey("f"), w[0], "1000000000000 1 1 1 - nonce ")
	}
	for name, c := range map[string]struct {
		before func()
		do     call
		needs  string   // the commands without which it is refused
		left   []string // the queue when it is done
		holder string
	}{
		"hand over":       {nil, fairCall(luascript.FairRelease, field, "0", "0", "0"), "zrem lpop", w[1:], w[0]},
		"own turn":        {free, enter(w[0]), "zrem lpop", w[1:], w[0]},
		"the first died":  {stale, fairCall(luascript.FairRefresh, w[1], ms), "zrem lpop", w[2:], w[1]},
		"the first goes":  {nil, leave(w[0]), "zrem lpop", w[1:], field},
		"the second goes": {nil, leave(w[1]), "zrem lrem", []string{w[0], w[2]}, field},
		"the last goes":   {nil, leave(w[2]), "zrem rpop", w[:2], field},
	} {
		for missing := range strings.FieldsSeq(c.needs) {
			t.Run(name+" without "+missing, func(t *testing.T) {
				s.Do(t, "FLUSHALL")
				must(t, s, fairCall(luascript.FairAcquire, field, ms, "-", "", "0"))
				for _, f := range w {
					must(t, s, enter(f))
				}
				if c.before != nil {
					c.before()
				}
				s.SetUser(t, "app", "reset", "on", ">secret", "~*", "&*", "+@all", "-"+missing)
				app, err := rueidis.NewClient(rueidis.ClientOption{
					InitAddress: []string{s.Addr()}, Username: "app", Password: "secret", DisableCache: true,
				})
				testbed.Must(t, err)
				defer app.Close()
				m, err := app.Do(t.Context(), app.B().Eval().Script(c.do.script.Body).Numkeys(int64(len(c.do.keys))).
					Key(c.do.keys...).Arg(c.do.args...).Build()).ToMessage()
				told := fmt.Sprint(text(m), err)
				if !strings.Contains(told, "can't run this command") && !strings.Contains(told, "NOPERM") {
					t.Errorf("it answered %q", told)
				}
				list, same := queue(t, s)
				if !same || !slices.Equal(list, w) {
					t.Errorf("the queue is %q; list, scores and wants agree: %v", list, same)
				}
				for f := range s.Hash(t, "HGETALL", "f") {
					if slices.Contains(list, f) {
						t.Errorf("%s holds the lock and stands in the queue", f)
					}
				}

				must(t, s, c.do)
				if name == "hand over" || name == "own turn" {
					// the lock is free by now, or it was: the first takes it
					must(t, s, enter(w[0]))
				}
				list, same = queue(t, s)
				if !same || !slices.Equal(list, c.left) {
					t.Errorf("with all permissions the queue is %q, want %q; list, scores and wants agree: %v", list, c.left, same)
				}
				if got := s.Hash(t, "HGETALL", "f"); len(got) != 1 || got[c.holder] != "1" {
					t.Errorf("with all permissions %v is held, want by %s", got, c.holder)
				}
			})
		}
	}
}
