// Package multilock combines several locks into one. [New] combines different locks: it takes all of them or none.
// [NewQuorum] combines copies of one lock on independent servers: it takes a majority (the Redlock algorithm).
//
// Programs call redlatch.MultiLock or redlatch.QuorumLock and need not import this package; the methods of [MultiLock]
// say what they promise. docs/SAFETY.md says what a quorum guarantees, and what it does not.
package multilock

// How both work inside.
//
// # All of several locks
//
// The members are grouped into units:
//
//   - all RLocks of one client and cluster slot are one unit: one
//     script takes all of them or none, and one script frees them;
//   - every other member is a unit of its own. A MultiLock as a member counts as
//     its members.
//
// The engine takes a single unit like any single lock: it waits for the unlock message
// of the member that was busy. With several units, a round works like this:
//
//	  ┌── every unit is tried, all at once ──┐
//	  │                                      │
//	all are ours                     one is busy, or gave no answer
//	  │                                      │
//	 hold              what was taken is given back, at once; a random pause;
//	                   wait for the busy unit *by taking it*, as a single lock is
//	                   waited for, then try all others, all at once ──┐
//	                                         ▲                        │
//	                                         └── one is busy ◄────────┘
//
// A lock that is named twice is taken once. If both locks of a read-write lock are
// named, only the write lock is taken, since its owner may read.
//
// So a MultiLock holds nothing while it waits: two MultiLocks can't deadlock, in
// whatever order they name their members, and neither can a MultiLock and code that takes
// the same locks one by one. Two that keep blocking each other are separated by the
// random pause, which grows from round to round. If several units are busy, the MultiLock
// waits for the first one in canonical order (name, address, database). So all
// that want the same locks wait in the same line, instead of getting in each other's way.
// If a unit's node fails, or is known to, the MultiLock waits for that unit: the others are not
// held while it does not answer.
//
// Fair members are the exception: an attempt without waiting never bypasses their queue.
// In a round that began with waiting, the MultiLock queues for them once it has all others:
// one by one in canonical order, and for at most a tenth of the lease. It does not queue for one
// that comes before a fair member that it has waited for: if it is refused there, it gives that
// back and waits for the earlier one first. So crowds don't stand in each other's queues.
//
// A closed client ends the wait at the next try, not at once: to watch all clients takes a select over as many channels.
// A quorum's waiter is signalled, since a place that it keeps would hold up Close.
//
// # A majority of copies
//
// Each copy is asked at once, with a time limit per node far below the lease. The
// round is won when a majority is held and still valid:
//
//	validity = lease - elapsed - drift, on each node; the hold is valid while a majority is
//
// A lost round frees all nodes, even those that have not answered: what they grant is given back
// when the answer comes. What they refuse is kept: a quorum of read or write locks has its place
// among the waiters of each copy (engine.Bid), so that readers that overlap without an end stand
// back for it. It keeps nothing while it rests or stands in line. The next round begins when unlock
// messages arrive from the nodes. If nobody in particular is in the way (too few nodes answered, or
// answered in time), it begins after a random pause; meanwhile the turn is that of the next one of
// this process who wants the same copies. After a split vote the pause is one to four round trips,
// and grows twice; a second at most.
//
// A node that has restarted may have forgotten a lock that still has a holder. So it does not
// count until this client itself has seen its present run for LeaseTime and a margin; what the
// node says of its age proves nothing, since its clock may have been set. No copy is asked for
// more than LeaseTime: a longer fixed lease is renewed up to its end. So nothing that a node
// forgets lasts longer. Before that, a round is won when all nodes grant the lock and this
// client saw none restart: a node that has forgotten nothing would not have granted. That is
// known of one lock and mode; later rounds for the same need a majority of those runs. When a
// majority of nodes that count has granted, nobody else can have the lock, so the copies of
// all others are the hold's, too.
//
// # The hold
//
// Every member has its own hold, kept by its own client's watchdog. The context of the
// MultiLock's hold ends when one of them is lost (of a quorum: when no majority is left).
// The others are renewed no more: they stay held until Unlock, which frees all members, even if
// some fail, or until their leases end. All
// members have one owner, on all clients, so that acquisitions with the hold's context
// re-enter.
