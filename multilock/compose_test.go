package multilock

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/redlatch/redlatch/internal/conn"
	"github.com/redlatch/redlatch/internal/engine"
	"github.com/redlatch/redlatch/internal/luascript"
	"github.com/redlatch/redlatch/internal/pubsub"
	"github.com/redlatch/redlatch/lock"
	"github.com/redlatch/redlatch/rlock"
)

// named is a server that says who it is.
type named struct {
	silent
	runID string
}

func (n named) Run(_ context.Context, cmd conn.Command) (conn.Reply, error) {
	if cmd.Script != luascript.Server {
		return conn.Reply{}, errors.New("nobody was to ask")
	}
	return conn.Reply{Vals: []conn.Value{{Int: 60}, {Str: n.runID, IsStr: true}}}, nil
}

func (n named) RunMulti(ctx context.Context, cmds []conn.Command, _ []conn.Result) []conn.Result {
	out := make([]conn.Result, len(cmds))
	for i := range cmds {
		out[i].Reply, out[i].Err = n.Run(ctx, cmds[i])
	}
	return out
}

// TestOrderOfEqualNames: it is the same whatever the order of the members, by server and database.
// A lock that is, or may be, named twice is refused.
func TestOrderOfEqualNames(t *testing.T) {
	lockAt := func(runID string, db int) lock.Locker {
		core := engine.NewCore(engine.Config{
			ID: fmt.Sprintf("%s/%d", runID, db), DB: db, LeaseTime: time.Minute, UnlockTimeout: time.Second, Log: slog.New(slog.DiscardHandler),
		}, named{runID: runID}, pubsub.NewHub(silent{}, nil))
		t.Cleanup(func() { core.Close(); core.Wait() })
		return rlock.New(core, "x")
	}
	a0, a1, a2, b0, unknown := lockAt("a", 0), lockAt("a", 1), lockAt("a", 2), lockAt("b", 0), lockAt("b", -1)
	want := []string{"a/0", "a/1", "a/2", "b/0"}
	for _, members := range [][]lock.Locker{{a0, a1, a2, b0}, {b0, a2, a1, a0}, {a1, b0, a0, a2}, {a2, a0, b0, a1}} {
		units, err := New(members...).settle(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, u := range units {
			for _, l := range u.leaves {
				got = append(got, l.eng.Core().ID())
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%v, want %v", got, want)
		}
	}
	if _, err := New(unknown, a0, a1).settle(t.Context()); err != nil { // alone on its server
		t.Error(err)
	}
	for what, members := range map[string][]lock.Locker{
		"one database":           {a1, a0, lockAt("a", 1)},
		"a database not known":   {a2, lockAt("a", -1), a1},
		"two of them, not known": {unknown, lockAt("b", -1)},
	} {
		if _, err := New(members...).settle(t.Context()); !errors.Is(err, lock.ErrInvalidOption) {
			t.Errorf("%s: %v", what, err)
		}
	}
}
