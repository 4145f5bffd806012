package multilock

import (
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/redlatch/redlatch/internal/conn"
	"github.com/redlatch/redlatch/internal/engine"
	"github.com/redlatch/redlatch/internal/pubsub"
	"github.com/redlatch/redlatch/rlock"
)

// silent is a server that nobody asks: only where it is matters.
type silent struct{ conn.Runner }

func (silent) Topology() conn.Topology { return conn.Topology{} }

// TestOrderOfEqualNames: it is the same whatever the order of the members, by address and database.
func TestOrderOfEqualNames(t *testing.T) {
	lockAt := func(addr string, db int) Member {
		core := engine.NewCore(engine.Config{
			ID: fmt.Sprintf("%s/%d", addr, db), Addr: addr, DB: db, LeaseTime: time.Minute, UnlockTimeout: time.Second, Log: slog.New(slog.DiscardHandler),
		}, silent{}, pubsub.NewHub(nil, nil))
		t.Cleanup(func() { core.Close(); core.Wait() })
		return engine.Open(new(rlock.RLock), core, "x")
	}
	a0, a1, a2, b0 := lockAt("a", 0), lockAt("a", 1), lockAt("a", 2), lockAt("b", 0)
	want := []string{"a/0", "a/1", "a/2", "b/0"}
	for _, members := range [][]Member{{a0, a1, a2, b0}, {b0, a2, a1, a0}, {a1, b0, a0, a2}, {a2, a0, b0, a1}} {
		var got []string
		for _, u := range New(members...).units {
			for _, l := range u.leaves {
				got = append(got, l.eng.Core().ID())
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%v, want %v", got, want)
		}
	}
}

// TestApartIsBounded: after a split vote nobody pauses for more than a second, however slow the servers are: the lock
// may be free meanwhile.
func TestApartIsBounded(t *testing.T) {
	for splits := range splitVotes {
		for range 1000 {
			if got := apart(500*time.Millisecond, splits); got > time.Second || got < 250*time.Millisecond {
				t.Fatalf("%v after %d", got, splits)
			}
			if got, trip := apart(time.Millisecond, splits), time.Millisecond<<splits; got < trip || got > 4*trip {
				t.Fatalf("%v after %d, want one to four times %v", got, splits, trip)
			}
		}
	}
	if got := apart(0, 0); got != 0 {
		t.Errorf("%v", got)
	}
}
