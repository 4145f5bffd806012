package rwlock

import (
	"strconv"
	"time"

	"github.com/redlatch/redlatch/internal/conn"
	"github.com/redlatch/redlatch/internal/kind"
	"github.com/redlatch/redlatch/internal/luascript"
	"github.com/redlatch/redlatch/internal/pubsub"
)

// readKind implements kind.Queuer and kind.Splitter for the read lock.
type readKind struct{ *keys }

var (
	_ kind.Queuer   = readKind{}
	_ kind.Splitter = readKind{}
)

// The answers of rw_read to who enters while writers wait: in its turn, or ahead of those
// that came later.
const (
	inTurn    = 3
	pastLater = 4
)

// Traits implements kind.Kind.
func (k readKind) Traits() *kind.Traits { return &k.reads }

// own is the timeout key of a field.
func (k readKind) own(field string) string { return luascript.RWTimeoutKey(k.lock, field) }

// Acquire implements kind.Kind.
func (k readKind) Acquire(a *kind.Attempt) conn.Command {
	list := append(make([]string, 0, 10), k.lock, k.void, k.leases, k.own(a.Field), k.writers, k.marks, k.readers, k.turn)
	if k.token != "" {
		list = append(list, k.token)
	}
	if a.Trace != "" {
		list = append(list, k.trace)
	}
	came, other := "", ""
	if w, ok := a.Data.(*waiting); ok {
		came = w.came
	}
	if a.Other != "" {
		other = writeField(a.Other)
	}
	return conn.Command{
		Script: luascript.RWRead, Keys: list,
		Args: kind.Unless([]string{
			a.Field, kind.Millis(a.Lease), came, other, kind.Flag(k.prefer), k.place(a), k.fence, a.Trace, k.publish, k.counts,
		}, a.Field, a.Entry),
	}
}

// Acquired implements kind.Kind.
func (k readKind) Acquired(a *kind.Attempt, r conn.Reply) kind.Outcome {
	switch out, done := kind.Answered(r); {
	case done:
		// A retry that finds its own field does not look for writers.
		if out.Open = out.Acquired && !out.Renewed && a.Other == ""; out.Open {
			if w, ok := a.Data.(*waiting); ok && w.came != "" {
				out.Along = a.Sent
			}
		}
		return out
	case r.Code == inTurn, r.Code == pastLater:
		out = kind.Outcome{Acquired: true, Token: kind.Token(r, 1)}
		if a.Other == "" {
			out.Along = k.along(a, r)
		}
		return out
	}
	out := k.busy(a, r)
	w := data(a)
	w.marked = r.Int(6) == 1
	if w.came == "" {
		w.came, w.sent = strconv.FormatInt(r.Int(5), 10), a.Sent
		w.often = w.marked // from the place's first refresh on
	}
	if w.marked {
		out.RefreshIn = marksEvery
		if !w.often { // that a refresh is due so soon is not known yet
			out.LookIn = min(out.LookIn, marksEvery)
		}
	}
	return out
}

// marksEvery is how often a reader behind a writer's mark is refreshed at least: a mark may end sooner than
// told, by a call that nobody answers or since its writer is found dead, and then there is no message. One
// command does it for all of a client that wait for a lock.
const marksEvery = time.Second

// along is since when readers of this process must have waited to come along with one that
// enters while writers wait: whoever waited at the write unlock that began the turn would be
// of the turn, too, and who came before the first of the writers need not wait for it.
func (k readKind) along(a *kind.Attempt, r conn.Reply) time.Time {
	if r.Code == inTurn {
		return a.Sent
	}
	w, ok := a.Data.(*waiting)
	if !ok || w.came == "" {
		return time.Time{}
	}
	at := w.sent.Add(time.Duration(r.Int(2)) * time.Microsecond)
	if a.Sent.Before(at) {
		return a.Sent
	}
	return at
}

// Reenter implements kind.Kind.
func (k readKind) Reenter(f kind.Field, count int, lease time.Duration) conn.Command {
	return k.reenter(f.Name, k.own(f.Name), count, lease)
}

// Release implements kind.Kind.
func (k readKind) Release(f kind.Field, count int, void time.Duration) conn.Command {
	if count > 0 {
		return kind.Partial(k.keyOnly, f.Name, count)
	}
	return k.free(f, void, void > 0) // a late command of a lost hold may have left a place
}

// Abandon implements kind.Kind.
func (k readKind) Abandon(a *kind.Attempt, void time.Duration) conn.Command {
	return k.free(a.Named(), void, true)
}

func (k readKind) free(f kind.Field, void time.Duration, undo bool) conn.Command {
	list := append(make([]string, 0, 9), k.lock, k.void, k.leases, k.own(f.Name), k.readers, k.turn, k.writers, k.marks)
	if f.Traced {
		list = append(list, k.trace)
	}
	return conn.Command{
		Script: luascript.RWReadRelease, Keys: list,
		Args: kind.Unless([]string{
			f.Name, k.channel, k.publish, kind.Millis(void), k.prefix, kind.Flag(f.Traced), kind.Flag(undo), k.counts,
		}, f.Name, kind.EntryOf(f.Name)),
	}
}

// Renew implements kind.Kind.
func (k readKind) Renew(f kind.Field, lease time.Duration) kind.Item {
	traced := []string{k.lock, k.leases, k.own(f.Name), k.trace, k.trace, k.trace}
	return kind.RenewBy(luascript.RWRenew, traced[:3:3], traced, f, lease)
}

// ReleaseSplit implements kind.Splitter.
func (k readKind) ReleaseSplit(f kind.Field, count int) conn.Command {
	return k.releaseSplit(f.Name, count)
}

// RenewSplit implements kind.Splitter.
func (k readKind) RenewSplit(f kind.Field, lease time.Duration) []conn.Command {
	return k.renewSplit(f.Name, k.own(f.Name), lease)
}

var shared = []pubsub.Option{pubsub.Shared()}

// Wait implements kind.Kind: readers enter together.
func (k readKind) Wait(*kind.Attempt) (pubsub.Spec, []pubsub.Option) { return k.spec, shared }

// Refresh implements kind.Queuer.
func (k readKind) Refresh(a *kind.Attempt) kind.Item {
	came := ""
	if !k.prefer {
		came = data(a).came
	}
	return kind.Item{
		Script: luascript.RWRefresh, Keys: k.places[0], Args: []string{a.Entry, k.skipArg, came},
		Replies: 2, Shared: true, Head: readHead,
	}
}

var readHead, writeHead = []string{"r"}, []string{"w"}

// Refreshed implements kind.Queuer.
func (k readKind) Refreshed(a *kind.Attempt, vals []conn.Value, _ time.Time) (wake bool, next time.Duration) {
	w := data(a)
	if w.often = w.marked; w.often {
		next = marksEvery
	}
	return k.refreshed(a, vals), next
}
