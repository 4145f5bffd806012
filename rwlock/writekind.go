package rwlock

import (
	"time"

	"github.com/redlatch/redlatch/internal/conn"
	"github.com/redlatch/redlatch/internal/kind"
	"github.com/redlatch/redlatch/internal/luascript"
	"github.com/redlatch/redlatch/internal/pubsub"
)

// writeKind implements kind.Queuer and kind.Splitter for the write lock.
type writeKind struct{ *keys }

var (
	_ kind.Caller   = writeKind{}
	_ kind.Queuer   = writeKind{}
	_ kind.Splitter = writeKind{}
)

// Traits implements kind.Kind.
func (k writeKind) Traits() *kind.Traits { return &k.writes }

// writeField is the field of a write hold in the lock's hash.
func writeField(field string) string { return field + ":write" }

// with is which of two lists of keys a command takes.
func with(trace bool) int {
	if trace {
		return 1
	}
	return 0
}

// Acquire implements kind.Kind.
func (k writeKind) Acquire(a *kind.Attempt) conn.Command {
	return conn.Command{
		Script: luascript.RWWrite, Keys: k.acquire[with(a.Trace != "")],
		Args: kind.Unless([]string{a.Field, kind.Millis(a.Lease), k.place(a), k.fence, a.Trace, k.publish, k.counts}, a.Field, a.Entry),
	}
}

// Acquired implements kind.Kind.
func (k writeKind) Acquired(a *kind.Attempt, r conn.Reply) kind.Outcome {
	if out, done := kind.Answered(r); done {
		return out
	}
	out := k.busy(a, r)
	if out.LookIn > 0 {
		data(a).until = a.Sent.Add(out.LookIn)
	}
	out.Foreign = kind.Foreign(out.Holder) || r.Int(5) == 1
	return out
}

// Reenter implements kind.Kind.
func (k writeKind) Reenter(f kind.Field, count int, lease time.Duration) conn.Command {
	return k.reenter(writeField(f.Name), k.lock, count, lease)
}

// Release implements kind.Kind.
func (k writeKind) Release(f kind.Field, count int, void time.Duration) conn.Command {
	if count > 0 {
		return kind.Partial(k.keyOnly, writeField(f.Name), count)
	}
	return k.free(f, void, void > 0) // a late command of a lost hold may have left a place
}

// Leave implements kind.Caller: who gives up takes its mark back, which calls the next one.
func (k writeKind) Leave() conn.Command { return conn.Command{} }

// Abandon implements kind.Kind.
func (k writeKind) Abandon(a *kind.Attempt, void time.Duration) conn.Command {
	return k.free(a.Named(), void, true)
}

func (k writeKind) free(f kind.Field, void time.Duration, undo bool) conn.Command {
	return conn.Command{
		Script: luascript.RWWriteRelease, Keys: k.release[with(f.Traced)],
		Args: kind.Unless([]string{
			f.Name, k.channel, k.publish, kind.Millis(void), kind.Flag(f.Traced), kind.Flag(undo), k.counts,
		}, f.Name, kind.EntryOf(f.Name)),
	}
}

// Renew implements kind.Kind.
func (k writeKind) Renew(f kind.Field, lease time.Duration) kind.Item {
	f.Name = writeField(f.Name)
	return kind.RenewBy(luascript.RWRenew, k.renewed[0], k.renewed[1], f, lease)
}

// ReleaseSplit implements kind.Splitter.
func (k writeKind) ReleaseSplit(f kind.Field, count int) conn.Command {
	return k.releaseSplit(writeField(f.Name), count)
}

// RenewSplit implements kind.Splitter.
func (k writeKind) RenewSplit(f kind.Field, lease time.Duration) []conn.Command {
	return k.renewSplit(writeField(f.Name), k.lock, lease)
}

// Wait implements kind.Kind: the writers of a process stand in line.
func (k writeKind) Wait(*kind.Attempt) (pubsub.Spec, []pubsub.Option) { return k.spec, nil }

// Refresh implements kind.Queuer.
func (k writeKind) Refresh(a *kind.Attempt) kind.Item {
	return kind.Item{
		Script: luascript.RWRefresh, Keys: k.places[1], Args: []string{a.Entry, k.skipArg},
		Replies: 2, Shared: true, Head: writeHead,
	}
}

// Refreshed implements kind.Queuer.
func (k writeKind) Refreshed(a *kind.Attempt, vals []conn.Value, _ time.Time) (bool, time.Duration) {
	return k.refreshed(a, vals), 0
}
