// Package fairlock provides the fair lock: exclusive and re-entrant like the plain
// one, and first come, first served over all processes and machines. Its queue on
// the server is that of Redisson's fair lock, so Java and Go waiters stand in one
// line.
//
// # The queue
//
// The server decides the order: a waiter's first command that finds the lock busy
// puts it at the end of a list. Three keys describe the queue and always change
// together, in scripts:
//
//	list   redisson_lock_queue:{name}    who waits, the next one first (shared)
//	zset   redisson_lock_timeout:{name}  when Redisson may drop each of them (shared)
//	hash   redlatch_fair:{name}          our waiters: until when each counts as alive,
//	                                     and what it wants: lease, fencing, trace
//
// Liveness and order are separate: the list alone defines the order, and a sign of
// life never moves a waiter in it. The watchdog's scheduler sends the signs of life
// of all waiters of a client, every fifth of the skip time, 128 per command.
//
// # The hand-over
//
//	        Unlock                          ┌─ ours, alive ── hold written, message = grant
//	holder ───────▶ script: drop the dead ──┼─ Redisson's ─── message "0", it takes the lock
//	                first in the list?      ├─ ours, nearly dead ── message, it takes the lock
//	                                        └─ nobody ── the lock is free
//
// One script and one message per turn, on a channel of the waiter's client: what
// the waiter receives is the lock. Whatever frees the lock, or finds it free, ends
// in the same few lines (fair_queue.lua): a release, a waiter that gives up, the
// operator's ForceUnlock, the refresh of anybody's place after the holder's lease
// has run out. So a lock that became free without a message (its holder died, its
// key was deleted) is given away by the next refresh of any client with a waiter;
// a refresh's answer says when the holder's lease, or the time of a silent head,
// ends, and the next one comes at that moment. Nobody polls.
//
// # The grant and its deadline
//
// A grant is a hold written by somebody else, so its lease can't be counted from a
// command of the holder's. It lasts min(lease, A - now), where A is the time until
// which the waiter counts as alive. A was set to R + skip by a command of the
// waiter's that ran at R, and that it sent at some r before R by its own clock.
// With r of the last such command whose answer it has got, the local deadline
//
//	r + min(lease, skip) - drift
//
// is not later than the lease's end on the server; see docs/SAFETY.md. The place
// has a number, which the grant and the answers to refreshes carry, so that an old
// message never meets a newer place. The watchdog confirms the hold once up to its
// asked lease when a quarter of that time has passed; a shorter section never pays
// for it. Where less than half is left, or replica acks are asked for, the waiter
// confirms before Lock returns, by its own acquire command, which finds the grant.
// The same happens when a refresh tells a waiter that it holds the lock already:
// the message was lost.
//
// # Who dies, freezes or leaves
//
// A head that has been silent for the skip time is dropped by whatever comes next,
// and all silent ones behind it in the same script. A grant to one that has just
// died ends with the time at which it would have been dropped, so neither costs
// more than the skip time after its last sign of life. A process that was stopped
// for longer finds its place gone and queues up again; a grant that it reads then
// has run out by its own clock.
//
// A waiter that leaves is taken off at once. Searching a list for an entry in its
// middle costs time in proportion to the length, so beyond 128 entries, and when
// all are ours, the entry stays, with score 0 in the zset and nothing in the hash:
// everybody, Redisson too, drops it when it comes to the front. The last entry is
// never such a one, since Redisson computes the next one's score from it; and when
// they are half of the list it is made anew, which so many departures have paid
// for. Where waiters of Redisson stand in the queue, the entry is searched for.
//
// # Cost
//
// A contended turn is two scripts (queue up; release and hand over) and one
// message, 25 calls inside and about 35 µs of a server on the machine where this
// was written, the same with 10, 1,000 and 10,000 waiting. Keeping a place alive
// costs about 8 µs per refresh, so 10,000 waiters cost a server 8 % of a core by
// default. Leaving costs a constant, see above; a search in a list of 10,000 cost
// 60 to 90 µs. Dropping 10,000 dead waiters in a row took one script of 34 ms.
//
// # Scores
//
// Redisson drops a head whose score has passed, and takes the wait of whoever
// acquires off all scores. Our waiters get max(score of the last, now + skip), a
// minute more behind one of Redisson's, for what that one has waited already; every
// refresh adds the time since the last one, so that the part which Redisson will
// take off stays in. A living waiter that is dropped all the same is put back by
// its next refresh, before all that came later.
//
// Redisson's own scores stand still, while those of ours in front of them rise.
// Where they have fallen behind, a refresh lifts them, for two reasons: they would
// be dropped as stale when their turn comes, and a waiter of Redisson that queues
// up anew behind a last entry in the past is told a negative time, and sleeps until
// it is called. One that our scripts drop as stale is called, so that it looks again.
// Lifting reads all scores, as each acquisition by Redisson does; it happens no more
// than twice in a skip time, and only when its waiters have waited for longer than
// they asked for; with 10,000 waiting, 100 of them Redisson's, it cost 6 ms.
package fairlock
