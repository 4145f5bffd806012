package redlatch

import "github.com/redlatch/redlatch/multilock"

// MultiLock combines locks of one or several Clients into one: its holder holds all of
// them. While it waits it holds none, with one exception: it may queue for a FairLock while
// it holds other members, for at most a tenth of the lease. Plain locks (RLock) of one
// Client and cluster slot cost one command to take and one to free, however many there are.
// The hold is a [MultiHold].
//
// The order of the arguments does not matter: two MultiLocks over the same locks
// can't deadlock. A member may be a MultiLock or QuorumLock; a type of your own is none, since a part
// of the whole must be taken back, renewed and found lost as the others are. MultiLock never fails:
// a combination that can't work is an [ErrInvalidOption] of Lock.
func MultiLock(locks ...Member) *multilock.MultiLock { return multilock.New(locks...) }

// QuorumLock returns a lock that is held when a majority of its copies is (the Redlock
// algorithm). The copies are locks of one name and kind, one per Client. Each Client
// connects to an independent server, not to a replica of another. The lock works while a
// minority of the servers is down, slow or cut off: once this process has watched them for
// LeaseTime, from the first acquisition with their Clients on. Until then, and for LeaseTime after
// a restart, a server counts only if all of them grant the lock, and the process saw none restart:
// so a process that has just started may need all servers. A hold never takes a lost copy again: it
// ends when no majority of the copies is left, even if they went one by one. docs/SAFETY.md
// says what a quorum guarantees and what it does not.
//
// [Open] makes the Clients even if a server is down at the start, and so does [New] with
// Redis.ForceSingleClient: that server counts as unavailable, and joins when it comes. QuorumLock
// never fails: copies that can't be a quorum (different names or kinds, fair locks, two on one
// server) are an [ErrInvalidOption] of Lock.
func QuorumLock(copies ...Member) *multilock.MultiLock { return multilock.NewQuorum(copies...) }
