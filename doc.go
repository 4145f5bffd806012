// Package redlatch is distributed locks on Redis: re-entrant, fair and
// read-write locks and locks made of several, shared with Java's Redisson on the
// wire, aware of contexts, observed by OpenTelemetry.
//
//	client, err := redlatch.Open("redis://127.0.0.1:6379")
//	defer client.Close()
//
//	hold, err := client.RLock("orders:42").Lock(ctx)
//	if err != nil {
//		return err
//	}
//	defer hold.Unlock(ctx)
//	return work(hold.Context())
//
// # Who owns a lock
//
// The context is what the thread is in Java. Each acquisition whose ctx carries
// no owner is a new owner, so goroutines that share a lock object, or a request
// context, exclude each other. [Hold].Context carries the owner: an acquisition
// of the same lock with it, or with a context derived from it, re-enters.
// Goroutines started inside a critical section with that context are therefore
// the same owner and all re-enter; those that must compete with each other use
// [NewOwner] first.
//
// # How long a lock is held
//
// Until Unlock. The key on the server has a lease, which a watchdog renews at a
// third of [Config].LeaseTime while the process lives; or a fixed lease, with
// [WithLease] or TryLock's argument, which nothing renews. The end of the
// context given to Lock ends the hold's context but does not unlock: a lock that
// is given away under a running critical section is no lock.
//
// # When a lock is lost
//
// The server can lose a key, and a process can be cut off from it. Each hold has
// a local deadline, before which the server can't have let the lease run out.
// When it passes without a renewal, or when a check finds the lock gone,
// [Hold].Context ends with the cause [ErrLeaseLost], and Unlock returns it. Work
// that watches the context stops in time; for work that can't, ask for fencing
// tokens with [Fenced].
//
// All types are safe for concurrent use.
package redlatch
