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
	// RLock is a re-entrant lock: R as in Redisson. It is no read lock; that is the
	// [ReadLock] of a ReadWriteLock. See [Client.RLock].
	RLock = rlock.RLock
	// FairLock is a lock that serves waiters in the order of their arrival; see
	// [Client.FairLock].
	FairLock = fairlock.FairLock
	// ReadWriteLock has a mode that readers share and one that excludes everybody;
	// see [Client.ReadWriteLock].
	ReadWriteLock = rwlock.ReadWriteLock
	// ReadLock is the shared mode of a ReadWriteLock.
	ReadLock = rwlock.ReadLock
	// WriteLock is the exclusive mode of a ReadWriteLock.
	WriteLock = rwlock.WriteLock
	// CombinedLock is several locks as one: what the functions [MultiLock] and
	// [QuorumLock] return.
	CombinedLock = multilock.MultiLock
)

// The time after which a silent waiter is passed over, without [WithSkipAfter] and
// at least.
const (
	DefaultSkipAfter = lock.DefaultSkipAfter
	MinSkipAfter     = lock.MinSkipAfter
)

// Package lock under this package's name, so that programs import one package.
type (
	// Locker is what all lock kinds have in common.
	Locker = lock.Locker
	// Hold is one successful acquisition.
	Hold = lock.Hold
	// MultiHold is the hold of a MultiLock.
	MultiHold = lock.MultiHold
	// State is a snapshot of a lock.
	State = lock.State
	// OwnerState is one holder or waiter in a State.
	OwnerState = lock.OwnerState
	// Mode says how a lock is held.
	Mode = lock.Mode
	// Kind says what kind of lock stands at a key.
	Kind = lock.Kind
	// Inspection is what the server knows of a lock of whatever kind.
	Inspection = lock.Inspection
	// Holder is one holder in an Inspection.
	Holder = lock.Holder
	// Waiter is one waiter in an Inspection.
	Waiter = lock.Waiter
	// Process is where an owner runs.
	Process = lock.Process
	// OwnerID is an owner on the wire, taken apart.
	OwnerID = lock.OwnerID
	// ForceOption changes one ForceUnlock.
	ForceOption = lock.ForceOption
	// Option changes a lock object when it is made.
	Option = lock.Option
	// AcquireOption changes one acquisition.
	AcquireOption = lock.AcquireOption

	// HeldLock is a lock that a Client holds.
	HeldLock = lock.HeldLock
	// ShutdownError says what is still held.
	ShutdownError = lock.ShutdownError

	// NotAcquiredError is the detail of ErrNotAcquired.
	NotAcquiredError = lock.NotAcquiredError
	// UnavailableError is the detail of ErrUnavailable.
	UnavailableError = lock.UnavailableError
	// NodeError is one server's part of an UnavailableError.
	NodeError = lock.NodeError
	// LeaseLostError is the detail of ErrLeaseLost.
	LeaseLostError = lock.LeaseLostError
	// LossReason says in a LeaseLostError how the loss was noticed.
	LossReason = lock.LossReason
	// InvalidNameError is the detail of ErrInvalidName.
	InvalidNameError = lock.InvalidNameError
	// InvalidOptionError is the detail of ErrInvalidOption.
	InvalidOptionError = lock.InvalidOptionError
	// ReplicaAcksError is the detail of ErrReplicaAcks.
	ReplicaAcksError = lock.ReplicaAcksError
	// OtherOwnerError is the detail of ErrOtherOwner.
	OtherOwnerError = lock.OtherOwnerError
	// ServerError is an answer that no retry will change.
	ServerError = lock.ServerError
	// ConnectError says why a Client can't connect until something is changed.
	ConnectError = lock.ConnectError
	// ConnectReason is the kind of a ConnectError.
	ConnectReason = lock.ConnectReason
)

// The reasons of a ConnectError.
const (
	ConnectLogin      = lock.ConnectLogin
	ConnectPermission = lock.ConnectPermission
	ConnectTLS        = lock.ConnectTLS
	ConnectVersion    = lock.ConnectVersion
	ConnectTopology   = lock.ConnectTopology
	ConnectRefused    = lock.ConnectRefused
)

// The modes in a State.
const (
	ModeNone  = lock.ModeNone
	ModeLock  = lock.ModeLock
	ModeRead  = lock.ModeRead
	ModeWrite = lock.ModeWrite
)

// The kinds in an Inspection.
const (
	KindNone      = lock.KindNone
	KindPlain     = lock.KindPlain
	KindFair      = lock.KindFair
	KindReadWrite = lock.KindReadWrite
)

// The reasons of a [LeaseLostError].
const (
	// LossExpired: the local deadline passed without a renewal, or a fixed lease ended.
	LossExpired = lock.LossExpired
	// LossGone: the server says that the lock is no longer this owner's.
	LossGone = lock.LossGone
	// LossMember: a member of a MultiLock was lost, or the quorum.
	LossMember = lock.LossMember
)

// The sentinels, for errors.Is.
var (
	// ErrNotAcquired: the lock was busy for the whole wait, or ctx ended first.
	ErrNotAcquired = lock.ErrNotAcquired
	// ErrUnavailable: no answer from the server, or no quorum of answers.
	ErrUnavailable = lock.ErrUnavailable
	// ErrLeaseLost: the lock was lost before it was unlocked.
	ErrLeaseLost = lock.ErrLeaseLost
	// ErrNotHeld: this hold was unlocked before.
	ErrNotHeld = lock.ErrNotHeld
	// ErrUnlocked is the cause with which the context of an unlocked hold ends; see
	// [context.Cause]. No call returns it.
	ErrUnlocked = lock.ErrUnlocked
	// ErrClosed: the Client was closed or is shutting down.
	ErrClosed = lock.ErrClosed
	// ErrUpgrade: a reader asked for the write lock.
	ErrUpgrade = lock.ErrUpgrade
	// ErrInvalidName: the name can't be a lock, or its key is none.
	ErrInvalidName = lock.ErrInvalidName
	// ErrInvalidOption: an option or argument makes no sense or would break a promise.
	ErrInvalidOption = lock.ErrInvalidOption
	// ErrReplicaAcks: too few replicas acknowledged the acquisition.
	ErrReplicaAcks = lock.ErrReplicaAcks
	// ErrOtherOwner: ForceUnlock with IfOwner found the lock held by somebody else.
	ErrOtherOwner = lock.ErrOtherOwner
)

// WithLease gives an acquisition a fixed lease that nothing renews; see
// [lock.WithLease].
func WithLease(lease time.Duration) AcquireOption { return lock.WithLease(lease) }

// IfOwner lets ForceUnlock end the holds of this owner only; see [lock.IfOwner].
func IfOwner(owner string) ForceOption { return lock.IfOwner(owner) }

// ParseOwner takes apart an owner as it stands on the wire; see [lock.ParseOwner].
func ParseOwner(text string) (OwnerID, bool) { return lock.ParseOwner(text) }

// Fenced asks for fencing tokens; see [lock.Fenced].
func Fenced() Option { return lock.Fenced() }

// PreferReaders lets the readers of a ReadWriteLock in while writers wait; see
// [rwlock.PreferReaders].
func PreferReaders() Option { return rwlock.PreferReaders() }

// ShareReads lets the readers of a ReadWriteLock in one process share a hold on the
// server; see [rwlock.ShareReads].
func ShareReads() Option { return rwlock.ShareReads() }

// WithSkipAfter sets how long after its last sign of life a waiter of this lock
// object is passed over, by those that wait behind it in a [FairLock], by readers
// that stand back for a waiting writer in a [ReadWriteLock] and by the writers
// behind a reader whose turn it is. Other kinds refuse it. A waiter whose process
// died delays the others by no more than this; a living one that could not tell of
// itself for longer, because its machine or network stood still, loses its place
// and queues up again.
//
// A value below [MinSkipAfter] is an [ErrInvalidOption] of every call. Lock objects of
// one name may have different values: each counts for those who wait through it.
func WithSkipAfter(d time.Duration) Option { return lock.WithSkipAfter(d) }

// WithOwner returns a context whose acquisitions belong to the owner id: on the
// same Client they re-enter each other's holds. It is for the acquisitions of one
// logical job that can't share a hold's context. The same id on two Clients, in one
// process or in two, is two owners.
//
// An empty id or one of more than 256 bytes is an [ErrInvalidOption] of the
// acquisitions.
func WithOwner(ctx context.Context, id string) context.Context { return engine.WithOwner(ctx, id) }

// NewOwner returns a context that carries no owner, so each acquisition with it
// makes a new owner. Use it for goroutines that you start inside a critical section
// and that must exclude each other: with the hold's own context they would all
// re-enter.
func NewOwner(ctx context.Context) context.Context { return engine.NewOwner(ctx) }

// Do runs fn while holding l: it locks, calls fn with the hold's context and
// unlocks, also when fn panics. It joins the errors of fn and of Unlock.
func Do(ctx context.Context, l Locker, fn func(ctx context.Context) error, opts ...AcquireOption) error {
	return lock.Do(ctx, l, fn, opts...)
}
