package redlatch

import (
	"context"
	"time"

	"github.com/redlatch/redlatch/fairlock"
	"github.com/redlatch/redlatch/internal/engine"
	"github.com/redlatch/redlatch/lock"
	"github.com/redlatch/redlatch/multilock"
	"github.com/redlatch/redlatch/rlock"
	"github.com/redlatch/redlatch/rwlock"
)

// The lock kinds, for struct fields and function signatures. The functions that
// make them are methods of [Client], [MultiLock] and [QuorumLock].
type (
	// RLock is a re-entrant lock, for one holder at a time: R as in Redisson. It is no read lock; that is the
	// [ReadLock] of a ReadWriteLock. Get one from [Client.RLock].
	//
	// Calls: Lock, TryLock, Do, TryDo, State, ForceUnlock, Name. [rlock.RLock] says what each does.
	RLock = rlock.RLock
	// FairLock is an RLock that serves the waiters of all processes in order of arrival. Get one from
	// [Client.FairLock].
	//
	// Calls: Lock, TryLock, Do, TryDo, State, ForceUnlock, Name. [fairlock.FairLock] says what each does.
	FairLock = fairlock.FairLock
	// ReadWriteLock is two locks of one name: one that readers share and one that excludes everybody. Get one from
	// [Client.ReadWriteLock].
	//
	// Calls: ReadLock, WriteLock, State, ForceUnlock, Name. [rwlock.ReadWriteLock] says what each does.
	ReadWriteLock = rwlock.ReadWriteLock
	// ReadLock is the shared mode of a ReadWriteLock.
	//
	// Calls: Lock, TryLock, Do, TryDo, State, ForceUnlock, Name. [rwlock.ReadLock] says what each does.
	ReadLock = rwlock.ReadLock
	// WriteLock is the exclusive mode of a ReadWriteLock.
	//
	// Calls: Lock, TryLock, Do, TryDo, State, ForceUnlock, Name. [rwlock.WriteLock] says what each does.
	WriteLock = rwlock.WriteLock
	// Member is a lock that [MultiLock] and [QuorumLock] can combine: a [Locker] (Lock, TryLock) of redlatch's own. The
	// interface is sealed.
	Member = multilock.Member
	// CombinedLock is several locks as one: what the functions [MultiLock] and [QuorumLock] return.
	//
	// Calls: Lock, TryLock, Do, TryDo, State, ForceUnlock, Name. [multilock.MultiLock] says what each does.
	CombinedLock = multilock.MultiLock
)

// The default of [WithSkipAfter], and the shortest and the longest time that it accepts.
const (
	DefaultSkipAfter = lock.DefaultSkipAfter
	MinSkipAfter     = lock.MinSkipAfter
	MaxSkipAfter     = lock.MaxSkipAfter
)

// Package lock under this package's name, so that programs import one package.
type (
	// Locker is what all lock kinds have in common: Lock and TryLock. [lock.Locker] says what they block for and
	// return.
	Locker = lock.Locker
	// Hold is one successful acquisition: Context, Unlock, Extend, Token, ValidUntil, Name and Owner. [lock.Hold] says
	// what they do.
	Hold = lock.Hold
	// MultiHold is the hold of a MultiLock: besides Context, Unlock, Extend, Token, ValidUntil, Name and Owner it has
	// Tokens, those of the members. [lock.MultiHold] says how to get it.
	MultiHold = lock.MultiHold
	// State is a snapshot of a lock, for people: Name, Held, Mode, Holders, Remaining, Token, QueueLength and Queue. What
	// QueueLength counts depends on the kind: [lock.State].
	State = lock.State
	// Mode says how a lock is held.
	Mode = lock.Mode
	// Kind says what kind of lock a key is.
	Kind = lock.Kind
	// Inspection is what the server knows about a lock of any kind: Name, Key, Kind, Problem, Mode, At, Remaining, Token,
	// HolderCount, Holders, QueueLength, Queue, Processes, Waiting, and the method Held. [lock.Inspection] says what each
	// means.
	Inspection = lock.Inspection
	// Holder is one holder in a State or an Inspection: Owner, its [Process], Mode, Count, Remaining, AskedSince,
	// HeldSince and TraceID. [lock.Holder] says what each means.
	Holder = lock.Holder
	// Waiter is one waiter in a State or an Inspection: Owner, its [Process], Mode and AskedSince.
	Waiter = lock.Waiter
	// OnceRun is the last run of a [Once]: Began, Due, and the [Process] that ran it.
	OnceRun = lock.OnceRun
	// WaitingProcess is a process that waits for an RLock, in an [Inspection]: the [Process], and AskedSince.
	WaitingProcess = lock.WaitingProcess
	// Process is where an owner runs: ClientID, Client (the Client's name), Addr, and whether it is Unlisted or Disputed.
	// [lock.Process] says what each means, and that none of it is proven.
	Process = lock.Process
	// OwnerID is an owner as Redis stores it, split into its parts: Client, Owner, Explicit, Acquisition, AskedSince and
	// HeldSince. Its String is what IfOwner takes; Java tells whether Redisson made it.
	OwnerID = lock.OwnerID
	// Eviction is an entry of the history of evictions: At, Name, Kind, Holds, By, Client, Reason and Evicted. An
	// operator evicts holders, with ForceUnlock.
	Eviction = lock.Eviction
	// Evicted is an owner in an Eviction: Owner, and where it ran: Process.
	Evicted = lock.Evicted
	// ForceOption changes one ForceUnlock.
	ForceOption = lock.ForceOption
	// Option changes a lock object when it is made.
	Option = lock.Option
	// AcquireOption changes one acquisition.
	AcquireOption = lock.AcquireOption

	// HeldLock is a lock that a Client holds: Name, Type, Mode, Owner, Count, HeldSince, ValidUntil and Fixed.
	HeldLock = lock.HeldLock
	// ShutdownError is what Shutdown returns if its ctx ends first: Held, the locks that are still held, and Err.
	ShutdownError = lock.ShutdownError

	// NotAcquiredError is the detail of ErrNotAcquired, and of an ErrUnavailable that ended a wait: Name, Holder, Remaining,
	// Age, Own and Err. Holder is the owner seen last; that was Age before the call's end, and its lease had Remaining
	// left then.
	NotAcquiredError = lock.NotAcquiredError
	// UnavailableError is the detail of ErrUnavailable: Name, Op (what was tried: "acquire", "release" in Unlock, …), and
	// Nodes, with an error for each server.
	UnavailableError = lock.UnavailableError
	// NodeError is one server's part of an UnavailableError: Node, its address, and Err.
	NodeError = lock.NodeError
	// LeaseLostError is the detail of ErrLeaseLost: Name, Owner, Reason, At and Err.
	LeaseLostError = lock.LeaseLostError
	// LossReason says how the loss in a LeaseLostError was noticed.
	LossReason = lock.LossReason
	// InvalidNameError is the detail of ErrInvalidName: Name, Reason and Err.
	InvalidNameError = lock.InvalidNameError
	// InvalidOptionError is the detail of ErrInvalidOption: Option and Reason.
	InvalidOptionError = lock.InvalidOptionError
	// ReplicaAcksError is the detail of ErrReplicaAcks: Name, Want and Got, numbers of replicas, and Err.
	ReplicaAcksError = lock.ReplicaAcksError
	// UnlockError is a part of the error of Do, TryDo and DoFenced: the section has run, and Unlock returned Err.
	UnlockError = lock.UnlockError
	// OtherOwnerError is the detail of ErrOtherOwner: Name, Owner, who was to be evicted, and Holder, who has the lock.
	OtherOwnerError = lock.OtherOwnerError
	// ServerError is an answer of the server that no retry would change: Name, Op and Err.
	ServerError = lock.ServerError
	// ConnectError says why a Client can't connect until something is changed: Node, Reason, Advice and Err.
	ConnectError = lock.ConnectError
	// ConnectReason is the kind of a ConnectError.
	ConnectReason = lock.ConnectReason
)

// The reasons of a ConnectError.
const (
	ConnectLogin      = lock.ConnectLogin      // user name or password wrong or missing
	ConnectPermission = lock.ConnectPermission // the user may not run a command that connecting needs
	ConnectTLS        = lock.ConnectTLS        // TLS on one side only, or a certificate is refused
	ConnectVersion    = lock.ConnectVersion    // the server is too old
	ConnectTopology   = lock.ConnectTopology   // the servers are not what the options say
	ConnectRefused    = lock.ConnectRefused    // the server refuses for another reason, which the error gives
)

// The modes in a State.
const (
	ModeNone  = lock.ModeNone  // not held
	ModeLock  = lock.ModeLock  // held by one owner: RLock, FairLock
	ModeRead  = lock.ModeRead  // held by readers
	ModeWrite = lock.ModeWrite // held by one writer, who may also read
)

// The kinds in an Inspection.
const (
	KindNone      = lock.KindNone      // nobody holds it or waits for it
	KindReentrant = lock.KindReentrant // RLock, alone or in a MultiLock, or a FairLock that nobody waits for
	KindFair      = lock.KindFair      // FairLock
	KindReadWrite = lock.KindReadWrite // ReadWriteLock
	KindUnknown   = lock.KindUnknown   // something looks like a lock and can't be read
)

// The reasons of a [LeaseLostError].
const (
	// LossExpired: the local deadline passed without a renewal, or a fixed lease ended.
	LossExpired = lock.LossExpired
	// LossGone: the server says that this owner no longer holds the lock.
	LossGone = lock.LossGone
	// LossMember: a member of a MultiLock was lost, or the majority of a QuorumLock.
	LossMember = lock.LossMember
)

// The sentinels, for errors.Is.
var (
	// ErrNotAcquired: the lock was busy for the whole wait, or ctx ended first. Retry later, or skip the work. It never
	// matches together with ErrUnavailable.
	ErrNotAcquired = lock.ErrNotAcquired
	// ErrUnavailable: no answer from the server, or no quorum of answers. Retry later, with a pause; after Unlock, call
	// Unlock again to learn the outcome.
	ErrUnavailable = lock.ErrUnavailable
	// ErrLeaseLost: the lock was lost before it was unlocked, and another holder may have been inside at the same time.
	// Don't repeat the work blindly: check what it has written.
	ErrLeaseLost = lock.ErrLeaseLost
	// ErrNotHeld: this hold has already been unlocked. Fix the code: unlock each hold once.
	ErrNotHeld = lock.ErrNotHeld
	// ErrUnlocked is the cause of the context of an unlocked hold; see [context.Cause]. No call returns it by itself;
	// the error of an acquisition with such a context matches it, beside ErrNotAcquired: test for ErrUnlocked first. Fix
	// the code: don't use the context any more.
	ErrUnlocked = lock.ErrUnlocked
	// ErrClosed: the Client was closed or is shutting down. Send the caller to another process.
	ErrClosed = lock.ErrClosed
	// ErrUpgrade: an owner that holds only the read lock asked for the write lock. Fix the code: unlock the read lock
	// first, or begin with the write lock.
	ErrUpgrade = lock.ErrUpgrade
	// ErrInvalidName: the name is not allowed, or its key is not a lock. Fix the name; the text gives the reason.
	ErrInvalidName = lock.ErrInvalidName
	// ErrInvalidOption: an option or argument makes no sense or would break a promise. Fix it; the text gives the
	// reason.
	ErrInvalidOption = lock.ErrInvalidOption
	// ErrReplicaAcks: too few replicas acknowledged the acquisition; it was undone. Retry later, and look at the
	// replicas.
	ErrReplicaAcks = lock.ErrReplicaAcks
	// ErrOtherOwner: ForceUnlock with IfOwner found the lock held by another owner. Look again who holds it.
	ErrOtherOwner = lock.ErrOtherOwner
)

// WithLease gives an acquisition a fixed lease: the hold ends at most that long after the
// acquisition, unless [Hold].Extend moves that; see [lock.WithLease].
func WithLease(lease time.Duration) AcquireOption { return lock.WithLease(lease) }

// IfOwner makes ForceUnlock end the holds of this owner only; see [lock.IfOwner].
func IfOwner(owner string) ForceOption { return lock.IfOwner(owner) }

// IfOwners makes ForceUnlock end the holds of these owners only; see [lock.IfOwners].
func IfOwners(owners ...string) ForceOption { return lock.IfOwners(owners...) }

// Recorded has ForceUnlock note in the history on the server who evicted whom, and why; see [lock.Recorded].
func Recorded(by, reason string) ForceOption { return lock.Recorded(by, reason) }

// ParseOwner splits an owner, as Redis stores it, into its parts; see [lock.ParseOwner].
func ParseOwner(text string) (OwnerID, bool) { return lock.ParseOwner(text) }

// Fenced asks for a fencing token with every acquisition: a number that increases over all
// holders of the name. Send [Hold].Token with every write, and let the resource refuse a
// smaller token than the largest it has seen; see [lock.Fenced]. [DoFenced] refuses a lock without it.
func Fenced() Option { return lock.Fenced() }

// PreferReaders lets the readers of a ReadWriteLock in while writers wait; see
// [rwlock.PreferReaders].
func PreferReaders() Option { return rwlock.PreferReaders() }

// ShareReads lets the readers of a ReadWriteLock in one process share a hold on the
// server; see [rwlock.ShareReads].
func ShareReads() Option { return rwlock.ShareReads() }

// WithSkipAfter sets the silence after which a waiter of this lock object is passed over:
// in a [FairLock] by those behind it, in a [ReadWriteLock] by readers that stand back for
// a waiting writer, and by writers behind a reader whose turn it is. Other kinds refuse it.
// A waiter whose process died delays the others by no more than d. A living waiter that
// sends no heartbeat for longer, because its machine or network stood still, loses its place
// and queues up again. Waiters of a FairLock and readers may notice up to a fifth of d late
// that a DEL has freed the lock.
//
// The default is [DefaultSkipAfter], 5 s. A value below [MinSkipAfter] or above
// [MaxSkipAfter] is an [ErrInvalidOption] of every call. Lock objects of one name may
// have different values: each applies to the waiters of that object.
func WithSkipAfter(d time.Duration) Option { return lock.WithSkipAfter(d) }

// WithOwner returns a context whose acquisitions belong to the owner id: on the
// same Client they re-enter each other's holds. Use it if the acquisitions of one
// logical job can't share a hold's context. The same id on two Clients, in one process
// or in two, means two owners.
//
// An empty id or one of more than 256 bytes is an [ErrInvalidOption] of the
// acquisitions.
func WithOwner(ctx context.Context, id string) context.Context { return engine.WithOwner(ctx, id) }

// NewOwner returns a context that carries no owner, so each acquisition with it
// makes a new owner. Use it for goroutines that you start inside a critical section
// and that must exclude each other: with the hold's own context they would all
// re-enter.
func NewOwner(ctx context.Context) context.Context { return engine.NewOwner(ctx) }

// Do runs fn while holding l: it blocks until l is acquired or ctx ends, calls fn with the
// hold's context and unlocks, even if fn panics. It returns the error of Lock, or else the
// errors of fn and of Unlock, joined, the latter as an [*UnlockError]: if it matches
// [ErrLeaseLost], the section may not have been exclusive. A deadline of ctx limits the wait
// and fn together; [TryDo] limits the wait alone.
func Do(ctx context.Context, l Locker, fn func(ctx context.Context) error, opts ...AcquireOption) error {
	return lock.Do(ctx, l, fn, opts...)
}

// TryDo is [Do] with a limit for the wait alone: it blocks for at most wait until l is
// acquired, 0 means one attempt, and then for as long as fn takes. With a lease of 0 the
// watchdog renews the lock meanwhile, any other lease is fixed. If l was not acquired, fn is
// not called, nothing is held, and the error is that of TryLock: it matches [ErrNotAcquired]
// if l stayed busy or ctx ended first, and [ErrUnavailable] instead if the server failed or
// was silent. Else it returns the errors of fn and of Unlock, joined, as Do does; see
// [lock.TryDo].
func TryDo(ctx context.Context, l Locker, wait, lease time.Duration, fn func(ctx context.Context) error) error {
	return lock.TryDo(ctx, l, wait, lease, fn)
}

// DoFenced is [Do] for a section that writes: it gives fn the fencing token of its hold. If the lock, or any
// member of a MultiLock, was made without [Fenced], it returns an [ErrInvalidOption], and fn is not called; see
// [lock.DoFenced].
func DoFenced(ctx context.Context, l Locker, fn func(ctx context.Context, token uint64) error, opts ...AcquireOption) error {
	return lock.DoFenced(ctx, l, fn, opts...)
}
