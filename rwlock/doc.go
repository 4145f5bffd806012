// Package rwlock provides the read-write lock: any number of readers or one writer.
// Its format on the server is that of Redisson's RReadWriteLock.
//
// # On the server
//
// The lock is a hash: the field "mode" is read or write, an owner's field counts
// its read holds, its field with ":write" its write holds. As with the other
// kinds a field names the acquisition, too, so that each 0→1 acquisition has a
// field of its own and every script can run twice. Beside it stands Redisson's
// key {lock}:<field>:rwlock_timeout:1 with the lease of the field's read holds.
// Redisson has one such key per hold (:1 to :count) and only ever asks which of
// them ends last; ours is one key for all holds of an acquisition, with the lease
// of the one that ends last: counts stay absolute, and a repeated command can't
// leave a key too many.
//
// # Whose lease ends when
//
// A sorted set of ours, redlatch_rw_leases, has the end of every read and write
// hold of redlatch. The lock's TTL is that of the hold that ends last, and this is
// kept at every change:
//
//	enter, renew, re-enter   the hold's own end is raised, and the TTL with it if it is lower
//	a writer asks            ours whose end has passed are removed; the lock is free if they were all
//	leave                    if the leaver's end was the TTL: the TTL becomes the largest end left
//
// So a reader that died stands in the hash until its own lease has ended and no
// longer, whatever others do: their renewals raise the TTL only as long as they
// hold, and when the last of them leaves, the TTL falls to what the dead one has
// left. Nobody's renewal touches another one's end, and an end that has passed is
// never set again. Finding the largest end costs O(log n). Only when readers of
// another library are inside does a leaver whose end was the TTL look at each of
// their timeout keys.
//
// A hold's own end only rises: a partial unlock sets the count and nothing else.
//
// While a cluster moves the slot it refuses commands of several keys for as long as
// some are here and some there. A hold is then renewed key by key, and the only one is
// freed by deleting the hash; the release follows and cleans up. Where others are inside
// the hold stays in the hash until then, or the set and the hash would disagree about
// who is foreign; it keeps nobody out, since whoever would enter has several keys, too.
//
// The set must never hold a member of an earlier life of the hash (somebody
// deleted the key, another library took the lock anew), or the count of foreign
// readers, which is the number of fields less that of the members, would be too
// low and one of them could be thrown out. Fields are never used twice, so
// members of an earlier life are all absent from the hash: whoever enters looks at
// one member, any, and drops the set if that one is absent. What enters is added
// to a set of one life only, so that one member speaks for all.
//
// # Who comes next
//
// A writer that is refused leaves a mark (redlatch_rw_writers with its time of
// arrival, redlatch_rw_marks with the time until which it is known to live); a
// reader that is refused leaves its name in redlatch_rw_readers with such a time.
// The client's scheduler refreshes both in batches at a fifth of the skip time, 5 s
// by default; a process that died is passed over when its last refresh is that
// old. The rules:
//
//   - A write unlock or downgrade makes the waiting readers the turn (RENAME of
//     redlatch_rw_readers to redlatch_rw_turn: O(1)) and publishes 1.
//   - A reader enters in read mode or when the lock is free, unless a living writer
//     was marked before the reader was refused first. Readers of the turn, readers
//     that prefer readers, and owners that are inside already pay no heed to marks.
//   - A writer enters when the lock is free and no living reader of the turn is left.
//
// So phases alternate: readers that wait when a writer leaves enter before the
// next writer, however fast that one is, and readers that come later wait behind
// the writers that were there before them. Nobody starves. The turn is a finite
// set, and a reader in it leaves it by entering, giving up or dying. A reader waits
// for writers that came before it only: when they give up it enters, though others
// have come meanwhile.
//
//	      read unlock, last: 0                      write unlock: 1
//	free ◄──────────────────── read ◄───────┐  free ◄────────────── write
//	                            ▲           │                         │
//	                            └───────────┴── downgrade: 1 ◄────────┘
//
// A writer that gives up removes its mark and publishes 1, so that readers that
// stood back enter at once; when it dies no message comes, and they look when its
// mark ends. A reader of the turn that gives up publishes 0 if it was the last and
// nobody is inside. When the TTL falls to less than half because a leaver was the
// longest, waiting writers get 0 and look anew; smaller changes they learn from
// their refreshes.
//
// Redisson's writer tells nobody of a downgrade. A reader that waits for such a
// writer finds it out by its next refresh.
//
// Writers of one process wait in line, and only the first of the line has a mark.
// There is no order between the writers of several processes.
//
// # Read, then write
//
// An owner that holds only the read lock can't get the write lock: while it waits
// it would keep itself out. The engine knows the owner's holds, and since all
// commands of an owner and lock pass one gate, it knows all of them: ErrUpgrade
// comes without asking the server. Two Clients are two owners, also in one
// process.
//
// The other way round is allowed. A writer that takes the read lock names its
// write hold's field, and the script checks it. If then the write lease ends first
// (a fixed one), the next reader that asks finds it ended and makes the mode read.
package rwlock
