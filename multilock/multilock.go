package multilock

import (
	"context"
	"slices"
	"time"

	"github.com/redlatch/redlatch/internal/engine"
	"github.com/redlatch/redlatch/lock"
)

// MultiLock is several locks taken as one. It is safe for concurrent use; get one from
// redlatch.MultiLock or redlatch.QuorumLock.
type MultiLock struct {
	none

	name    string
	members []Member
	quorum  bool
	err     error // of the composition, for every call

	leaves []leaf         // what the members come to, in canonical order
	tokens [][]int        // per member: the leaves that are it
	at     map[leafID]int // the leaves by their locks, while they are being put in
	units  []unit         // of leaves, in canonical order; not of a quorum
}

type none = engine.None

var _ Member = (*MultiLock)(nil)

// New returns a lock of all members; programs call redlatch.MultiLock.
func New(members ...Member) *MultiLock {
	m := &MultiLock{members: slices.Clone(members)}
	m.compose()
	return m
}

// NewQuorum returns a lock of a majority of the members, which are copies of one lock;
// programs call redlatch.QuorumLock.
func NewQuorum(members ...Member) *MultiLock {
	m := &MultiLock{members: slices.Clone(members), quorum: true}
	m.composeQuorum()
	return m
}

// Name names the members, "[a b c]"; for a quorum it is the name of the copies.
func (m *MultiLock) Name() string { return m.name }

// Lock blocks until all members (of a quorum: a majority) are acquired or ctx ends.
// Without [lock.WithLease] the watchdogs of the members' clients keep them until Unlock.
// The hold is a [lock.MultiHold]. Its ValidUntil is when the first member's ends (of a quorum:
// the first without which there is no majority). A quorum's copies are asked for LeaseTime at
// most, and renewed up to the end of a longer fixed lease, so that ValidUntil moves on until then.
//
// Errors:
//   - [lock.ErrInvalidOption] for members that can't be combined: none, a nil one, a fenced
//     read lock with a write lock that is not fenced, two clients with the same lock of one
//     server and database, which is found when one of them is refused because the other has it;
//     for a quorum also different names or kinds, fair members, two members on one server, or
//     only some of them fenced.
//   - A permanent error of a member, at once; for a quorum only if it leaves no majority.
//     An example is a [lock.ServerError] if the user may not run INFO.
//   - [lock.ErrClosed] when a member's client is shut down or closed (for a quorum: so many
//     that no majority is left). Who waits for one client's lock hears at its next try that another
//     one is closed. What the owner holds already is re-entered during a Shutdown.
//   - [lock.ErrNotAcquired] together with ctx.Err() if ctx ended first; [lock.ErrUnavailable]
//     instead, with each node's error, if the server of a member failed or was silent (for a
//     quorum: if no majority of them answered), also if another member was busy.
//
// While servers can't be reached Lock keeps trying. After an error nothing is held, and
// nothing stays on a server, as soon as it answers.
func (m *MultiLock) Lock(ctx context.Context, opts ...lock.AcquireOption) (lock.Hold, error) {
	return asHold(m.take(ctx, time.Now(), time.Time{}, -1, lock.SettingsOf(opts).Lease))
}

// TryLock blocks for at most wait; with a wait of 0 it tries every member once. The watchdogs renew a lease of 0 until
// Unlock; any other lease is fixed.
//
// If a member stays busy it returns [lock.ErrNotAcquired]. [lock.ErrUnavailable] comes instead under the same condition
// as of Lock, and the other errors are those of Lock; [lock.Locker] says more.
func (m *MultiLock) TryLock(ctx context.Context, wait, lease time.Duration) (lock.Hold, error) {
	if wait < 0 {
		err := &lock.InvalidOptionError{Option: "wait", Reason: "it is negative"}
		_, obs := m.observe(ctx, wait, lease)
		m.observed(obs, nil, err)
		return nil, err
	}
	return asHold(m.take(ctx, time.Now(), time.Time{}, wait, lease))
}

// asHold is what take returned for a caller: no hold is a nil interface.
func asHold(h *hold, err error) (lock.Hold, error) {
	if err != nil {
		return nil, err
	}
	return h, nil
}

// Do runs fn while holding the lock; see [lock.Do].
func (m *MultiLock) Do(ctx context.Context, fn func(ctx context.Context) error, opts ...lock.AcquireOption) error {
	return lock.Do(ctx, m, fn, opts...)
}

// TryDo runs fn while holding the lock, if it gets it within wait; see [lock.TryDo].
func (m *MultiLock) TryDo(ctx context.Context, wait, lease time.Duration, fn func(ctx context.Context) error) error {
	return lock.TryDo(ctx, m, wait, lease, fn)
}
