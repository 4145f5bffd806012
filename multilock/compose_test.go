package multilock

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
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

// until is a user's lock whose holds say that they end at an instant.
type until struct {
	*fake
	at time.Time
}

func (u until) Lock(ctx context.Context, opts ...lock.AcquireOption) (lock.Hold, error) {
	h, err := u.fake.Lock(ctx, opts...)
	return untilHold{h, u.at}, err
}

func (u until) TryLock(ctx context.Context, wait, lease time.Duration) (lock.Hold, error) {
	h, err := u.fake.TryLock(ctx, wait, lease)
	return untilHold{h, u.at}, err
}

type untilHold struct {
	lock.Hold
	at time.Time
}

func (h untilHold) ValidUntil() time.Time { return h.at }

// TestMembersWithoutAnEnd: a user's lock without a lease has no end to say. It does not come too late, and the whole
// ends when the others do.
func TestMembersWithoutAnEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		endless := func(name string) lock.Locker { return until{newFake(name), time.Time{}} }
		soon := time.Now().Add(time.Minute)
		for what, c := range map[string]struct {
			members []lock.Locker
			want    time.Time
		}{
			"one of two":          {[]lock.Locker{endless("x"), until{newFake("y"), soon}}, soon},
			"one of three":        {[]lock.Locker{until{newFake("y"), soon.Add(time.Hour)}, endless("x"), until{newFake("z"), soon}}, soon},
			"all of them":         {[]lock.Locker{endless("x"), endless("y")}, time.Time{}},
			"alone":               {[]lock.Locker{endless("x")}, time.Time{}},
			"in another":          {[]lock.Locker{New(endless("x")), until{newFake("y"), soon}}, soon},
			"of a type in a type": {[]lock.Locker{wrapped{New(endless("x"))}, until{newFake("y"), soon}}, soon},
		} {
			m := New(c.members...)
			h, err := m.TryLock(t.Context(), 0, 0)
			if err != nil {
				t.Errorf("%s: TryLock: %v", what, err)
				continue
			}
			check := func(when string) {
				if got := h.ValidUntil(); !got.Equal(c.want) {
					t.Errorf("%s: %s: valid until %v, want %v", what, when, got, c.want)
				}
			}
			check("held")
			if err := h.Extend(t.Context(), time.Hour); err != nil {
				t.Errorf("%s: Extend: %v", what, err)
			}
			check("extended")
			if err := h.Context().Err(); err != nil {
				t.Errorf("%s: %v", what, err)
			}
			if err := h.Unlock(t.Context()); err != nil {
				t.Errorf("%s: Unlock: %v", what, err)
			}
			check("unlocked")
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			if h, err := m.Lock(ctx); err != nil {
				t.Errorf("%s: Lock: %v", what, err)
			} else if err := h.Unlock(ctx); err != nil {
				t.Errorf("%s: Unlock: %v", what, err)
			}
			cancel()
		}
		_, err := New(endless("x"), until{newFake("y"), time.Now().Add(-time.Second)}).TryLock(t.Context(), 0, 0)
		if !errors.Is(err, errTooLate) {
			t.Errorf("a lease that has ended: %v", err)
		}
	})
}

// TestALostMemberWithoutAnEnd: it ends the whole all the same.
func TestALostMemberWithoutAnEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x, y, soon := newFake("x"), newFake("y"), time.Now().Add(time.Minute)
		h, err := New(until{x, time.Time{}}, until{y, soon}).TryLock(t.Context(), time.Second, 0)
		if err != nil {
			t.Fatal(err)
		}
		x.owner.cancel(lock.ErrLeaseLost)
		synctest.Wait()
		if cause := context.Cause(h.Context()); !errors.Is(cause, lock.ErrLeaseLost) {
			t.Errorf("it goes on: %v", cause)
		}
		if got := h.ValidUntil(); !got.Equal(soon) {
			t.Errorf("valid until %v, and was %v", got, soon)
		}
		if err := h.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// wrapped is a user's lock that is a MultiLock inside.
type wrapped struct{ lock.Locker }

func (w wrapped) Lock(ctx context.Context, opts ...lock.AcquireOption) (lock.Hold, error) {
	h, err := w.Locker.Lock(ctx, opts...)
	return extendedHold{h, new(atomic.Int32)}, err
}

func (w wrapped) TryLock(ctx context.Context, wait, lease time.Duration) (lock.Hold, error) {
	h, err := w.Locker.TryLock(ctx, wait, lease)
	return extendedHold{h, new(atomic.Int32)}, err
}
