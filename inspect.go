package redlatch

import (
	"context"
	"iter"

	"github.com/redlatch/redlatch/internal/inspect"
	"github.com/redlatch/redlatch/internal/settings"
)

// Inspect asks the server for the state of the lock of this name, of any kind: who
// holds it, where and since when, who waits, and in which order. A lock without holders
// and waiters has [KindNone].
//
// It is for operators. It runs one script, and reads the server's list of connections at
// most once a second to find the process of a client. Without permission for CLIENT LIST,
// or if a master does not answer in time, the processes are not named.
//
// It blocks until the server answers, ctx ends (ctx.Err()) or the Client's UnlockTimeout
// has passed ([ErrUnavailable]). If the name is one that locks refuse, or the key is not a
// lock, it returns [ErrInvalidName]; refusing costs the same whatever the key holds. If the
// server refuses for good (a missing permission), it returns a [*ServerError].
func (c *Client) Inspect(ctx context.Context, name string) (Inspection, error) {
	return c.inspector.Inspect(ctx, name)
}

// Locks iterates over the held locks whose names match pattern, a glob as in Redis
// (h?llo, orders:*; "" matches all). It uses SCAN, in batches, on every master of a
// cluster in turn, and skips keys that are not locks. Each lock comes once, and shows at
// most 16 of its holders and of its waiters. A lock that is taken or freed meanwhile may
// be missing or out of date.
//
// What looks like a lock and can't be read, because a key beside it is of another type, is one row with
// [KindUnknown] and a Problem: it never fails the list. Names too long for a lock are skipped; a last row with
// KindUnknown counts them.
//
// The pattern applies to the part after Config.Prefix. With a NameMapper it applies to
// the mapped name, which is also the Name of the result. On a cluster, keys whose derived
// keys would be in other slots are left out.
//
// Each step of the loop may ask for the next batch, and the first one for the cluster's
// masters. Each of these questions blocks until the server answers, ctx ends or UnlockTimeout
// has passed, with the errors of Inspect. The first error ends the iteration and comes
// with a zero Inspection. The loop may be left at any time.
func (c *Client) Locks(ctx context.Context, pattern string) iter.Seq2[Inspection, error] {
	return c.inspector.Locks(ctx, pattern)
}

// ForceUnlock takes the lock of this name, of any kind, away from its holders. Then it
// does what an unlock does: it hands a fair lock over to the first in the queue, and wakes
// the waiters of other kinds. It reports whether it ended a hold. If nobody holds the lock
// it still wakes the waiters: that helps after a DEL by hand, which wakes nobody.
//
// With [IfOwner] or [IfOwners] it ends the holds of those owners only: the server compares, in the same step. If
// only others hold the lock it returns [ErrOtherOwner], which names one of them, and changes nothing. An empty
// owner is an [ErrInvalidOption].
//
// The holder learns of the loss only at its next check, up to a third of its LeaseTime
// later: make sure that it has stopped working, or use fencing. Holds of this Client are
// checked at once: their contexts end a round trip later. If the name is one that locks
// refuse, or the key is not a lock, ForceUnlock returns [ErrInvalidName] and changes
// nothing.
//
// It blocks until the server answers, ctx ends or UnlockTimeout has passed. After an
// [ErrUnavailable] or the end of ctx it is not known whether the lock was taken away.
//
// If it returns true together with a [*ServerError], the lock was taken away, and nobody was woken, for instance since
// PUBLISH is not permitted: redlatch's waiters look by themselves within seconds, other libraries' when the lease would
// have ended. A forced unlock is logged, with the Client's name, and recorded as a span; with [Recorded] also in the
// history on the server.
func (c *Client) ForceUnlock(ctx context.Context, name string, opts ...ForceOption) (bool, error) {
	set := settings.Of[settings.Force](opts)
	e, err := c.forceUnlock(ctx, name, set)
	if e.Count > 0 && set.Recorded {
		c.inspector.Record(ctx, name, e, set)
	}
	return e.Count > 0, err
}

func (c *Client) forceUnlock(ctx context.Context, name string, set settings.Force) (e inspect.Evicted, err error) {
	over, answered := c.core.Doubt(name), false
	defer func() { over(answered, e) }() // an observer, or a log handler, may panic
	e, err = c.inspector.ForceUnlock(ctx, name, set)
	answered = err == nil || e.Refused != nil || e.Kind != "" // only an answer says the kind
	return e, err
}

// Evictions reads the history of evictions, the newest first: what ForceUnlock with [Recorded] has noted of the lock of
// this name, or of all locks under the Client's prefix if name is "". It returns at most limit of them; a limit
// outside 1 to 1,000 is an [ErrInvalidOption]. Of entries that redlatch did not write it reads a limited number.
//
// It blocks and fails as Inspect does.
func (c *Client) Evictions(ctx context.Context, name string, limit int) ([]Eviction, error) {
	return c.inspector.Evictions(ctx, name, limit)
}
