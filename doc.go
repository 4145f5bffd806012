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
// Clients, locks and holds are safe for concurrent use.
//
// # Clients
//
// [Open] takes a URL, [New] a [Config], [NewWithClient] a rueidis client that you have. A process needs one Client.
// [Client.Shutdown] ends it once its locks are unlocked, [Client.Close] at once.
//
// # Locks
//
//	client.RLock(name)          one holder at a time, re-entrant
//	client.FairLock(name)       the same, in order of arrival over all processes
//	client.ReadWriteLock(name)  ReadLock() for any number of readers, WriteLock() for one writer
//	MultiLock(a, b)             all of them, or none
//	QuorumLock(a, b, c)         a majority of the copies of one lock, on independent servers
//	client.Once(name)           a job at most once per period, over all replicas; it uses the RLock of that name
//
// All but Once have these calls. Of a ReadWriteLock, its ReadLock and its WriteLock have them.
//
//	Lock(ctx, opts...) (Hold, error)         waits until it has the lock or ctx ends
//	TryLock(ctx, wait, lease) (Hold, error)  waits for at most wait (0: one attempt); lease 0: the watchdog renews it
//	Do(ctx, fn, opts...) error               Lock, fn, Unlock; DoFenced(ctx, lock, fn) also gives fn the token
//	TryDo(ctx, wait, lease, fn) error        TryLock, fn, Unlock
//	State(ctx) (State, error)                the lock's holders and queue; Client.Inspect tells more
//	ForceUnlock(ctx) (bool, error)           takes the lock away from its holders
//	Name() string
//
// A lock's Redis key is the prefix and the name, here shop:orders:42. It has at most 1,024 bytes, is not all in braces,
// and is not reserved: the README lists the rules under Names. Use one name for one kind of lock: locks of different
// kinds exclude each other, but the unlock of one kind does not wake the waiters of another.
//
// # Holds
//
// A [Hold] is one acquisition. It has the methods Context, Unlock, Extend, Token, ValidUntil, Name and Owner. Like many
// types here it is an alias for a type of package lock: go doc lock.Hold shows the signatures.
//
// The context carries the owner, as the thread does in Java. If ctx carries no owner, the acquisition makes a new one.
// So goroutines that share a lock object, or a request's context, exclude each other. To re-enter, acquire the same
// lock with the hold's context, or with one derived from it. Goroutines to which you give that context are the same
// owner, and all re-enter. If they must exclude each other, give each a context from [NewOwner].
//
// The lock is held until Unlock. Its key on the server has a lease, which the watchdog renews every third of
// [Config].LeaseTime while the process lives. A fixed lease, from [WithLease] or TryLock's argument, is not prolonged:
// the hold ends with it. When the context given to Lock ends, the hold's context ends too. But the lock stays held:
// releasing it while the section still runs would let another holder in.
//
// A lock can be lost: the server can lose a key, and a process can be cut off from the server. So a hold has a local
// deadline, which passes before the lease can run out on the server. When the deadline passes without a renewal, or
// when the watchdog finds the lock gone, the hold's context ends with the cause [ErrLeaseLost], and Unlock returns this
// error. Work that watches its context stops then. Fence what must not be written late: [Fenced].
//
// # Options
//
// Of a lock: [Fenced], [WithSkipAfter], [PreferReaders], [ShareReads]. Of an acquisition: [WithLease]. Of [Open]: the
// functions that return a [ConfigOption]; [WithConfig] reaches every field of Config.
//
// # Errors
//
// [ErrNotAcquired] says that the wait, or ctx, ended without the lock. [ErrUnavailable] says that a server failed or
// was silent. No error of Lock or TryLock matches both. Each sentinel's comment says what to do; docs/COOKBOOK.md has a
// table of them. Detail types such as [NotAcquiredError] tell more, with errors.AsType.
//
// # For operators
//
// [Client.Held], [Client.HeldHandler], [Client.Inspect] and [Client.Locks] show locks of any kind, [Client.ForceUnlock]
// evicts holders, [Client.Evictions] lists who evicted whom. The command redlatch is made of them; docs/OPERATIONS.md
// is the runbook. Package lock defines what they return: go doc lock.Inspection describes each field.
package redlatch
