package rwlock

import (
	"strconv"
	"time"

	"github.com/redlatch/redlatch/internal/conn"
	"github.com/redlatch/redlatch/internal/engine"
	"github.com/redlatch/redlatch/internal/luascript"
	"github.com/redlatch/redlatch/internal/pubsub"
	"github.com/redlatch/redlatch/lock"
)

// readKind implements engine.Kind and engine.Queuer for the read lock.
type readKind struct{ *keys }

var _ engine.Queuer = readKind{}

// Type implements engine.Kind.
func (k readKind) Type() string { return "read" }

// Mode implements engine.Kind.
func (k readKind) Mode() lock.Mode { return lock.ModeRead }

// Acquire implements engine.Kind.
func (k readKind) Acquire(a *engine.Attempt) conn.Command {
	list := make([]string, 8, 10)
	list[0], list[1], list[2], list[3] = k.lock, k.void, k.leases, luascript.RWTimeoutKey(k.lock, a.Field)
	list[4], list[5], list[6], list[7] = k.writers, k.marks, k.readers, k.turn
	came, other := "", ""
	if w, ok := a.Data.(*waiting); ok {
		came = w.came
	}
	if a.Other != "" {
		other = writeField(a.Other)
	}
	return conn.Command{
		Script: luascript.RWRead, Keys: k.extra(list, a),
		Args: []string{a.Field, engine.Millis(a.Lease), came, other, flag(k.prefer), k.place(a), k.fence, a.Trace},
	}
}

// Acquired implements engine.Kind.
func (k readKind) Acquired(a *engine.Attempt, r conn.Reply) engine.Outcome {
	switch r.Code {
	case 1, 2:
		return engine.Outcome{Acquired: true, Renewed: r.Code == 2, Token: uint64(r.Int(1))} // #nosec G115 -- never negative
	case -1:
		return engine.Outcome{Void: true}
	}
	out := k.busy(a, r)
	w := data(a)
	if w.came == "" {
		w.came = strconv.FormatInt(r.Int(5), 10)
	}
	// The script knows when each of our own writers ends. Another library's
	// may downgrade without a message: the refreshes must look for it.
	w.alien = out.Holder != "" && out.LookIn == 0
	return out
}

// Reenter implements engine.Kind.
func (k readKind) Reenter(s *engine.Session, count int, lease time.Duration) conn.Command {
	return k.reenter(s.Field, luascript.RWTimeoutKey(k.lock, s.Field), count, lease)
}

// Release implements engine.Kind.
func (k readKind) Release(s *engine.Session, count int, lease, void time.Duration) conn.Command {
	return engine.Lowering(k.release(s.Field, count, lease, void, s.Traced, false), s, count)
}

// Abandon implements engine.Kind.
func (k readKind) Abandon(a *engine.Attempt, void time.Duration) conn.Command {
	return k.release(a.Field, 0, 0, void, len(a.Trace) > 1, true)
}

func (k readKind) release(field string, count int, lease, void time.Duration, traced, undo bool) conn.Command {
	list := make([]string, 5, 8)
	list[0], list[1], list[2], list[3], list[4] = k.lock, k.void, k.leases, luascript.RWTimeoutKey(k.lock, field), k.marks
	if undo {
		list = append(list, k.readers, k.turn)
	}
	if traced {
		list = append(list, k.trace)
	}
	return conn.Command{
		Script: luascript.RWReadRelease, Keys: list,
		Args: []string{
			field, strconv.Itoa(count), engine.Millis(lease), k.channel, k.publish, engine.Millis(void),
			k.prefix, flag(traced), flag(undo),
		},
	}
}

// Renew implements engine.Kind.
func (k readKind) Renew(s *engine.Session, lease, _ time.Duration) engine.Item {
	return k.renew(s, s.Field, luascript.RWTimeoutKey(k.lock, s.Field), lease)
}

// Wait implements engine.Kind: readers enter together.
func (k readKind) Wait(*engine.Attempt) (pubsub.Spec, []pubsub.Option) {
	return k.spec(), []pubsub.Option{pubsub.Shared()}
}

// Refresh implements engine.Queuer.
func (k readKind) Refresh(a *engine.Attempt) engine.Item {
	return engine.Item{
		Script: luascript.RWRefresh, Keys: []string{k.readers, k.turn, k.lock, k.leases},
		Args: []string{a.Field, engine.Millis(k.skip)}, Replies: 2, Shared: true, Head: []string{"r"},
	}
}

// Refreshed implements engine.Queuer.
func (k readKind) Refreshed(a *engine.Attempt, vals []conn.Value, _ time.Time) (bool, time.Duration) {
	return k.refreshed(a, vals), 0
}

// ReadState implements engine.Kind.
func (k readKind) ReadState(r conn.Reply) (lock.State, error) { return readState(r) }

// ForceUnlock implements engine.Kind.
func (k readKind) ForceUnlock() conn.Command { return k.force(lock.ModeRead) }
