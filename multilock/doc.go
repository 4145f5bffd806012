// Package multilock makes one lock of several: [New] of different locks, all of
// which are taken or none; [NewQuorum] of copies of one lock on independent
// servers, of which a majority is taken (the Redlock algorithm).
//
// # All of several locks
//
// The members are put into units:
//
//   - all plain locks (RLock) of one client and cluster slot are one unit: one
//     script takes all of them or none, one frees them;
//   - every other member is a unit of its own. A MultiLock as a member counts as
//     its members.
//
// One unit alone is taken by the engine like any single lock: it waits for the
// unlock message of the member that was found busy. With several units one round is:
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
// A lock named twice is taken once, and the write lock stands for both halves of a
// read-write lock, since its owner may read.
//
// So nobody waits while holding anything: two MultiLocks can't deadlock, in
// whatever order they name their members, and neither can a MultiLock and code
// that takes the same locks one by one. Two that keep finding each other's part
// taken are told apart by the random pause, which grows from round to round. Of several
// busy units the first in canonical order (name, then the server's run_id) is the
// one to wait for: those that want the same locks thus meet in one line, and all
// but one of them find out there instead of in each other's way.
//
// Fair members are the exception to "nobody waits": an attempt without waiting never passes
// their queue. In a round that began with waiting they are queued for, in
// canonical order, for no longer than a patience that is bounded by a tenth of
// the lease.
//
// # A majority of copies
//
// Each copy is asked at once, with a time limit per node far below the lease. The
// round is won when a majority is held and still valid:
//
//	validity = lease - elapsed - drift, on each node; of the whole: as long as a majority is valid
//
// A lost round frees all nodes, also those that have not answered (their attempts
// are undone as soon as they do), and the next begins after a random pause, or when
// unlock messages come from the nodes. A node that answers that it has been
// started anew counts for nothing until it has been up for a lease: it may have forgotten a
// lock that still has a holder. So no re-entry and no Extend may ask for more than that.
//
// # The hold
//
// Every member has a hold of its own, kept by its own client's watchdog. The
// whole's context ends when one of them is lost (of a quorum: when no majority is left);
// what is still held stays held until Unlock, which frees all members whatever
// comes back for each. All members have one owner, on all clients, so that
// acquisitions with the hold's context re-enter.
package multilock
