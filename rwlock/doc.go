// Package rwlock provides the read-write lock: any number of readers or one writer. Its format on the server is that of
// Redisson's RReadWriteLock.
//
// Programs get a ReadWriteLock from Client.ReadWriteLock and need not import this package; the methods of [ReadLock]
// and [WriteLock] say what they promise. Readers and writers take turns, and each reader has a lease of its own. An
// owner that holds the write lock may take the read lock, too, and keep it when it unlocks the write lock. The other
// way round is refused. docs/SAFETY.md says more.
package rwlock

// How the lock works inside. A refresh is a waiter's heartbeat. The skip time ([WithSkipAfter]) is how long after its
// last one a waiter is passed over.
//
// # On the server
//
// The lock is a hash. Its field "mode" is read or write; an owner's field counts
// its read holds, and its field with ":write" its write holds. As with the other
// kinds a field names the acquisition, too, so that each 0→1 acquisition has its own
// field and every script can run twice. Beside the hash is Redisson's key
// {lock}:<field>:rwlock_timeout:1 with the lease of the field's read holds. Redisson has
// one such key per hold (:1 to :count) and only asks which of them ends last. redlatch
// has one key for all holds of an acquisition, with the lease of the one that ends last:
// counts stay absolute, and a repeated command can't leave an extra key.
//
// # When each lease ends
//
// The sorted set redlatch_rw_leases has the end of every read and write hold of redlatch.
// The lock's TTL is that of the hold that ends last. Every change preserves that:
//
//	enter, renew, re-enter   the hold's own end is raised, and the TTL with it if it is lower
//	a writer asks            redlatch holds whose end has passed are removed; if there are no others, the lock is free
//	leave                    if the leaver's end was the TTL: the TTL becomes the largest end left
//
// So a dead reader stays in the hash until its own lease has ended and no longer,
// whatever others do: their renewals raise the TTL only while they hold, and when the
// last of them leaves, the TTL falls to what the dead one has left. A renewal never
// changes the end of another hold, and an end that has passed is never set again. Finding
// the largest end costs O(log n). Only if readers of another library are inside does a
// leaver whose end was the TTL look at each of their timeout keys.
//
// A hold's own end only rises: a partial unlock sets the count and nothing else.
//
// While a cluster moves the slot, it refuses commands with several keys as long as the
// keys are split over two nodes. A hold is then renewed key by key. If it is the only
// one, it is freed by deleting the hash; the release follows and cleans up. If there are
// others, the hold stays in the hash until then: otherwise the set and the hash would
// disagree about which holds are foreign. It blocks nobody, since a command that enters
// has several keys, too.
//
// The set must never contain a member of an earlier life of the hash (the key was
// deleted, and another library took the lock again). Otherwise the count of foreign
// readers, which is the number of fields minus the number of members, would be too low,
// and a foreign reader could lose its lock. Fields are never used twice, so members of an
// earlier life are all absent from the hash. A command that enters or evicts checks any one
// member, and drops the set if that member is absent. Since what enters adds only to a set of
// one life, one member is enough.
//
// That member also tells that the hash is a lock. If there is none, somebody else made the
// hash: another library, or an application that has a field "mode". Then a few entries are
// looked at. Every field but "mode" must be an owner's and have a count, and there must be one.
//
// # Order of service
//
// A writer that is refused leaves a mark (redlatch_rw_writers with its time of
// arrival, redlatch_rw_marks with the time until which it counts as alive). A
// reader that is refused leaves its name in redlatch_rw_readers with such a time; with
// ShareReads the first of a process does, for those who follow it.
// The client refreshes both in batches, every fifth of the skip time, which is 5 s by
// default; those of readers behind a mark at least once a second. A process that died is
// passed over when its last refresh is that old. The rules:
//
//   - A write unlock or downgrade makes the waiting readers the turn (RENAME of
//     redlatch_rw_readers to redlatch_rw_turn: O(1)) and publishes 1.
//   - A reader enters in read mode or when the lock is free, unless a living writer
//     was marked before the reader was first refused. Readers of the turn, readers
//     with PreferReaders, and owners that are already inside ignore marks.
//   - A writer enters when the lock is free, no living reader of the turn is left, and no
//     living writer was marked before it. While the lock is free the turn lasts for a second:
//     a reader that has not come by then stands still, and queues up again. Whoever leaves the lock free calls the first
//     writer, and wakes no other. If it does not come within 250 ms (it stands still, or
//     it is a quorum that needs more than this copy), its mark counts no more until its
//     next refresh; others look once a second. If a lease has ended, which calls nobody,
//     the first reader or writer that asks calls it.
//
// So phases alternate. Readers that wait when a writer leaves enter before the next
// writer, however fast that one is. Readers that come later wait behind the writers that
// were there before them. Nobody starves. The turn is a finite set, and a reader leaves it
// by entering, giving up or not coming. A reader waits only for writers that came before it:
// when they give up it enters, even if other writers have come meanwhile.
//
//	      read unlock, last: 0, a call              write unlock: 1, a call
//	free ◄──────────────────── read ◄───────┐  free ◄────────────── write
//	                            ▲           │                         │
//	                            └───────────┴── downgrade: 1 ◄────────┘
//
// A writer that gives up removes its mark and publishes 1, so that readers that stood
// back enter at once. If it dies, or its mark ends since it does not come, there is no message:
// a refresh tells them that no living writer is before them.
// A reader of the turn that gives up publishes 0 and calls the first writer if it was the last
// one and the lock is free. If the TTL falls to less than half because the longest holder left,
// 0 is published for Redisson's writers, and the first of ours is called, to look. Ours learn
// of smaller changes from their refreshes.
//
// Redisson's writer publishes nothing on a downgrade. A reader that waits for such a
// writer finds out at its next refresh.
//
// Writers of one process wait in line, and the first of the line asks. Those of several
// processes enter in the order of their marks. Several of one process that came at the same
// time have marks in another order than that of its line, so a writer does not stand back
// for the mark of another one of its client, unless it does not wait.
//
// # Read, then write
//
// An owner that holds only the read lock can't get the write lock: it would wait for
// itself. The engine returns ErrUpgrade without asking the server: since all commands of
// an owner and lock pass one gate, it knows all holds of the owner. Two Clients are two
// owners, even in one process.
//
// The reverse is allowed. When a writer takes the read lock, it names the field of its
// write hold, and the script checks it. If the write lease then ends first (a fixed one),
// the next reader that asks finds that, and sets the mode to read.
