package redlatch

import (
	"context"
	"iter"

	"github.com/redlatch/redlatch/lock"
)

// Inspect asks the server for the state of the lock of this name, of whatever kind it
// is: who holds it, where and since when, who waits, in which order. A lock that
// nobody holds or waits for has [KindNone].
//
// It is for operators: one script, and the server's list of connections (read at most
// once a second) to tell which process a client is. Without permission for CLIENT LIST the
// processes are not named.
//
// It blocks until the server answers, ctx ends or the Client's UnlockTimeout has
// passed ([ErrUnavailable]). A key of this name that is no lock is an [ErrInvalidName],
// found out at a cost that does not depend on what it holds.
func (c *Client) Inspect(ctx context.Context, name string) (Inspection, error) {
	return c.inspector.Inspect(ctx, name)
}

// Locks iterates over the locks that are held, or were when the server was asked, whose
// names match pattern, a glob as in Redis (h?llo, orders:*; "" is all). It asks by SCAN,
// every master of a cluster in turn, in batches, and looks at each key whether it is a lock:
// application data is none. Each lock comes once, with at most 16 holders and waiters of
// those that it counts. A lock that is taken or freed meanwhile may be missing or out of date.
//
// The pattern is matched behind Config.Prefix; with a NameMapper it is matched with the
// mapped name, which is also what Name says. On a cluster keys whose locks could not keep to one
// slot are left out.
//
// It blocks as the loop goes on: each batch until the server answers, ctx ends or
// UnlockTimeout has passed. The first error ends the iteration: it comes with a zero
// Inspection.
func (c *Client) Locks(ctx context.Context, pattern string) iter.Seq2[Inspection, error] {
	return c.inspector.Locks(ctx, pattern)
}

// ForceUnlock takes the lock of this name, of whatever kind it is, away from whoever
// holds it: all holds of a read-write lock. It then does what an unlock does: it hands a fair
// lock over to the first in the queue, and wakes those who wait for another one. It reports
// whether it ended a hold. When nothing is held it wakes those who wait all the same: that helps after a
// DEL by hand, which tells nobody.
//
// With [IfOwner] it ends the holds of one owner or none: when others hold the lock it
// returns [ErrOtherOwner], with whom, and touches nothing.
//
// The holder learns of it at its next check only, up to a third of its LeaseTime later:
// make sure that it does not work on, or fence. A key that is no lock is not touched and an
// [ErrInvalidName]. It blocks until the server answers, ctx ends or UnlockTimeout has
// passed; after an [ErrUnavailable] or the end of ctx it is open whether the lock was
// taken away. True together with a [*ServerError] says that it was, and that the server refused to
// let those who wait know: they go on when the lease would have ended. It is logged, with the Client's name, and leaves a span.
func (c *Client) ForceUnlock(ctx context.Context, name string, opts ...ForceOption) (bool, error) {
	over := c.core.Doubt(name)
	e, err := c.inspector.ForceUnlock(ctx, name, lock.ApplyForce(opts).Owner)
	over(err == nil)
	return e.Count > 0, err
}
