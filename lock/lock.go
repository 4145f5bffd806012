package lock

import (
	"context"
	"fmt"
	"time"
)

// Locker is implemented by all lock kinds, and can be by a type of your own: a fake in tests, or a
// lock that wraps one of these.
//
// Implementations are safe for concurrent use. Each call is a separate acquisition, by
// the owner that its ctx carries, or else by a new owner.
type Locker interface {
	// Lock blocks until the lock is acquired or ctx ends. While the server can't be reached, it keeps trying. It returns
	// the hold, which must be unlocked once.
	//
	// If ctx ends first, the error matches ctx.Err() and the cause of ctx, and also
	//   - [ErrNotAcquired], as a rule;
	//   - [ErrUnavailable] instead, if the server failed or was silent: if it had left a command of this Client
	//     unanswered for a second (for a third of LeaseTime, if that is less).
	//
	// The cause of ctx is [ErrLeaseLost] if ctx is the context of a hold that was lost.
	//
	// These errors end the call at once: [ErrInvalidName], [ErrInvalidOption], [ErrClosed], [ErrUpgrade] (of a write
	// lock), [ErrReplicaAcks], and a [*ServerError] if the server refuses for good.
	//
	// After an error the caller holds nothing. What the call has left on the server is removed in the background, as
	// soon as the server answers.
	Lock(ctx context.Context, opts ...AcquireOption) (Hold, error)

	// TryLock blocks for at most wait.
	//   - A wait of 0 means one attempt, which blocks until the server answers: for at most a second (a third of
	//     LeaseTime, if that is less), and with ReplicaAcks for ReplicaAckTimeout more. Then it is an [ErrUnavailable].
	//   - A lease of 0 means that the watchdog renews the lock until Unlock. Any other lease is fixed and not renewed.
	//   - A negative wait, and a lease that is negative or below a millisecond, is an [ErrInvalidOption].
	//
	// Both are durations, and easily swapped: name them. A Client warns once, in its log, of a fixed lease of five
	// seconds or less next to a wait of four times that or more.
	//
	// If the lock stays busy for the whole wait, the error matches [ErrNotAcquired]; its detail, [*NotAcquiredError],
	// names the holder if it is known. If the server failed or was silent (see Lock), the error matches
	// [ErrUnavailable] and not ErrNotAcquired. A wait of less than a second may be too short to tell a silent server
	// from a busy lock: then the error matches ErrNotAcquired and names no holder. The other errors, and those when ctx
	// ends before the wait, are those of Lock.
	//
	// A call that gives up may leave a place among the waiters, which is removed in the background. For one round trip
	// a following attempt, of any owner, may find that place and take the free lock for busy. So a loop of TryLocks
	// with a wait of 0 may need one more turn.
	TryLock(ctx context.Context, wait, lease time.Duration) (Hold, error)
}

// Hold is one successful acquisition. It is safe for concurrent use.
type Hold interface {
	// Name is the name of the lock as the caller gave it.
	Name() string

	// Context carries the owner of the hold: an acquisition of the same lock with it, or with a context derived from
	// it, re-enters. It ends
	//   - when the hold is unlocked (cause [ErrUnlocked]),
	//   - when the context given to the acquisition ends (with its cause),
	//   - when the lock is lost (cause [ErrLeaseLost]),
	//   - when the Client is closed (cause [ErrClosed]); see [context.Cause].
	//
	// When the context given to the acquisition ends, the lock stays held until Unlock. That also holds for a hold that
	// was acquired with the context of another one: when the other one is unlocked, the hold stays, but its context
	// ends. To keep that context, acquire with [context.WithoutCancel] of the other hold's; it keeps the owner.
	Context() context.Context

	// Unlock releases the hold and ends its context. It uses the values of ctx but
	// ignores its cancellation, and blocks for at most the Client's UnlockTimeout.
	//
	// It returns
	//   - nil if the lock was held until now;
	//   - [ErrLeaseLost] if the lock had been lost: the critical section may not have
	//     been exclusive;
	//   - [ErrNotHeld] if this hold has already been unlocked; a call that comes while
	//     another one is under way waits for that one first;
	//   - [ErrUnavailable] if the server did not answer in time: the lock is free when
	//     its lease ends, if not earlier, and Unlock may be called again to learn the
	//     outcome;
	//   - a [*ServerError] if the server refuses for good, for instance for lack of a
	//     permission: the lock is free when its lease ends;
	//   - [ErrClosed] if the Client was closed while it was held: the lock is free when its
	//     lease ends.
	Unlock(ctx context.Context) error

	// Extend makes the hold last for lease from now, in one round trip, less the margin that ValidUntil always keeps. It
	// blocks until the server answers, ctx ends or UnlockTimeout has passed. If the watchdog renews the hold, it goes on
	// renewing it.
	//
	// Extend never shortens a hold. So Extend(ctx, time.Millisecond) asks the server whether the lock is still held, and
	// changes nothing.
	//
	// Errors are those of Unlock; ctx.Err() if ctx ended first; and [ErrInvalidOption] for a lease below a millisecond,
	// or one that is too long for a QuorumLock. After an error the hold keeps its previous deadline, but the server may
	// have set the longer lease.
	Extend(ctx context.Context, lease time.Duration) error

	// Token is the fencing token of the acquisition, 0 if the lock was not made with [Fenced]. Tokens strictly increase
	// over all holders of the name; a re-entry has the token of the first hold. Readers have the token of the last
	// writer, 0 if there was none; those of a QuorumLock may have a larger one.
	Token() uint64

	// ValidUntil is the local deadline: by this machine's clocks, the lease on the server does not end before it. Each
	// renewal moves it forward. A type of your own whose holds have no end returns the zero time. redlatch's holds
	// never return it.
	ValidUntil() time.Time

	// Owner is whom State and Inspect name as the holder; its String is what log lines show, and [IfOwner] takes. A
	// re-entry has the owner of the first hold. If a lock is passed on inside a process, Owner stays that
	// of the first goroutine; readers that share a hold have one owner. Of a MultiLock it is the first member's, of a
	// QuorumLock that of the first copy that is held: each member and copy has an owner of its own. A type of your own
	// may return the zero OwnerID.
	Owner() OwnerID
}

// MultiHold is the hold of a MultiLock. Get it from a [Hold] by a type assertion.
type MultiHold interface {
	Hold

	// Tokens are the fencing tokens of the members, in the order of the arguments of
	// MultiLock; 0 for members that are not fenced.
	Tokens() []uint64
}

// Mode says how a lock is held.
type Mode string

// The modes that a [State] can show.
const (
	ModeNone  Mode = ""      // not held
	ModeLock  Mode = "lock"  // held by one owner: RLock, FairLock
	ModeRead  Mode = "read"  // held by readers
	ModeWrite Mode = "write" // held by one writer, who may also read
)

// State is a snapshot of a lock on the server, for people and dashboards. It may be out
// of date when you read it: never use it to decide who may do something.
type State struct {
	Name      string
	Held      bool
	Mode      Mode
	Holders   []Holder      // of more than 1,000 readers some; where they run is not looked up: see [Inspection]
	Remaining time.Duration // of the lease; 0 when not held or when the key has no TTL
	Token     uint64        // the last fencing token issued; 0 when the lock object is not fenced

	// QueueLength is the number of waiters that the server knows:
	//   - RLock: 0, since only their own processes know its waiters;
	//   - FairLock: all;
	//   - ReadWriteLock: all readers, and of the writers the first of each process. With ShareReads of the readers, too,
	//     only the first of each process;
	//   - MultiLock and QuorumLock: those of the member that has most.
	QueueLength int
	// Queue lists these waiters in order, the next one first; of a ReadWriteLock only the
	// writers, since readers have no order. It has at most the first 1,000.
	Queue []Waiter
}

// Do runs fn under l: it acquires the lock, calls fn with the hold's context
// and unlocks, even if fn panics or calls runtime.Goexit. It joins the errors of
// fn and of Unlock, the latter as an [*UnlockError]: if errors.Is(err, [ErrLeaseLost]), the
// section may not have been exclusive.
//
// A deadline of ctx limits the wait and fn together; [TryDo] limits the wait alone.
func Do(ctx context.Context, l Locker, fn func(ctx context.Context) error, opts ...AcquireOption) error {
	h, err := l.Lock(ctx, opts...)
	if err != nil {
		return err
	}
	return inside(ctx, h, fn)
}

// DoFenced is [Do] for a section that writes with its fencing token, which it gives to fn. It returns
// [ErrInvalidOption] without calling fn if the hold has no token: if l was made without [Fenced], or is a read lock
// that has had no writer. A MultiLock is refused if that is so for one of its members. So an option that was forgotten
// in one place can't send a write with the token 0 to a store that has not seen another token yet.
func DoFenced(ctx context.Context, l Locker, fn func(ctx context.Context, token uint64) error, opts ...AcquireOption) error {
	h, err := l.Lock(ctx, opts...)
	if err != nil {
		return err
	}
	return inside(ctx, h, func(ctx context.Context) error {
		if why := tokenless(h); why != "" {
			return &InvalidOptionError{Option: "Fenced", Reason: why}
		}
		return fn(ctx, h.Token())
	})
}

// tokenless is why a hold, or one that it consists of, has no token; "" if each has one.
func tokenless(h Hold) string {
	if multi, ok := h.(interface{ Tokenless() Hold }); ok {
		if member := multi.Tokenless(); member != nil {
			return fmt.Sprintf("member %q: %s", member.Name(), tokenless(member))
		}
	}
	if h.Token() != 0 {
		return ""
	}
	switch own, ok := h.(interface{ Fenced() bool }); {
	case !ok:
		return "the hold has no token"
	case own.Fenced():
		return "a read lock has no token before its first writer, whose token the readers get"
	}
	return "the lock was made without it, so the hold has no token"
}

// TryDo is [Do] with a limit for the wait. It blocks for at most wait until l is acquired; 0 means one attempt. Then it
// calls fn with the hold's context and unlocks, even if fn panics or calls runtime.Goexit. With a lease of 0 the
// watchdog renews the lock while fn runs. Any other lease is fixed: when it ends, so does fn's context.
//
// If l was not acquired, fn is not called, nothing is held, and the error is that of [Locker].TryLock: [ErrNotAcquired]
// if l was busy for the whole wait or ctx ended first, [ErrUnavailable] instead if the server failed or was silent,
// [ErrInvalidOption] for a negative wait or lease.
//
// Otherwise TryDo returns the errors of fn and of Unlock, joined, the latter as an [*UnlockError]. If
// errors.Is(err, [ErrLeaseLost]), the section may not have been exclusive. After an error of Unlock the lock is free
// when its lease ends, if not earlier. If fn takes locks itself, its error may match ErrNotAcquired, too.
func TryDo(ctx context.Context, l Locker, wait, lease time.Duration, fn func(ctx context.Context) error) error {
	h, err := l.TryLock(ctx, wait, lease)
	if err != nil {
		return err
	}
	return inside(ctx, h, fn)
}

// inside calls fn with the hold's context and unlocks.
func inside(ctx context.Context, h Hold, fn func(ctx context.Context) error) (err error) {
	defer func() {
		if uerr := h.Unlock(ctx); uerr != nil {
			err = Join(err, &UnlockError{uerr})
		}
	}()
	return fn(h.Context())
}
