// Package fairlock provides the fair lock: exclusive and re-entrant like an RLock, and first come, first served across
// all processes and machines. Java's Redisson uses the same queue, so Java and Go waiters are served in one
// order.
//
// Programs get a FairLock from Client.FairLock and need not import this package; the methods of [FairLock] say what
// they promise. docs/SAFETY.md says what happens to waiters that die or stand still, and what a turn costs stands in
// docs/PERFORMANCE.md.
package fairlock

// How the lock works inside. A refresh is a waiter's heartbeat. The skip time ([WithSkipAfter]) is how long after its
// last one a waiter is passed over.
//
// # The queue
//
// The server decides the order: a waiter's first command that finds the lock busy
// puts it at the end of a list. Three keys describe the queue and always change
// together, in scripts:
//
//	list   redisson_lock_queue:{name}    the waiters, the next one first (shared)
//	zset   redisson_lock_timeout:{name}  when Redisson may drop each of them (shared)
//	hash   redlatch_fair:{name}          redlatch's waiters: until when each counts as alive,
//	                                     and what it wants: lease, fencing, trace
//
// If the list or the zset goes alone (dropped for memory, a DEL by hand), the next refresh drops
// the other one, calls Redisson's waiters in it, and puts redlatch's back in the order of
// their arrival. If the hash goes, redlatch's waiters keep their entries and write anew
// what they want.
//
// Liveness and order are separate: the list alone defines the order, and a heartbeat
// never moves a waiter in it. The client sends the heartbeats (refreshes) of all its
// waiters every fifth of the skip time, 128 per command.
//
// # The hand-over
//
//	        Unlock                          ┌─ redlatch's, alive ── hold written, message = grant
//	holder ───────▶ script: drop the dead ──┼─ Redisson's ─── message "0", it takes the lock
//	                first in the list?      ├─ redlatch's, nearly dead ── message, it takes the lock
//	                                        └─ nobody ── the lock is free
//
// A turn is one script and one message, on a channel of the waiter's client: the message
// is the grant. Every script that frees the lock, or finds it free, ends in the same few
// lines (fair_queue.lua): a release, a waiter that gives up, the operator's ForceUnlock,
// a refresh after the holder's lease has run out. So if a lock becomes free without a
// message (its holder died, its key was deleted), the next refresh of any client with a
// waiter hands it over. The answer to a refresh says when the holder's lease, or the time
// of a silent head, ends; the client sends the next refresh at that moment. Nobody polls.
//
// # The grant and its deadline
//
// Another client writes a grant, so its lease can't be counted from a command of the new
// holder. It lasts min(lease, A - now), where A is the time until which the waiter counts
// as alive. A command of the waiter that ran at R had set A to R + skip; the waiter had
// sent that command at some r before R, by its own clock. With r of the last such command
// that has been answered, the local deadline
//
//	r + min(lease, skip) - drift
//
// is not later than the lease's end on the server, on clocks that run at the same rate to
// within the drift:
//
//	1. only a refresh, or queueing up, sets A, to R + skip
//	2. a grant at the server's time G >= R sets the lease to min(lease, A - G): it ends no
//	   earlier than R + min(lease, skip)
//	3. the refresh that was sent at r was answered, so it ran at some R' <= R, and r lies
//	   before R'
//	4. so r + min(lease, skip) lies before the lease's end
//
// A server that comes back with older data has an older life of the place, with an A from before R. So a message counts
// only if the place was made or refreshed since the client last saw a connection break or the keys move. The place has
// a number, which the grant and the answers to refreshes carry, so that an old message is never taken for a newer
// place, and a random nonce, which the grant brings back, so that nobody else's message is taken for one. The watchdog
// raises the hold once to the lease that was asked for, when a quarter of the grant's time has passed; a shorter
// section does not pay for that. If less than half is left, or replica acks are asked for, the waiter confirms the
// grant before Lock returns, by its own acquire command, which finds the grant. The same happens if a refresh tells a
// waiter that it already holds the lock: the message was lost.
//
// # Waiters that die, freeze or leave
//
// The next script of any client drops a head that has been silent for the skip time, and
// all silent waiters behind it. A grant to a waiter that has just died ends at the time at
// which that waiter would have been dropped. So a dead waiter, granted or not, delays the
// others for at most the skip time after its last heartbeat. A process that was stopped for
// longer finds its place gone and queues up again; a grant that it reads then has run out by
// its own clock.
//
// A waiter that leaves is removed at once. Searching a list for an entry in the middle
// takes time in proportion to its length. So if the list has more than 128 entries, all of
// them redlatch's, the entry stays, with score 0 in the zset and nothing in the hash: the
// scripts, and Redisson's too, drop it when it reaches the front. The last entry is never
// left like that, since Redisson computes the next score from it. They are never
// more than half of the list: each departure beyond that searches for one of them. If the
// queue has waiters of Redisson, the entry is searched for.
//
// # Cost
//
// A contended turn is two scripts (queue up; release and hand over) and one message. The
// scripts make 24 Redis calls, the same with 10, 1,000 and 10,000 waiting; the rows
// fair-queue/* in bench/RESULTS.md have the time. If the skip time is longer than
// two and a half leases, most turns cost a third script of 6 calls: a waiter that was
// refreshed more than half a lease ago confirms its grant. Keeping a place alive costs
// about 8 µs per refresh, so 10,000 waiters cost a server 8 % of a core by default. Leaving
// costs a constant or a search, see above; one in a list of 10,000 cost 60 to 90 µs.
//
// A script drops up to 500 dead waiters. If there are more the lock stays free, and the
// next script, which a waiter's next refresh is, goes on: at once, if it was itself told so.
// The same holds for whatever else a neighbour has left in the queue: entries that are no
// waiters, and wants that can't be read, count as dead.
//
// # Scores
//
// Redisson drops a head whose score has passed. When one of its waiters acquires, it
// subtracts that waiter's wait from all scores. A waiter of redlatch gets max(score of the
// last, now + skip), and a minute more behind a waiter of Redisson, for the time that it
// has already waited. Every refresh adds the time since the last one, so that the part
// that Redisson will subtract stays in. If a living waiter is dropped all the same, its
// next refresh puts it back, in front of all that came later.
//
// Redisson's own scores stand still, while those of redlatch's waiters in front of them
// rise. If Redisson's have fallen behind, a refresh lifts them, for two reasons: they
// would be dropped as stale when their turn comes, and a waiter of Redisson that queues up
// behind a last entry in the past is told a negative time, and sleeps until it is called.
// A waiter of Redisson that redlatch's scripts drop as stale is called, so that it tries
// again. Lifting reads all scores, as each acquisition by Redisson does. It happens at most
// twice in a skip time, and only if Redisson's waiters have waited for longer than they
// asked for; with 10,000 waiting, 100 of them Redisson's, it took 6 ms. In queues of more
// than 10,000, or with more than 1,000 of Redisson's, none is lifted.
