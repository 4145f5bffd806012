package multilock

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/redlatch/redlatch/lock"
)

// MultiLock is several locks taken as one. It is safe for concurrent use and has
// no state of its own; get one from redlatch.MultiLock or redlatch.QuorumLock.
type MultiLock struct {
	name    string
	members []lock.Locker
	quorum  bool
	err     error // of the composition, for every call

	leaves []leaf  // what the members come to, in canonical order
	tokens [][]int // per member: the leaves that are it
	units  []unit  // of leaves, in canonical order; not of a quorum
	tied   bool    // two leaves of different clients have one name: ask for run_ids

	settled atomic.Pointer[settled]
}

var _ lock.Locker = (*MultiLock)(nil)

// New makes a lock of all members; programs call redlatch.MultiLock.
func New(members ...lock.Locker) *MultiLock {
	m := &MultiLock{members: append([]lock.Locker(nil), members...)}
	m.compose()
	return m
}

// NewQuorum makes a lock of a majority of the members, which are the copies of
// one lock; programs call redlatch.QuorumLock.
func NewQuorum(members ...lock.Locker) *MultiLock {
	m := &MultiLock{members: append([]lock.Locker(nil), members...), quorum: true}
	m.composeQuorum()
	return m
}

// Name names the members: "[a b c]", or that of the copies of a quorum.
func (m *MultiLock) Name() string { return m.name }

// Lock blocks until the whole is acquired or ctx ends. Without [lock.WithLease]
// the watchdogs of the members' clients keep it until Unlock. The hold is a
// [lock.MultiHold].
//
// Errors: [lock.ErrInvalidOption] for a composition that can't work (no member,
// a nil one, two clients on one server that mean the same lock, a fenced read lock with
// a write lock that is not; for a quorum also different names or kinds, fair members, two
// members on one server, only some fenced), and for a re-entry of a quorum with a lease
// beyond LeaseTime and what the first acquisition asked for: restarted nodes stay out of
// quorums for no longer. What the members return for good comes back at once, of a quorum
// when it leaves no majority: a [lock.ServerError] if users may not run INFO, say.
//
// [lock.ErrNotAcquired] together with ctx.Err() when ctx ended first. It matches
// [lock.ErrUnavailable], too, if a member's server failed or was silent (of a
// quorum: if no majority of them answered), with each node's error. While servers can't be
// reached Lock keeps trying. After an error nothing is held, and nothing stays on a server
// once it answers.
func (m *MultiLock) Lock(ctx context.Context, opts ...lock.AcquireOption) (lock.Hold, error) {
	return m.take(ctx, -1, lock.Acquire(opts).Lease)
}

// TryLock blocks for at most wait; see [lock.Locker]. With a wait of 0 every
// member is tried once. Errors are those of Lock: [lock.ErrNotAcquired], and
// [lock.ErrUnavailable] as well or not, also when the wait is over.
func (m *MultiLock) TryLock(ctx context.Context, wait, lease time.Duration) (lock.Hold, error) {
	if wait < 0 {
		err := &lock.InvalidOptionError{Option: "wait", Reason: "it is negative"}
		_, obs := m.observe(ctx, wait, lease)
		m.observed(obs, nil, err)
		return nil, err
	}
	return m.take(ctx, wait, lease)
}

// Do runs fn while holding the whole; see [lock.Do].
func (m *MultiLock) Do(ctx context.Context, fn func(ctx context.Context) error, opts ...lock.AcquireOption) error {
	return lock.Do(ctx, m, fn, opts...)
}
