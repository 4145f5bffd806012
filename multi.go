package redlatch

import "github.com/redlatch/redlatch/multilock"

// MultiLock returns a lock of all locks, of one or of several Clients: whoever
// holds it holds all of them, and nobody ever sees a part of it taken and kept.
// Plain locks (RLock) of one Client on one node cost one command to take and one to
// free, however many they are. The hold is a [MultiHold].
//
// The order of the arguments does not matter: two MultiLocks over the same locks
// can't deadlock. A MultiLock may be a member itself, and so may a type of your
// own. It never fails: a composition that can't work is an [ErrInvalidOption] of Lock.
func MultiLock(locks ...Locker) *multilock.MultiLock { return multilock.New(locks...) }

// QuorumLock returns a lock that is held when a majority of its copies is: locks of
// one name and kind, one per Client, the Clients being of independent servers (not
// of one master's replicas). It goes on working while a minority of the servers is
// down, slow or cut off. See docs/SAFETY.md for what that gives and what it does not.
//
// Make the Clients with Redis.ForceSingleClient, so that New succeeds for a server
// that is down at the start. It never fails: copies that can't be a quorum
// (different names or kinds, fair locks, two on one server) are an
// [ErrInvalidOption] of Lock.
func QuorumLock(copies ...Locker) *multilock.MultiLock { return multilock.NewQuorum(copies...) }
