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

// writeKind implements engine.Kind and engine.Queuer for the write lock.
type writeKind struct{ *keys }

var _ engine.Queuer = writeKind{}

// writeField is the field of a write hold in the lock's hash.
func writeField(field string) string { return field + ":write" }

// Type implements engine.Kind.
func (k writeKind) Type() string { return "write" }

// Mode implements engine.Kind.
func (k writeKind) Mode() lock.Mode { return lock.ModeWrite }

// Acquire implements engine.Kind.
func (k writeKind) Acquire(a *engine.Attempt) conn.Command {
	list := make([]string, 6, 8)
	list[0], list[1], list[2], list[3], list[4], list[5] = k.lock, k.void, k.leases, k.writers, k.marks, k.turn
	return conn.Command{
		Script: luascript.RWWrite, Keys: k.extra(list, a),
		Args: []string{a.Field, engine.Millis(a.Lease), k.place(a), k.fence, a.Trace},
	}
}

// Acquired implements engine.Kind.
func (k writeKind) Acquired(a *engine.Attempt, r conn.Reply) engine.Outcome {
	switch r.Code {
	case 1, 2:
		return engine.Outcome{Acquired: true, Renewed: r.Code == 2, Token: uint64(r.Int(1))} // #nosec G115 -- never negative
	case -1:
		return engine.Outcome{Void: true}
	}
	out := k.busy(a, r)
	if out.LookIn > 0 {
		data(a).until = time.Now().Add(out.LookIn)
	}
	return out
}

// Reenter implements engine.Kind.
func (k writeKind) Reenter(s *engine.Session, count int, lease time.Duration) conn.Command {
	return k.reenter(writeField(s.Field), k.lock, count, lease)
}

// Release implements engine.Kind.
func (k writeKind) Release(s *engine.Session, count int, lease, void time.Duration) conn.Command {
	return engine.Lowering(k.release(s.Field, count, lease, void, s.Traced, false), s, count)
}

// Abandon implements engine.Kind.
func (k writeKind) Abandon(a *engine.Attempt, void time.Duration) conn.Command {
	return k.release(a.Field, 0, 0, void, len(a.Trace) > 1, true)
}

func (k writeKind) release(field string, count int, lease, void time.Duration, traced, undo bool) conn.Command {
	list := make([]string, 5, 8)
	list[0], list[1], list[2], list[3], list[4] = k.lock, k.void, k.leases, k.readers, k.turn
	if undo {
		list = append(list, k.writers, k.marks)
	}
	if traced {
		list = append(list, k.trace)
	}
	return conn.Command{
		Script: luascript.RWWriteRelease, Keys: list,
		Args: []string{
			field, strconv.Itoa(count), engine.Millis(lease), k.channel, k.publish, engine.Millis(void),
			flag(traced), flag(undo),
		},
	}
}

// Renew implements engine.Kind.
func (k writeKind) Renew(s *engine.Session, lease, _ time.Duration) engine.Item {
	return k.renew(s, writeField(s.Field), k.lock, lease)
}

// Wait implements engine.Kind: the writers of a process stand in line.
func (k writeKind) Wait(*engine.Attempt) (pubsub.Spec, []pubsub.Option) { return k.spec(), nil }

// Refresh implements engine.Queuer.
func (k writeKind) Refresh(a *engine.Attempt) engine.Item {
	return engine.Item{
		Script: luascript.RWRefresh, Keys: []string{k.marks, k.writers, k.lock, k.leases},
		Args: []string{a.Field, engine.Millis(k.skip)}, Replies: 2, Shared: true, Head: []string{"w"},
	}
}

// Refreshed implements engine.Queuer.
func (k writeKind) Refreshed(a *engine.Attempt, vals []conn.Value, _ time.Time) (bool, time.Duration) {
	return k.refreshed(a, vals), 0
}

// ReadState implements engine.Kind.
func (k writeKind) ReadState(r conn.Reply) (lock.State, error) { return readState(r) }

// ForceUnlock implements engine.Kind.
func (k writeKind) ForceUnlock() conn.Command { return k.force(lock.ModeWrite) }
