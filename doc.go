// Package redlatch provides distributed locks on Redis: re-entrant, fair and read-write locks, several locks as one,
// and quorums over independent servers. They are context-aware, renewed by a watchdog, instrumented with OpenTelemetry,
// and compatible with Java's Redisson: Go and Java programs exclude each other on the same names.
//
//	client, err := redlatch.Open("redis://127.0.0.1:6379", redlatch.WithPrefix("shop:"))
//	if err != nil {
//		return err
//	}
//	defer client.Close()
//
//	hold, err := client.RLock("orders:42").Lock(ctx)
//	if err != nil {
//		return err
//	}
//	err = work(hold.Context())
//	return errors.Join(err, hold.Unlock(ctx)) // or in one call: client.RLock("orders:42").Do(ctx, work)
//
// A lock's name is its Redis key, here shop:orders:42: at most 1,024 bytes, not enclosed in braces as a whole, and none
// of the names that belong to locks' own keys. Use one name for one kind of lock: locks of different kinds exclude each
// other, but a waiter of one kind is not woken by the unlock of another.
//
// # Who owns a lock
//
// The context carries the owner, as the thread does in Java. Each acquisition whose ctx carries no owner makes a new
// owner. So goroutines that share a lock object, or a request's context, exclude each other. [Hold].Context carries the
// owner of the hold: acquiring the same lock with it, or with a context derived from it, re-enters. Goroutines that you
// start inside a critical section with that context are the same owner, and all re-enter. If they must exclude each
// other, give each a context from [NewOwner].
//
// # How long a lock is held
//
// Until Unlock. The key on the server has a lease. The watchdog renews it at a third of [Config].LeaseTime for as long
// as the process lives. A fixed lease, from [WithLease] or TryLock's argument, is never renewed. When the context given
// to Lock ends, the hold's context ends too, but the lock stays held: releasing it while the section still runs would
// let another holder in.
//
// # When a lock is lost
//
// The server can lose a key, and a process can be cut off from the server. Each hold has a local deadline, which passes
// before the lease can run out on the server. When it passes without a renewal, or when a check finds the lock gone,
// [Hold].Context ends with the cause [ErrLeaseLost], and Unlock returns it. Work that watches its context stops in
// time. For other work, use fencing tokens; see [Fenced].
//
// # Errors
//
// [ErrNotAcquired] says that the lock was busy, or that ctx ended. [ErrUnavailable] says that nobody knows, since a
// server failed or was silent. No error of a lock matches both. Each of the sentinels says what to do now;
// docs/COOKBOOK.md has a table of them. Detail types such as [NotAcquiredError] tell more, with errors.As.
//
// Clients, locks and holds are safe for concurrent use.
package redlatch
