package redlatch

import "github.com/redlatch/redlatch/multilock"

// MultiLock combines locks of one or several Clients into one: its holder holds all of them. The hold is a [MultiHold].
//
// A MultiLock holds nothing while it waits, so two of them over the same locks can't deadlock, whatever the order of
// the arguments. There is one exception: it may queue for a FairLock while it holds other members, for at most a tenth
// of the lease. RLocks of one Client and cluster slot cost one command to take and one to free, however many.
//
// A member may be a MultiLock or a QuorumLock, but no type of your own. MultiLock never fails: a combination that can't
// work is an [ErrInvalidOption] of Lock.
func MultiLock(locks ...Member) *CombinedLock { return multilock.New(locks...) }

// QuorumLock returns a lock that is held when a majority of its copies is (the Redlock algorithm). The copies are locks
// of one name and kind, one per Client. Each Client connects to an independent server, not to a replica of another one.
//
// The lock works while a minority of the servers is down, slow or cut off. Three things to know (docs/SAFETY.md):
//
//   - A process that has just started may need all servers. A server counts once the process has seen it up for
//     LeaseTime, or when all grant the lock and the process saw none restart.
//   - After a restart a server does not count for LeaseTime.
//   - A hold never takes a lost copy again. It ends when no majority of the copies is left, even if they were lost one
//     by one.
//
// [Open], and [New] with Redis.ForceSingleClient, make the Clients even if a server is down at the start: it counts as
// unavailable, and joins when it comes. QuorumLock never fails: copies that can't be a quorum (different names or
// kinds, fair locks, two on one server) are an [ErrInvalidOption] of Lock.
func QuorumLock(copies ...Member) *CombinedLock { return multilock.NewQuorum(copies...) }
